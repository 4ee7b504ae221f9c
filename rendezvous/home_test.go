package rendezvous

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankstorm/test/freeport"
	"rankstorm/test/need"
)

// A job whose controller is a loopback address is on this host alone: its ports, those of gossip too, are not to be
// reached from anywhere else.
func TestLoopbackJobsStayHome(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "127.0.0.5", "localhost", "::1"} {
		t.Run(host, func(t *testing.T) {
			if ln, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
				need.Absent(t, "ipv6", "cannot listen at %s: %v", host, err)
			} else {
				ln.Close()
			}
			before := ownSockets(t)
			at, results := net.JoinHostPort(host, fmt.Sprint(freeport.At(t, host))), make(chan joined, 3)
			for i := range cap(results) {
				rec := ThisProcess()
				rec.PID += i
				go func() {
					g, err := Join(t.Context(), Config{Controller: at, Procs: cap(results), K: 1, Record: rec, JobKey: t.Name()})
					results <- joined{i: i, group: g, err: err}
				}()
			}
			var groups []*Group
			for range cap(results) {
				r := <-results
				if r.err != nil {
					t.Fatal(r.err)
				}
				groups = append(groups, r.group)
			}
			defer closeTogether(groups)
			kinds := map[string]int{}
			for inode, s := range ownSockets(t) {
				if _, old := before[inode]; old {
					continue
				}
				kinds[s.kind]++
				a, ok := kernelAddr(s.local)
				if !ok || !a.Addr().Unmap().IsLoopback() {
					t.Errorf("a %s socket at %v", s.kind, a)
				}
			}
			// Three ports of processes and the controller's, gossip's packets at the three.
			if tcp, udp := kinds["tcp"]+kinds["tcp6"], kinds["udp"]+kinds["udp6"]; tcp != 4 || udp != 3 {
				t.Errorf("sockets %v, want 4 that listen and 3 for packets", kinds)
			}
			for _, g := range groups {
				for _, p := range g.Table().Procs {
					if slices.ContainsFunc(p.Control, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() }) {
						t.Errorf("addresses %v", p.Control)
					}
				}
			}
		})
	}
}

type ownSocket struct{ kind, local string }

// ownSockets are the sockets of this process that listen, or take packets, by inode.
func ownSockets(t *testing.T) map[string]ownSocket {
	t.Helper()
	mine := map[string]bool{}
	fds, _ := filepath.Glob("/proc/self/fd/*") // the pattern is well formed
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil {
			mine[to] = true
		}
	}
	out := map[string]ownSocket{}
	for kind, state := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} {
		b, err := os.ReadFile("/proc/self/net/" + kind)
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == state && mine["socket:["+f[9]+"]"] {
				out[f[9]] = ownSocket{kind, f[1]}
			}
		}
	}
	return out
}
