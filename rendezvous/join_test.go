package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
)

// bubbleClock is the fake clock of a bubble.
type bubbleClock struct{ zero time.Time }

func (c bubbleClock) Now() int64 { return int64(time.Since(c.zero)) }

// joinLab is a network of hosts n0, n1, … inside a bubble and a job on it.
type joinLab struct {
	t     *testing.T
	net   *memnet.Net
	hosts []*memnet.Host
	clock Clock

	mu      sync.Mutex
	notices []string
}

func newJoinLab(t *testing.T, hosts int, cfg memnet.Config) *joinLab {
	l := &joinLab{t: t, net: memnet.New(cfg), clock: bubbleClock{time.Now()}}
	for h := range hosts {
		l.hosts = append(l.hosts, l.net.AddHost(fmt.Sprintf("n%d", h), netip.AddrFrom4([4]byte{10, 0, 0, byte(h + 1)})))
	}
	return l
}

// config of process i of procs, on host i mod hosts.
func (l *joinLab) config(i, procs int) Config {
	h := l.hosts[i%len(l.hosts)]
	return Config{
		Network: h.Proc(), Clock: l.clock,
		Controller: "n0", Procs: procs, K: 2, JobKey: "lab",
		Record: rank.Record{
			Host: h.String(), HostID: [16]byte{byte(i%len(l.hosts) + 1)}, PID: 1000 + i, Start: uint64(i),
			LauncherProc: -1, LocalIndex: -1, BuildID: "build-1", CPUs: 2,
		},
		Settings: []rank.KV{{Key: "size", Value: "8"}, {Key: "topology", Value: "ring"}},
		Notice: func(text string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.notices = append(l.notices, text)
		},
	}
}

func (l *joinLab) noticed(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.notices {
		if all := !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(n, p) }); all {
			return true
		}
	}
	return false
}

// said lists the notices so far.
func (l *joinLab) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.notices)
}

// joined is what one Join gave.
type joined struct {
	i     int
	group *Group
	err   error
	after time.Duration // since the lab began
}

// start runs Joins, each after its delay.
func (l *joinLab) start(ctx context.Context, cfgs []Config, delays []time.Duration) <-chan joined {
	results := make(chan joined, len(cfgs))
	for i, cfg := range cfgs {
		go func() {
			if delays != nil {
				time.Sleep(delays[i])
			}
			g, err := Join(ctx, cfg)
			results <- joined{i, g, err, time.Duration(l.clock.Now())}
		}()
	}
	return results
}

// formed takes n results, which must be groups with the same table, and checks
// that everybody has its own place in it.
func (l *joinLab) formed(results <-chan joined, n int) []*Group {
	l.t.Helper()
	groups := make([]*Group, 0, n)
	seats := map[rank.Proc]bool{}
	for range n {
		r := <-results
		if r.err != nil {
			l.t.Errorf("process %d: %v", r.i, r.err)
			continue
		}
		groups = append(groups, r.group)
		seats[r.group.Self()] = true
		if got, want := r.group.Table().Digest, groups[0].Table().Digest; got != want {
			l.t.Errorf("process %d has another table", r.i)
		}
	}
	if len(seats) != len(groups) {
		l.t.Errorf("%d groups on %d seats", len(groups), len(seats))
	}
	return groups
}

// closeTogether closes groups at the same time.
func closeTogether(groups []*Group) {
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() { g.Close() })
	}
	wg.Wait()
}

// clean checks that no socket is left; the bubble checks that no goroutine is.
func (l *joinLab) clean(cfgs []Config) {
	l.t.Helper()
	// A probe that memberlist has under way ends by its timeout, and time stands still once the test returns.
	time.Sleep(time.Minute)
	for i, cfg := range cfgs {
		if n := cfg.Network.(*memnet.Proc).Open(); n != 0 {
			l.t.Errorf("process %d left %d sockets open", i, n)
		}
	}
}

var _ Network = (*memnet.Proc)(nil)

func TestJoinAnySizeAnyOrder(t *testing.T) {
	for _, size := range []struct{ procs, hosts int }{{1, 1}, {2, 1}, {2, 2}, {8, 1}, {8, 3}, {16, 4}, {17, 1}, {17, 4}, {40, 1}, {40, 4}} {
		for _, order := range []string{"together", "shuffled", "controller last"} {
			t.Run(fmt.Sprintf("%d on %d %s", size.procs, size.hosts, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					seed := uint64(size.procs*100 + size.hosts)
					l := newJoinLab(t, size.hosts, memnet.Config{Seed: seed, Latency: 100 * time.Microsecond, Jitter: 200 * time.Microsecond, Loss: 0.05})
					rng := rand.New(rand.NewPCG(seed, 1))
					cfgs := make([]Config, size.procs)
					delays := make([]time.Duration, size.procs)
					for i := range cfgs {
						cfgs[i] = l.config(i, size.procs)
						switch {
						case order == "shuffled":
							delays[i] = rand.N(3 * time.Second)
						case order == "controller last" && i%size.hosts == 0:
							delays[i] = 4*time.Second + time.Duration(rng.Int64N(int64(time.Second)))
						}
					}
					groups := l.formed(l.start(t.Context(), cfgs, delays), size.procs)
					for _, g := range groups {
						if g.Table().K != 2 || g.Table().Size() != 2*size.procs {
							t.Errorf("table of %d ranks, %d per process", g.Table().Size(), g.Table().K)
						}
					}
					closeTogether(groups)
					l.clean(cfgs)
				})
			})
		}
	}
}

func TestRefusals(t *testing.T) {
	// The offender comes while 2 of 4 processes are there; the job must form without it.
	for _, c := range []struct {
		name   string
		change func(*Config)
		offender,
		controller []string // parts of the messages
	}{
		{"procs", func(c *Config) { c.Procs = 5 }, []string{"number of processes", "5 here", "4 at the controller"}, []string{"n1 pid 1009", "5 there", "4 here"}},
		{"ranks per process", func(c *Config) { c.K = 3 }, []string{"ranks per process", "3 here", "2 at the controller"}, []string{"n1 pid 1009", "3 there", "2 here"}},
		{"build", func(c *Config) { c.Record.BuildID = "build-2" }, []string{"build id", `"build-2" here`, `"build-1" at the controller`}, []string{"n1 pid 1009", `"build-2" there`, `"build-1" here`}},
		{"job key", func(c *Config) { c.JobKey = "other" }, []string{"job key", `"other" here`, `"lab" at the controller`}, []string{"n1 pid 1009", `"other" there`, `"lab" here`}},
		{"setting", func(c *Config) { c.Settings = []rank.KV{{Key: "size", Value: "8"}, {Key: "topology", Value: "incast"}} }, []string{"setting topology", `"incast" here`, `"ring" at the controller`}, []string{"n1 pid 1009", `"incast" there`, `"ring" here`}},
		{"no process number", func(c *Config) { c.Record.LauncherProc = -1 }, []string{"process number", "not given here", "0 at the controller"}, []string{"n1 pid 1009", "not given there", "0 here"}},
		{"setting missing", func(c *Config) { c.Settings = c.Settings[1:] }, []string{"setting size", "not set here", `"8" at the controller`}, []string{"n1 pid 1009", "not set there", `"8" here`}},
		{"process number taken", func(c *Config) { c.Record.LauncherProc = 1 }, []string{"process number 1", "n1 pid 1001"}, []string{"refused n1 pid 1009", "process number 1", "n1 pid 1001"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
				cfgs := make([]Config, 4)
				for i := range cfgs {
					cfgs[i] = l.config(i, 4)
					cfgs[i].Record.LauncherProc = i
				}
				results := l.start(t.Context(), cfgs, []time.Duration{0, 0, 10 * time.Second, 10 * time.Second})
				time.Sleep(time.Second)
				odd := l.config(9, 4)
				odd.Record.LauncherProc = 2 // free so far
				c.change(&odd)
				began := time.Now()
				_, err := Join(t.Context(), odd)
				var e *rank.Error
				if !errors.As(err, &e) || e.Kind != rank.KindRefused || rank.ExitCode(err) != 3 {
					t.Errorf("the offender got %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("refused after %v", took)
				}
				for _, part := range c.offender {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("offender's message %v lacks %q", err, part)
					}
				}
				synctest.Wait()
				if !l.noticed(c.controller...) {
					t.Errorf("no notice with %q among %q", c.controller, l.said())
				}
				groups := l.formed(results, 4)
				closeTogether(groups)
				l.clean(append(cfgs, odd))
			})
		})
	}
}

func TestOneTooManyAndTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 1, memnet.Config{})
		cfgs := []Config{l.config(0, 2), l.config(1, 2)}
		groups := l.formed(l.start(t.Context(), cfgs, nil), 2)
		late := l.config(7, 2)
		_, err := Join(t.Context(), late)
		var e *rank.Error
		if !errors.As(err, &e) || e.Kind != rank.KindRefused || !strings.Contains(err.Error(), groups[0].Table().RunID) {
			t.Errorf("the late process got %v", err)
		}
		var told []Event
		for _, g := range groups {
			select {
			case ev := <-g.Events():
				told = append(told, ev)
			default:
			}
		}
		if len(told) != 1 || told[0].Kind != Refused || !strings.Contains(told[0].Err.Error(), "n0 pid 1007") {
			t.Errorf("events %v", told)
		}
		closeTogether(groups)
		l.clean(append(cfgs, late))
	})
}

func TestNameResolvesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
		l.net.Name("n0")
		cfgs := []Config{l.config(0, 3), l.config(1, 3), l.config(2, 3)}
		results := l.start(t.Context(), cfgs, nil)
		time.Sleep(20 * time.Second)
		l.net.Name("n0", netip.AddrFrom4([4]byte{10, 0, 0, 1}))
		closeTogether(l.formed(results, 3))
		if !l.noticed("n0:7471", "does not resolve") {
			t.Errorf("nothing said about the name: %q", l.said())
		}
		l.clean(cfgs)
	})
}

func TestNoController(t *testing.T) {
	for name, prepare := range map[string]func(*joinLab) (parts []string){
		"no name": func(l *joinLab) []string {
			l.net.Name("n0")
			return []string{"n0:7471", "does not resolve", "name a host that this one can look up, or give its address"}
		},
		"nobody": func(*joinLab) []string { return []string{"n0:7471", "refused", "with the same -C"} },
		"not there": func(*joinLab) []string {
			return []string{"n0:7471 (the host of mpirun)", "refused", "name another one with -C HOST"}
		},
		"silent host": func(l *joinLab) []string { l.hosts[0].Kill(); return []string{"n0:7471", "no controller"} },
		"mute program": func(l *joinLab) []string {
			if _, err := l.hosts[0].Proc().Listen(netip.MustParseAddrPort("10.0.0.1:7471")); err != nil {
				l.t.Fatal(err)
			}
			return []string{"does not answer", "another program"}
		},
	} {
		// Also when the patience is shorter than any single attempt.
		for _, patience := range []time.Duration{30 * time.Second, 2 * time.Second} {
			t.Run(fmt.Sprint(name, " ", patience), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
					parts := prepare(l)
					cfg := l.config(1, 2)
					cfg.JoinTimeout = patience
					if name == "not there" {
						cfg.Launch = Launch{ControllerFrom: "the host of mpirun"}
					}
					_, err := Join(t.Context(), cfg)
					var e *rank.Error
					if !errors.As(err, &e) || e.Kind != rank.KindRendezvous {
						t.Errorf("got %v", err)
					}
					if at := time.Duration(l.clock.Now()); at < patience || at > patience+time.Second {
						t.Errorf("gave up after %v", at)
					}
					for _, part := range parts {
						if err == nil || !strings.Contains(err.Error(), part) {
							t.Errorf("message %q lacks %q", err, part)
						}
					}
					l.clean([]Config{cfg})
				})
			})
		}
	}
}

func TestGarbageOnThePort(t *testing.T) {
	for _, c := range []struct{ answer, quoted string }{
		{"SSH-2.0-OpenSSH_9.2\r\n", `answered "SSH-2.0-OpenSSH_9.2";`},
		{"HTTP/1.1 400 Bad Request\r\n\r\n", `answered "HTTP/1.1 400 Bad Request";`},
		{"no\n", `answered "no";`},
		{"\x00\x00\x00\x08\x01\x33abcdef", `answered "\x00\x00\x00\b\x013abcdef" (unexpected frame type 51);`},
	} {
		answer := c.answer
		synctest.Test(t, func(t *testing.T) {
			l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
			ln, err := l.hosts[0].Proc().Listen(netip.MustParseAddrPort("10.0.0.1:7471"))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					c.Write([]byte(answer))
					time.Sleep(100 * time.Millisecond)
					c.Close()
				}
			}()
			for _, i := range []int{0, 1} { // on the controller's host, and elsewhere
				cfg := l.config(i, 2)
				began := time.Now()
				_, err = Join(t.Context(), cfg)
				var e *rank.Error
				if !errors.As(err, &e) || e.Kind != rank.KindUsage || !strings.Contains(err.Error(), c.quoted) ||
					!strings.Contains(err.Error(), "another program listens there") {
					t.Errorf("process %d, answer %q: got %v", i, answer, err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("took %v", took)
				}
				l.clean([]Config{cfg})
			}
			ln.Close()
		})
	}
}

func TestTimeoutNamesTheMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
		var cfgs []Config
		for i := range 5 {
			cfg := l.config(i, 8)
			cfg.Record.LauncherProc = i
			cfg.JoinTimeout = 20 * time.Second
			cfgs = append(cfgs, cfg)
		}
		results := l.start(t.Context(), cfgs, nil)
		time.Sleep(7500 * time.Millisecond)
		if !l.noticed("waiting for 3 of 8 processes for 7 s: have n0×3, n1×2; missing process numbers 5-7") {
			t.Errorf("notices %q", l.said())
		}
		// All give up at the same moment: who hears of others that have left already counts them too.
		missing := regexp.MustCompile(`missing process numbers [0-9,-]*[0-5]-7`)
		tell := 0
		for range cfgs {
			r := <-results
			var e *rank.Error
			if !errors.As(r.err, &e) || e.Kind != rank.KindRendezvous || !missing.MatchString(r.err.Error()) || !Told(r.err) && !strings.HasPrefix(r.err.Error(), "the job did not form within 20s: waiting") {
				t.Errorf("process %d got %v", r.i, r.err)
			}
			if !Told(r.err) {
				tell++
			}
		}
		if tell != 1 {
			t.Errorf("%d processes tell the user, want the controller alone", tell)
		}
		l.clean(cfgs)
	})
}

func TestControllerDiesWhileGathering(t *testing.T) {
	for _, procs := range []int{4, 20} {
		synctest.Test(t, func(t *testing.T) {
			l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
			first := l.config(0, procs)
			died := l.start(t.Context(), []Config{first}, nil)
			time.Sleep(500 * time.Millisecond)
			var cfgs []Config
			for i := range procs - 2 {
				cfgs = append(cfgs, l.config(i+1, procs))
			}
			results := l.start(t.Context(), cfgs, nil)
			time.Sleep(3 * time.Second)
			first.Network.(*memnet.Proc).Kill()
			time.Sleep(time.Second)
			late := []Config{l.config(procs, procs), l.config(procs+1, procs)}
			cfgs = append(cfgs, late...)
			lateResults := l.start(t.Context(), late, nil)
			merged := make(chan joined, procs)
			for range procs - 2 {
				merged <- <-results
			}
			merged <- <-lateResults
			merged <- <-lateResults
			closeTogether(l.formed(merged, procs))
			if r := <-died; r.err == nil {
				t.Error("a dead process joined")
			}
			l.clean(cfgs)
		})
	}
}

func TestProcessReplacedWhileGathering(t *testing.T) {
	for _, procs := range []int{4, 20} {
		synctest.Test(t, func(t *testing.T) {
			l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
			var cfgs []Config
			for i := range procs {
				cfgs = append(cfgs, l.config(i, procs))
				cfgs[i].Record.LauncherProc = i
			}
			// One is let in under number 1, is gossiped about, and dies (as agent of its host, if there are agents);
			// then its number is free again.
			gone := l.config(1, procs)
			gone.Record.LauncherProc = 1
			died := l.start(t.Context(), []Config{cfgs[0], gone}, nil)
			time.Sleep(time.Second)
			results := l.start(t.Context(), cfgs[2:procs-1], nil)
			time.Sleep(time.Second)
			gone.Network.(*memnet.Proc).Kill()
			time.Sleep(time.Second)
			late := l.start(t.Context(), []Config{cfgs[1], cfgs[procs-1]}, nil)
			merged := make(chan joined, procs)
			for range procs - 3 {
				merged <- <-results
			}
			merged <- <-late
			merged <- <-late
			for range 2 {
				if r := <-died; r.i == 0 {
					merged <- r
				} else if r.err == nil {
					t.Error("a dead process joined")
				}
			}
			closeTogether(l.formed(merged, procs))
			l.clean(cfgs)
		})
	}
}

func TestLeavingWhileGathering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
		cfgs := []Config{l.config(0, 3), l.config(1, 3), l.config(2, 3)}
		results := l.start(t.Context(), cfgs[:1], nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		gone := l.config(3, 3)
		if _, err := Join(ctx, gone); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Join gave %v", err)
		}
		time.Sleep(time.Second) // until the controller has heard of it
		rest := l.start(t.Context(), cfgs[1:], nil)
		merged := make(chan joined, 3)
		merged <- <-results
		merged <- <-rest
		merged <- <-rest
		closeTogether(l.formed(merged, 3))
		l.clean(append(cfgs, gone))
	})
}

func TestCancelGivesCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := &rank.Error{Kind: rank.KindCancelled, Proc: rank.NoProc, Peer: rank.None, Signal: 2, Text: "interrupted"}
		cfgs := []Config{l.config(0, 3), l.config(1, 3)}
		results := l.start(ctx, cfgs, nil)
		time.Sleep(3 * time.Second)
		began := time.Now()
		cancel(cause)
		for range cfgs {
			if r := <-results; rank.ExitCode(r.err) != 130 {
				t.Errorf("process %d got %v", r.i, r.err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
		l.clean(cfgs)
	})
}

// With Lead the process that won the controller port is number 0 and the root,
// though its host stands last; without, no host is special.
func TestControllerLeads(t *testing.T) {
	for _, lead := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newJoinLab(t, 3, memnet.Config{Seed: 3, Latency: 100 * time.Microsecond})
			cfgs := make([]Config, 6)
			for i := range cfgs {
				cfgs[i] = l.config(i, 6)
				cfgs[i].Controller, cfgs[i].Lead = "n2", lead
			}
			groups := l.formed(l.start(t.Context(), cfgs, nil), 6)
			var hosts []string
			for _, rec := range groups[0].Table().Procs {
				hosts = append(hosts, rec.Host)
			}
			want := []string{"n0", "n0", "n1", "n1", "n2", "n2"}
			if lead {
				want = []string{"n2", "n0", "n0", "n1", "n1", "n2"}
			}
			if !slices.Equal(hosts, want) {
				t.Errorf("lead %t: hosts %v, want %v", lead, hosts, want)
			}
			for _, g := range groups {
				if root := g.Parent() == rank.NoProc; root != (g.Self() == 0) {
					t.Errorf("lead %t: process %d is the root: %t", lead, g.Self(), root)
				}
			}
			closeTogether(groups)
			l.clean(cfgs)
		})
	}
}
