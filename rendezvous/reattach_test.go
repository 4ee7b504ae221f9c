package rendezvous

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
)

// one waits for the next event of a kind; others that come first are lost.
func one(t *testing.T, g *Group, kind EventKind) Event {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		select {
		case e := <-g.Events():
			if e.Kind == kind {
				return e
			}
		case <-limit:
			t.Fatalf("process %d: no event of kind %d", g.Self(), kind)
		}
	}
}

// With 13 processes and arity 3: 0 → 1 2 3, 1 → 4 5 6, 2 → 7 8 9, 3 → 10 11 12.
func TestOrphansFindTheRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 13, memnet.Config{Latency: time.Millisecond}, nil)
		gs := l.sealed(t)
		defer closeGroups(gs)
		l.procs[1].Kill()
		for _, p := range []rank.Proc{4, 5, 6} {
			one(t, gs[p], ParentLost)
			gs[p].Reattach([]byte{byte(p)})
		}
		for range 3 {
			e := one(t, gs[0], Orphan)
			if len(e.Payload) != 1 || rank.Proc(e.Payload[0]) != e.Proc {
				t.Fatalf("process %d asks with %v", e.Proc, e.Payload)
			}
			if err := gs[0].Adopt(e.Proc); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range []rank.Proc{4, 5, 6} {
			if e := one(t, gs[p], Attached); e.Proc != 0 {
				t.Errorf("process %d hangs below %d", p, e.Proc)
			}
			if err := gs[p].SendUp([]byte("up")); err != nil {
				t.Error(err)
			}
			if e := one(t, gs[0], FromChild); e.Proc != p || string(e.Payload) != "up" {
				t.Errorf("the root heard %+v", e)
			}
		}
		if err := gs[0].Broadcast([]byte("all")); err != nil {
			t.Error(err)
		}
		if err := gs[0].SendDown(5, []byte("one")); err != nil {
			t.Error(err)
		}
		for _, p := range []rank.Proc{2, 4, 5} {
			if e := one(t, gs[p], FromParent); string(e.Payload) != "all" || e.Proc != 0 {
				t.Errorf("process %d heard %+v", p, e)
			}
		}
		if e := one(t, gs[5], FromParent); string(e.Payload) != "one" {
			t.Errorf("process 5 heard %+v", e)
		}
		if err := gs[0].Adopt(7); err == nil {
			t.Error("adopted a process that has not asked")
		}
		// The new links are links: they are watched, and their end is told.
		time.Sleep(time.Minute)
		l.procs[5].Kill()
		if e := one(t, gs[0], ChildLost); e.Proc != 5 {
			t.Errorf("lost %+v", e)
		}
	})
}

func TestTheLowestLivingIsTheSuccessor(t *testing.T) {
	for name, fail := range map[string]func(p *memnet.Proc){"killed": (*memnet.Proc).Kill, "stopped": (*memnet.Proc).Stop} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, 13, memnet.Config{Latency: time.Millisecond}, func(_ int, cfg *Config) { cfg.LivenessTimeout = 4 * time.Second })
				gs := l.sealed(t)
				defer closeGroups(gs)
				fail(l.procs[0])
				fail(l.procs[1])
				defer l.procs[0].Continue()
				defer l.procs[1].Continue()
				for _, p := range []rank.Proc{2, 3, 4} { // 2 and 3 hung below 0, 4 below 1
					one(t, gs[p], ParentLost)
					gs[p].Reattach([]byte("take me"))
				}
				e := one(t, gs[2], Successor)
				if len(e.Procs) != 2 || e.Procs[0] != 0 || e.Procs[1] != 1 {
					t.Errorf("gone are %v", e.Procs)
				}
				if err := gs[2].SendUp(nil); err == nil {
					t.Error("the successor has a parent")
				}
				for range 2 {
					if err := gs[2].Adopt(one(t, gs[2], Orphan).Proc); err != nil {
						t.Error(err)
					}
				}
				for _, p := range []rank.Proc{3, 4} {
					if e := one(t, gs[p], Attached); e.Proc != 2 {
						t.Errorf("process %d hangs below %d", p, e.Proc)
					}
				}
			})
		})
	}
}

// The lowest living process goes before it has decided, as one does that was stopped for too long and goes on: the next
// one is asked, and is not taken for gone.
func TestTheNextIsAskedIfTheLowestGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 13, memnet.Config{Latency: time.Millisecond}, nil)
		gs := l.sealed(t)
		defer closeGroups(gs)
		gs[4].Reattach([]byte("take me"))
		one(t, gs[0], Orphan)
		l.procs[0].Kill()
		if err := gs[1].Adopt(one(t, gs[1], Orphan).Proc); err != nil {
			t.Error(err)
		}
		if e := one(t, gs[4], Attached); e.Proc != 1 {
			t.Errorf("process 4 hangs below %d", e.Proc)
		}
		gs[3].Reattach([]byte("me too"))
		one(t, gs[1], Orphan)
		l.procs[1].Kill()
		l.procs[2].Kill()
		if e := one(t, gs[3], Successor); len(e.Procs) != 3 {
			t.Errorf("gone are %v", e.Procs)
		}
	})
}

func TestTheGivenUpAreTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4, memnet.Config{Latency: time.Millisecond}, nil)
		gs := l.sealed(t)
		defer closeGroups(gs)
		gs[3].Reattach([]byte("again"))
		e := one(t, gs[0], Orphan)
		why := rank.Errorf(rank.KindLost, "silent for too long")
		why.Proc = 3
		gs[0].TurnAway(e.Proc, why)
		got := one(t, gs[3], GivenUp)
		var cause *rank.Error
		if !errors.As(got.Err, &cause) || cause.Proc != 3 || !strings.Contains(cause.Error(), "silent for too long") {
			t.Errorf("told %v", got.Err)
		}
	})
}

// Whoever does not know the table and its own place in it is no orphan.
func TestStrangersAreNoOrphans(t *testing.T) {
	for name, change := range map[string]func(h *orphanHello){
		"nonce":   func(h *orphanHello) { h.Nonce[0]++ },
		"digest":  func(h *orphanHello) { h.Digest[0]++ },
		"job":     func(h *orphanHello) { h.Job[0]++ },
		"for":     func(h *orphanHello) { h.To = 2 },
		"itself":  func(h *orphanHello) { h.Proc = 0 },
		"nobody":  func(h *orphanHello) { h.Proc = 99 },
		"below 0": func(h *orphanHello) { h.Proc = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, 4, memnet.Config{Latency: time.Millisecond}, nil)
				gs := l.sealed(t)
				defer closeGroups(gs)
				h := orphanHello{Proc: 3, Nonce: gs[3].table.Procs[3].Nonce, To: 0, Digest: gs[3].table.Digest, Job: jobDigest(l.cs[3].cfg)}
				change(&h)
				conn, err := l.cs[3].dial(t.Context(), kindLink, l.table.Procs[0].Control[0])
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := writeMessage(conn, frameOrphan, h); err != nil {
					t.Fatal(err)
				}
				if err := writeFrame(conn, frameAsk, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if got := drained(gs[0]); len(got) > 0 {
					t.Errorf("events %+v", got)
				}
			})
		})
	}
}

// To its neighbours a process that abandons the job is lost.
func TestAbandonIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 13, memnet.Config{Latency: time.Millisecond}, nil)
		gs := l.sealed(t)
		defer closeGroups(gs)
		gs[1].Abandon()
		gs[1].Close()
		if e := one(t, gs[0], ChildLost); e.Proc != 1 {
			t.Errorf("lost %+v", e)
		}
		if e := one(t, gs[4], ParentLost); e.Proc != 1 {
			t.Errorf("lost %+v", e)
		}
	})
}
