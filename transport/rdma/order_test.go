package rdma

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"rankstorm/transport/rdma/internal/verbs"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

var kindNames = [verbs.EventKinds]string{
	"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE",
	"REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
}

// TestOrder prints what every event means in every state; the file is the
// table that a reviewer reads.
func TestOrder(t *testing.T) {
	var b bytes.Buffer
	for kind := range verbs.EventKinds {
		for _, status := range []int32{0, -110} {
			name := kindNames[kind]
			if status != 0 {
				if kind != verbs.Disconnected {
					continue // only there it decides
				}
				name += " after a time-out"
			}
			b.WriteString(name + "\n")
			silent := true
			for s := range stCount {
				if m := decide(s, kind, status); m != ignore {
					fmt.Fprintf(&b, "    %-10s %s\n", s, m)
					silent = false
				}
			}
			if silent {
				b.WriteString("    ignored in every state\n")
			} else {
				b.WriteString("    else ignored\n")
			}
		}
	}
	const file = "testdata/order.txt"
	if *rewrite {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the order of events is another than in %s:\n%s", file, b.String())
	}
}

// TestEveryMoveHappens keeps the table and the names complete.
func TestEveryMoveHappens(t *testing.T) {
	seen := map[move]bool{}
	for s := range stCount {
		if strings.TrimSpace(s.String()) == "" || s.String() == "unknown" {
			t.Errorf("state %d has no name", s)
		}
		for kind := range verbs.EventKinds {
			for _, status := range []int32{0, -110, 28} {
				m := decide(s, kind, status)
				seen[m] = true
				if m != ignore && (s == stNone || s == stShut || s == stDead || s == stGone) {
					t.Errorf("%v in state %v means %v: that connection is over", kind, s, m)
				}
			}
		}
	}
	for m := range moves {
		if !seen[m] || m.String() == "unknown" {
			t.Errorf("nothing leads to %v", m)
		}
	}
}

// TestStories plays orders of events that have been seen, or that the network may bring.
func TestStories(t *testing.T) {
	for _, c := range []struct {
		name string
		at   state
		kind verbs.EventKind
		want move
	}{
		{"a disconnect that overtakes the word that the target is established", stServing, verbs.Disconnected, peerCloses},
		{"the word that comes after it", stShut, verbs.Established, ignore},
		{"a neighbour that changes after the connect", stLive, verbs.Unreachable, peerGone},
		{"a target killed while a probe is under way", stProbing, verbs.Disconnected, failsProbe},
		{"an answer to a request that was given up", stDead, verbs.ConnectResponse, ignore},
		{"a second answer", stLive, verbs.ConnectResponse, ignore},
		{"the end of the wait after a disconnect", stShut, verbs.TimewaitExit, ignore},
		{"a reject of what is being closed", stClosing, verbs.Rejected, closeLost},
		{"iWARP, which has no answer", stConnecting, verbs.Established, up},
	} {
		if got := decide(c.at, c.kind, 0); got != c.want {
			t.Errorf("%s: %v in state %v means %v, want %v", c.name, c.kind, c.at, got, c.want)
		}
	}
}
