package rendezvous

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
)

func TestAgents(t *testing.T) {
	for _, c := range []struct {
		procs, hosts, perAgent, above int
		members, agents               int
	}{
		{16, 2, 0, 0, 16, 0},
		{17, 1, 0, 0, 1, 1},
		{40, 4, 0, 0, 4, 4},
		{40, 1, 8, 0, 5, 5},
		{6, 2, 0, 4, 2, 2},
		{20, 20, 0, 0, 20, 0},
		{18, 2, 1, 0, 18, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newJoinLab(t, c.hosts, memnet.Config{Latency: time.Millisecond})
			cfgs := make([]Config, c.procs)
			for i := range cfgs {
				cfgs[i] = l.config(i, c.procs)
				cfgs[i].ProcsPerAgent, cfgs[i].AgentsAbove = c.perAgent, c.above
			}
			groups := l.formed(l.start(t.Context(), cfgs, nil), c.procs)
			for _, g := range groups {
				// The controller is a member also where another process is its host's agent.
				s := g.Stats()
				if g.Self() == 0 && (s.Members < c.members || s.Members > c.members+1 || s.Agents != c.agents) {
					t.Errorf("%+v: %d members, %d agents", c, s.Members, s.Agents)
				}
				if c.hosts > 1 && s.GatherNS <= 0 || s.Controller != "n0:7471" || s.Root != (g.Self() == 0) {
					t.Errorf("%+v: stats %+v", c, s)
				}
			}
			closeTogether(groups)
			l.clean(cfgs)
		})
	}
}

func TestHostSocketOwnedByStranger(t *testing.T) {
	for name, stranger := range map[string]func(net.Conn){
		"mute":      func(net.Conn) {},
		"garbage":   func(c net.Conn) { c.Write([]byte("what do you want?\n")) },
		"hangs up":  func(c net.Conn) { c.Close() },
		"wrong yes": func(c net.Conn) { writeFrame(c, frameWelcome, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const procs = 18
				l := newJoinLab(t, 1, memnet.Config{})
				foreign := l.hosts[0].Proc()
				ln, _, err := foreign.HostSocket(t.Context(), hostSocketName(jobHash("lab"), 0))
				if err != nil || ln == nil {
					t.Fatal(err)
				}
				go func() {
					for {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						stranger(c)
					}
				}()
				cfgs := make([]Config, procs)
				for i := range cfgs {
					cfgs[i] = l.config(i, procs)
				}
				groups := l.formed(l.start(t.Context(), cfgs, nil), procs)
				for _, g := range groups {
					if s := g.Stats(); g.Self() == 0 && s.Members != procs {
						t.Errorf("%d members", s.Members)
					}
				}
				closeTogether(groups)
				foreign.Kill()
				l.clean(cfgs)
			})
		})
	}
}

func TestProcessZeroDiesDuringTheSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 3, memnet.Config{Latency: time.Millisecond})
		l.net.Cut(l.hosts[1], l.hosts[2]) // so that the seal takes a while
		cfgs := []Config{l.config(0, 3), l.config(1, 3), l.config(2, 3)}
		for i, number := range []int{1, 0, 2} {
			cfgs[i].Record.LauncherProc = number
		}
		results := l.start(t.Context(), cfgs, nil)
		time.Sleep(time.Second)
		killed := time.Now()
		cfgs[1].Network.(*memnet.Proc).Kill()
		for range cfgs {
			r := <-results
			if r.i == 1 {
				continue
			}
			var e *rank.Error
			if !errors.As(r.err, &e) || e.Kind != rank.KindLost || e.Proc != 0 || !strings.Contains(r.err.Error(), "process 0 (n1)") {
				t.Errorf("process %d got %v", r.i, r.err)
			}
			if took := time.Since(killed); took > 3*time.Second {
				t.Errorf("process %d heard of it after %v", r.i, took)
			}
		}
		l.clean(cfgs)
	})
}

func TestGossipSuspectsTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 4, memnet.Config{Latency: time.Millisecond})
		cfgs := make([]Config, 4)
		for i := range cfgs {
			cfgs[i] = l.config(i, 4)
			cfgs[i].TreeArity = 1 // a chain: most processes have no link to the dead one
			cfgs[i].Record.LauncherProc = i
		}
		groups := l.formed(l.start(t.Context(), cfgs, nil), 4)
		l.hosts[3].Kill()
		time.Sleep(2 * time.Minute)
		suspected := 0
		for _, g := range groups {
			for len(g.Events()) > 0 {
				if ev := <-g.Events(); ev.Kind == Suspected && ev.Proc == 3 && g.Self() < 2 {
					suspected++
				}
			}
		}
		if suspected < 2 {
			t.Errorf("%d processes far from the dead one suspect it", suspected)
		}
		closeTogether(groups)
		l.clean(cfgs)
	})
}
