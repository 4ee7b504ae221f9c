package rendezvous

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
)

// labClock runs with the bubble's time, from an own zero and at an own rate.
type labClock struct {
	zero time.Time
	skew int64
	rate float64 // gains so many seconds per second
}

func (c *labClock) Now() int64 {
	d := time.Since(c.zero)
	return c.skew + int64(d) + int64(c.rate*float64(d))
}

// lab is a job of n processes, each on a host of its own unless perHost says
// otherwise, on a network in memory.
type lab struct {
	net   *memnet.Net
	hosts []*memnet.Host
	procs []*memnet.Proc
	cs    []*control
	table *rank.Table
}

func newLab(t *testing.T, n int, net memnet.Config, change func(p int, cfg *Config)) *lab {
	t.Helper()
	l := &lab{net: memnet.New(net)}
	zero := time.Now()
	recs := make([]rank.Record, n)
	for p := range n {
		name := fmt.Sprintf("h%03d", p)
		h := l.net.AddHost(name, netip.AddrFrom4([4]byte{10, 0, byte(p >> 8), byte(p)}))
		l.hosts = append(l.hosts, h)
		l.procs = append(l.procs, h.Proc())
		cfg := testConfig(p, n)
		cfg.BindAddrs, cfg.Network, cfg.Clock = nil, l.procs[p], &labClock{zero: zero}
		cfg.Record.Host = name
		cfg.TreeArity = 3
		if change != nil {
			change(p, cfg)
		}
		c, err := openControl(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.cs = append(l.cs, c)
		recs[p] = cfg.Record
		recs[p].Control = c.addrs()
	}
	table, err := rank.Build(recs, 1, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	l.table = table
	return l
}

func (l *lab) sealed(t *testing.T) []*Group {
	t.Helper()
	gs, errs := form(l.cs, l.table)
	for p, err := range errs {
		if err != nil {
			t.Fatalf("process %d: %v", p, err)
		}
	}
	return gs
}

// drained is what has come in so far.
func drained(g *Group) (all []Event) {
	for {
		select {
		case e := <-g.Events():
			all = append(all, e)
		default:
			return all
		}
	}
}

// With 13 processes and arity 3: 0 → 1 2 3, 1 → 4 5 6, 2 → 7 8 9, 3 → 10 11 12.
func TestLossIsToldOnceToTheNeighbours(t *testing.T) {
	for name, victim := range map[string]rank.Proc{"root": 0, "interior": 2, "leaf": 11} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, 13, memnet.Config{Latency: time.Millisecond}, nil)
				gs := l.sealed(t)
				defer closeGroups(gs)
				time.Sleep(time.Minute) // quiet links live
				l.procs[victim].Kill()
				time.Sleep(time.Second)
				for p, g := range gs {
					self := rank.Proc(p)
					if self == victim {
						continue
					}
					want := EventKind(0)
					switch {
					case g.tree.parent(victim) == self:
						want = ChildLost
					case g.Parent() == victim:
						want = ParentLost
					}
					got := drained(g)
					if want == 0 {
						if len(got) != 0 {
							t.Errorf("process %d: events %+v", p, got)
						}
						continue
					}
					if len(got) != 1 || got[0].Kind != want || got[0].Proc != victim {
						t.Fatalf("process %d: events %+v, want one of kind %d", p, got, want)
					}
					var e *rank.Error
					if !errors.As(got[0].Err, &e) || e.Kind != rank.KindLost || e.Proc != victim || e.Host != l.table.Procs[victim].Host {
						t.Errorf("process %d: error %v", p, got[0].Err)
					}
					var err error
					if want == ChildLost {
						err = g.SendDown(victim, []byte("x"))
						if b := g.Broadcast([]byte("to the rest")); b != nil {
							t.Errorf("process %d: broadcast after a loss: %v", p, b)
						}
					} else {
						err = g.SendUp([]byte("x"))
					}
					if !errors.As(err, &e) || e.Kind != rank.KindLost || e.Proc != victim {
						t.Errorf("process %d: sending to the lost process: %v", p, err)
					}
				}
			})
		})
	}
}

func TestSilenceIsLossAtTheLivenessTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 5, memnet.Config{Latency: time.Millisecond}, func(_ int, cfg *Config) { cfg.LivenessTimeout = 4 * time.Second })
		gs := l.sealed(t)
		defer closeGroups(gs)
		time.Sleep(10 * time.Minute)
		l.net.Cut(l.hosts[1], l.hosts[4]) // 4 hangs below 1
		time.Sleep(2900 * time.Millisecond)
		for p, g := range gs {
			if got := drained(g); len(got) != 0 {
				t.Fatalf("process %d: too early: %+v", p, got)
			}
		}
		time.Sleep(2100 * time.Millisecond)
		for p, want := range map[int]Event{1: {Kind: ChildLost, Proc: 4}, 4: {Kind: ParentLost, Proc: 1}} {
			got := drained(gs[p])
			if len(got) != 1 || got[0].Kind != want.Kind || got[0].Proc != want.Proc || !strings.Contains(got[0].Err.Error(), "silent for 4s") {
				t.Errorf("process %d: events %+v", p, got)
			}
		}
		for _, p := range []int{0, 2, 3} {
			if got := drained(gs[p]); len(got) != 0 {
				t.Errorf("process %d: events %+v", p, got)
			}
		}
	})
}

func TestGoodbyeIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 13, memnet.Config{Latency: time.Millisecond}, nil)
		gs := l.sealed(t)
		last := []byte("the last word")
		if err := gs[2].SendUp(last); err != nil {
			t.Fatal(err)
		}
		gs[2].Close()
		time.Sleep(time.Minute)
		for p, g := range gs {
			got := drained(g)
			if p == 0 {
				if len(got) != 1 || string(got[0].Payload) != string(last) || got[0].Proc != 2 {
					t.Errorf("root: events %+v", got)
				}
			} else if len(got) != 0 {
				t.Errorf("process %d: events %+v", p, got)
			}
		}
		if err := gs[7].SendUp(last); err == nil {
			t.Error("sent to a parent that has left")
		}
		closeGroups(gs)
	})
}

func TestGarbageEndsOnlyThatLink(t *testing.T) {
	for name, junk := range map[string][]byte{
		"version":  []byte("GET / HTTP/1.0\r\n\r\n"),
		"oversize": frame(1<<31, wireVersion, frameData),
		"type":     frame(2, wireVersion, 99),
		"answer":   frame(2, wireVersion, frameClockPong),
		"ping":     frame(3, wireVersion, frameClockPing, 0xc1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, 5, memnet.Config{}, nil)
				gs := l.sealed(t)
				defer closeGroups(gs)
				gs[4].parent.sendRaw(junk)
				time.Sleep(time.Second)
				for p, want := range map[int]EventKind{0: 0, 1: ChildLost, 2: 0, 3: 0, 4: ParentLost} {
					got := drained(gs[p])
					if want == 0 && len(got) != 0 || want != 0 && (len(got) != 1 || got[0].Kind != want) {
						t.Errorf("process %d: events %+v, want kind %d", p, got, want)
					}
				}
			})
		})
	}
}

func TestHintsNeverWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1, memnet.Config{}, nil)
		gs := l.sealed(t)
		for range 2 * eventBuffer {
			gs[0].suspect(3)
		}
		gs[0].Close()
		gs[0].refused(io.EOF)
		got := drained(gs[0])
		if len(got) != eventBuffer || got[0].Kind != Suspected || got[0].Proc != 3 {
			t.Fatalf("%d events, the first %+v", len(got), got[0])
		}
	})
}

// A full buffer holds the link up, and nothing is lost or taken for a loss.
func TestSlowReaderLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, memnet.Config{Latency: time.Millisecond}, nil)
		gs := l.sealed(t)
		defer closeGroups(gs)
		const n = 3 * eventBuffer
		var b [4]byte
		for i := range n {
			binary.BigEndian.PutUint32(b[:], uint32(i))
			if err := gs[1].SendUp(b[:]); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		for i := range n {
			e := <-gs[0].Events()
			if e.Kind != FromChild || binary.BigEndian.Uint32(e.Payload) != uint32(i) {
				t.Fatalf("event %d: %+v", i, e)
			}
		}
	})
}

// One process dies at a random moment of the seal: everybody ends in bounded
// time, with the group (and the loss as an event at the neighbours) or with an
// error, and process 0 and the living others agree.
func TestLossWhileSealing(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			n := 2 + r.IntN(14)
			l := newLab(t, n, memnet.Config{Seed: seed, Latency: time.Millisecond, Jitter: 3 * time.Millisecond}, nil)
			victim := r.IntN(n)
			at := time.Duration(r.Int64N(int64(40 * time.Millisecond)))
			begin := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			gs, errs := make([]*Group, n), make([]error, n)
			var ends sync.WaitGroup
			for p, c := range l.cs {
				run := c.await
				if p == 0 {
					run = func(ctx context.Context) (*Group, error) { return c.seal(ctx, l.table) }
				}
				if p != victim {
					ends.Add(1)
				}
				wg.Go(func() {
					gs[p], errs[p] = run(ctx)
					if p != victim {
						ends.Done()
					}
				})
			}
			time.Sleep(at)
			l.procs[victim].Kill()
			orphaned := time.AfterFunc(30*time.Second, cancel) // whom nobody dialled waits on
			ends.Wait()
			took := time.Since(begin)
			orphaned.Stop()
			cancel()
			wg.Wait()
			if took > 31*time.Second {
				t.Errorf("seed %d: took %v", seed, took)
			}
			good, bad := 0, 0
			for p := range n {
				if p == victim {
					continue
				}
				if errs[p] == nil {
					good++
				} else {
					bad++
					if code := rank.ExitCode(errs[p]); code != 3 && code != 1 {
						t.Errorf("seed %d, process %d: %v", seed, p, errs[p])
					}
				}
			}
			// After process 0 said "sealed" a loss may still cut off those below the victim.
			if victim != 0 && errs[0] != nil && good > 0 {
				t.Errorf("seed %d: process 0 failed (%v), %d processes started", seed, errs[0], good)
			}
			if testing.Verbose() && seed < 10 {
				t.Logf("seed %d: %d processes, %d killed at %v: %d good, %d bad after %v: %v", seed, n, victim, at, good, bad, took, errs[(victim+1)%n])
			}
			closeGroups(gs)
			for p, c := range l.cs {
				if gs[p] == nil {
					c.close()
				}
			}
		})
	}
}

func TestSealNamesWhoIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4, memnet.Config{}, func(_ int, cfg *Config) { cfg.LivenessTimeout = time.Hour })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for _, p := range []int{1, 3} {
			wg.Go(func() {
				if _, err := l.cs[p].await(t.Context()); rank.ExitCode(err) != 3 || !strings.Contains(err.Error(), "process 2 (h002)") {
					t.Errorf("process %d: %v", p, err)
				}
			})
		}
		_, err := l.cs[0].seal(ctx, l.table)
		if rank.ExitCode(err) != 3 || !strings.Contains(err.Error(), "process 2 (h002)") || strings.Contains(err.Error(), "process 1") {
			t.Errorf("process 0: %v", err)
		}
		wg.Wait()
		for _, c := range l.cs {
			c.close()
		}
	})
}

// RANKSTORM_TRIALS sets how many sets of clocks are tried.
func TestClocksAlongTheTree(t *testing.T) {
	trials := uint64(15)
	if s := os.Getenv("RANKSTORM_TRIALS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		trials = n
	}
	for seed := range trials {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			n := 14
			clocks := make([]*labClock, n)
			l := newLab(t, n, memnet.Config{Seed: seed, Latency: 100 * time.Microsecond, Jitter: time.Millisecond}, func(p int, cfg *Config) {
				clocks[p] = cfg.Clock.(*labClock)
				clocks[p].skew = r.Int64N(2e12) - 1e12
				clocks[p].rate = (r.Float64()*2 - 1) * 14.9e-6
				cfg.TreeArity = 2
				cfg.Record.HostID = [16]byte{byte(p + 1)}
				switch p {
				case 1: // runs on the root's kernel
					cfg.Record.HostID = [16]byte{1}
					*clocks[p] = *clocks[0]
				case 6: // runs on its parent's, which is not the root's
					cfg.Record.HostID = [16]byte{3}
					*clocks[p] = *clocks[2]
				}
			})
			gs := l.sealed(t)
			defer closeGroups(gs)
			check := func(when string) {
				for p, g := range gs {
					for _, back := range []int64{0, 1e9, 20e9} {
						at := clocks[p].Now() - back
						offset, bound := g.OffsetAt(at)
						ago := float64(back) / (1 + clocks[p].rate)
						truth := clocks[0].Now() - clocks[p].Now() - int64(ago*(clocks[0].rate-clocks[p].rate))
						if d := offset - truth; max(d, -d) > bound+2 { // the truth above is rounded
							t.Errorf("seed %d %s: process %d, %d ns ago: offset %d, truth %d, bound %d", seed, when, p, back, offset, truth, bound)
						}
						if (p == 0 || g.table.Procs[p].HostID == g.table.Procs[0].HostID) && (offset != 0 || bound != 0) {
							t.Errorf("seed %d: process %d on the root's host has offset %d ± %d", seed, p, offset, bound)
						}
					}
				}
			}
			for round := range 3 {
				var wg sync.WaitGroup
				for _, p := range r.Perm(n) {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						defer cancel()
						if err := gs[p].SyncClock(ctx); err != nil {
							t.Errorf("process %d: %v", p, err)
						}
					})
				}
				wg.Wait()
				check(fmt.Sprintf("after sync %d", round))
				if _, bound := gs[13].Offset(); bound > 5e6 {
					t.Errorf("seed %d: bound %d ns right after the sync", seed, bound)
				}
				time.Sleep(time.Duration(1e9 + r.Int64N(60e9)))
				check(fmt.Sprintf("some time after sync %d", round))
			}
		})
	}
}

func TestSyncClockWithoutItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, memnet.Config{Latency: time.Millisecond}, nil)
		gs := l.sealed(t)
		defer closeGroups(gs)
		if _, bound := gs[1].Offset(); bound < 1e18 {
			t.Errorf("bound %d before the first sync", bound)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := gs[1].SyncClock(ctx) // process 0 does not call it
		if rank.ExitCode(err) != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		l.procs[0].Kill()
		if err := gs[1].SyncClock(t.Context()); rank.ExitCode(err) != 1 {
			t.Errorf("error %v", err)
		}
	})
}
