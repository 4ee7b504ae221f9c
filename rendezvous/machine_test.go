package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rankstorm/rank"
	"rankstorm/test/freeport"
	"rankstorm/test/need"
)

func fds(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestJoinOverSockets(t *testing.T) {
	for _, size := range []struct {
		procs, agentsAbove int
		host               string
	}{{8, 0, "127.0.0.1"}, {8, 0, "localhost"}, {20, 0, "127.0.0.1"}, {8, 0, "[::1]"}} {
		t.Run(fmt.Sprintf("%d at %s", size.procs, size.host), func(t *testing.T) {
			if size.host == "[::1]" {
				ln, err := net.Listen("tcp", "[::1]:0")
				if err != nil {
					need.Absent(t, "ipv6", "no IPv6 here: %v", err)
				}
				ln.Close()
			}
			warm, err := net.Listen("tcp", "127.0.0.1:0") // the poller's own descriptors
			if err != nil {
				t.Fatal(err)
			}
			warm.Close()
			known := goleak.IgnoreCurrent()
			before := fds(t)
			port := freeport.At(t, "127.0.0.1")
			results := make(chan joined, size.procs)
			for i := range size.procs {
				rec := ThisProcess()
				rec.PID += i
				go func() {
					g, err := Join(t.Context(), Config{
						Controller: fmt.Sprintf("%s:%d", size.host, port), Procs: size.procs, K: 1, Record: rec,
						JobKey: fmt.Sprintf("%s %d", t.Name(), os.Getpid()),
					})
					results <- joined{i: i, group: g, err: err}
				}()
			}
			var groups []*Group
			for range size.procs {
				r := <-results
				if r.err != nil {
					t.Errorf("process %d: %v", r.i, r.err)
					continue
				}
				groups = append(groups, r.group)
			}
			for _, g := range groups {
				if g.Self() == 0 && size.procs <= 16 && g.Stats().Members != size.procs {
					t.Errorf("%d gossip members of %d", g.Stats().Members, size.procs)
				}
				if s := g.Stats(); g.Self() == 0 && size.procs > 16 && (s.Members < 1 || s.Members > 3 || s.Agents != 1) {
					t.Errorf("%d members, %d agents with %d processes on one host", s.Members, s.Agents, size.procs)
				}
			}
			closeTogether(groups)
			if after := fds(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
			goleak.VerifyNone(t, known)
		})
	}
}

func TestJoinOverSocketsGarbage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("220 mail ready\r\n"))
			defer c.Close()
		}
	}()
	before := fds(t)
	_, err = Join(t.Context(), Config{Controller: ln.Addr().String(), Procs: 2, K: 1, Record: ThisProcess()})
	if errorKind(err) != rank.KindUsage || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v", err)
	}
	if after := fds(t); after > before+1 { // the listener's end of the link
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestHostSocket(t *testing.T) {
	name := fmt.Sprintf("rankstorm/test-%d", os.Getpid())
	ln, conn, err := Machine().HostSocket(t.Context(), name)
	if err != nil || ln == nil || conn != nil {
		t.Fatalf("first: %v %v %v", ln, conn, err)
	}
	ln2, conn2, err := Machine().HostSocket(t.Context(), name)
	if err != nil || ln2 != nil || conn2 == nil {
		t.Fatalf("second: %v %v %v", ln2, conn2, err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted.Close()
	conn2.Close()
	ln.Close()
	ln, conn, err = Machine().HostSocket(t.Context(), name)
	if err != nil || ln == nil {
		t.Fatalf("after the owner's end: %v %v %v", ln, conn, err)
	}
	ln.Close()
}

func TestMachineAddresses(t *testing.T) {
	local, err := Machine().LocalAddrs()
	if err != nil || len(local) == 0 {
		t.Fatalf("%v %v", local, err)
	}
	loopback := netip.MustParseAddr("127.0.0.1")
	if source, err := Machine().SourceAddr(netip.AddrPortFrom(loopback, 80)); err != nil || source != loopback {
		t.Errorf("source towards loopback %v %v", source, err)
	}
	addrs, err := Machine().Resolve(t.Context(), "::1")
	if err != nil || len(addrs) != 1 || addrs[0] != netip.IPv6Loopback() {
		t.Errorf("literal: %v %v", addrs, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pause(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("pause gave %v", err)
	}
}

func TestThisProcess(t *testing.T) {
	a, b := ThisProcess(), ThisProcess()
	if a.Host == "" || strings.Contains(a.Host, ".") || a.PID != os.Getpid() || a.Start == 0 || a.HostID == [16]byte{} || a.LauncherProc != -1 || a.LocalIndex != -1 {
		t.Errorf("%+v", a)
	}
	if a.BuildID != b.BuildID || !strings.Contains(a.BuildID, "+") || strings.HasSuffix(a.BuildID, "+000000000000") {
		t.Errorf("build ids %q, %q", a.BuildID, b.BuildID)
	}
	if parseStart([]byte("1 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0")) != 4711 {
		t.Error("start time of a process with a strange name")
	}
	if parseStart([]byte("1 (x")) != 0 || parseBootID([]byte("x")) != [16]byte{} {
		t.Error("nonsense was believed")
	}
}
