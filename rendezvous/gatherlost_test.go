package rendezvous

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
)

// lostLab is a job of eight on four hosts, the controller on n0. Process 7 comes only after so long.
func lostLab(t *testing.T, late time.Duration, number func(i int) int) (l *joinLab, cfgs []Config, results <-chan joined) {
	l = newJoinLab(t, 4, memnet.Config{Latency: time.Millisecond})
	var delays []time.Duration
	for i := range 8 {
		cfg := l.config(i, 8)
		cfg.Record.LauncherProc = number(i)
		cfg.JoinTimeout, cfg.LivenessTimeout = 20*time.Second, 2*time.Second
		cfgs, delays = append(cfgs, cfg), append(delays, 0)
	}
	delays[7] = late
	return l, cfgs, l.start(t.Context(), cfgs, delays)
}

func same(i int) int { return i }

// A host is cut off while the others still wait: the controller says soon whom it lost, each side names the other at the
// join timeout, and nobody leaves it to somebody out of reach to tell.
func TestHostCutOffWhileGathering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cfgs, results := lostLab(t, time.Hour, same)
		time.Sleep(3 * time.Second)
		for _, h := range []int{0, 1, 3} {
			l.net.Cut(l.hosts[2], l.hosts[h])
		}
		time.Sleep(4500 * time.Millisecond)
		const lost = "lost, silent for 2s: process 2 (n2) pid 1002, process 6 (n2) pid 1006"
		if !l.noticed(lost) {
			t.Errorf("notices %q", l.said())
		}
		tell := 0
		for range 7 {
			r := <-results
			text := ""
			if r.err != nil {
				text = r.err.Error()
			}
			want, apart := lost, r.i == 2 || r.i == 6
			if apart {
				want = " was lost after 5 s: silent for 2s; since then: "
			}
			if rank.ExitCode(r.err) != 3 || !strings.Contains(text, want) || apart && (Told(r.err) || !strings.Contains(text, "the controller (n0:7471, n0 pid 100")) || r.after > 21*time.Second {
				t.Errorf("process %d after %v: told %v: %v; want %q", r.i, r.after, Told(r.err), r.err, want)
			}
			if !Told(r.err) {
				tell++
			}
		}
		if tell != 3 { // the controller, and those who are apart
			t.Errorf("%d processes tell, want 3", tell)
		}
		for _, h := range []int{0, 1, 3} {
			l.net.Heal(l.hosts[2], l.hosts[h])
		}
		cfgs[7].JoinTimeout = time.Second
		if r := <-results; rank.ExitCode(r.err) != 3 {
			t.Errorf("process 7: %v", r.err)
		}
		l.clean(cfgs)
	})
}

// The same in the moment between gathering and seal: the lost host has the process that hands out the table, or not.
func TestHostCutOffBeforeTheSeal(t *testing.T) {
	for _, c := range []struct {
		name string
		host int
		want string
	}{
		{"process 0", 1, "(n1)"},
		{"another", 3, "(n3)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Process 0 is on n1, apart from the controller.
				l, cfgs, results := lostLab(t, 4*time.Second, func(i int) int { return (i + 7) % 8 })
				time.Sleep(3900 * time.Millisecond)
				for h := range l.hosts {
					if h != c.host {
						l.net.Cut(l.hosts[c.host], l.hosts[h])
					}
				}
				named, one := false, 0
				for range 8 {
					r := <-results
					code := rank.ExitCode(r.err)
					if apart := r.i%4 == c.host; code != 3 && code != 1 || !apart && r.after > 21*time.Second || r.after > 25*time.Second {
						t.Errorf("process %d after %v: %v", r.i, r.after, r.err)
					} else if !apart {
						if one == 0 {
							one = code
						}
						if code != one {
							t.Errorf("process %d exits with %d, others with %d: %v", r.i, code, one, r.err)
						}
						named = named || strings.Contains(r.err.Error(), c.want)
					} else if !strings.Contains(r.err.Error(), "n0") {
						t.Errorf("process %d does not name the lost controller: %v", r.i, r.err)
					}
				}
				if !named {
					t.Errorf("%s is not named", c.want)
				}
				for h := range l.hosts {
					if h != c.host {
						l.net.Heal(l.hosts[c.host], l.hosts[h])
					}
				}
				l.clean(cfgs)
			})
		})
	}
}

// A process that was stopped for longer than the liveness timeout is missed, and comes again when it goes on.
func TestStoppedWhileGatheringComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cfgs, results := lostLab(t, 12*time.Second, same)
		time.Sleep(time.Second)
		stopped := cfgs[5].Network.(*memnet.Proc)
		stopped.Stop()
		time.Sleep(5 * time.Second)
		if !l.noticed("lost, silent for 2s: process 5 (n1) pid 1005") {
			t.Errorf("notices %q", l.said())
		}
		stopped.Continue()
		closeTogether(l.formed(results, 8))
		l.clean(cfgs)
	})
}

// The controller is stopped shortly before the join timeout: those who wait do not leave it to it to tell the user.
func TestControllerStoppedAtTheJoinTimeout(t *testing.T) {
	for _, before := range []time.Duration{1500 * time.Millisecond, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
			var cfgs []Config
			var delays []time.Duration
			for i := range 3 {
				cfg := l.config(i, 4)
				cfg.JoinTimeout, cfg.LivenessTimeout = 20*time.Second, 2*time.Second
				if i == 0 {
					cfg.JoinTimeout = 25 * time.Second
				}
				cfgs, delays = append(cfgs, cfg), append(delays, time.Duration(i)*100*time.Millisecond)
			}
			results := l.start(t.Context(), cfgs, delays)
			time.Sleep(20*time.Second - before)
			controller := cfgs[0].Network.(*memnet.Proc)
			controller.Stop()
			time.Sleep(before + time.Second)
			controller.Continue()
			for range 3 {
				r := <-results
				if rank.ExitCode(r.err) != 3 || Told(r.err) {
					t.Errorf("stopped %v before: process %d: told %v: %v", before, r.i, Told(r.err), r.err)
				}
				if r.i > 0 && !strings.Contains(r.err.Error(), "n0 pid 1000) ") {
					t.Errorf("stopped %v before: process %d does not name the controller: %v", before, r.i, r.err)
				}
			}
			l.clean(cfgs)
		})
	}
}

// The controller's name has addresses of both families. All processes use one of them towards the controller and put it
// first in their records, whatever order the resolver gives.
func TestOneFamilyForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &joinLab{t: t, net: memnet.New(memnet.Config{Latency: time.Millisecond}), clock: bubbleClock{time.Now()}}
		var v4, v6 []netip.Addr
		for h := range 3 {
			v4 = append(v4, netip.AddrFrom4([4]byte{10, 0, 0, byte(h + 1)}))
			v6 = append(v6, netip.MustParseAddr(fmt.Sprintf("fd00::%d", h+1)))
			l.hosts = append(l.hosts, l.net.AddHost(fmt.Sprintf("n%d", h), v6[h], v4[h]))
		}
		l.net.Name("head", v6[0], v4[0])
		var cfgs []Config
		for i := range 6 {
			cfg := l.config(i, 6)
			cfg.Controller = "head"
			cfgs = append(cfgs, cfg)
		}
		groups := l.formed(l.start(t.Context(), cfgs, nil), 6)
		for p, e := range groups[0].Table().Procs {
			if a := e.Control[0].Addr(); !a.Is4() {
				t.Errorf("process %d leads with %s", p, a)
			}
		}
		closeTogether(groups)
		l.clean(cfgs)
	})
}
