package runner

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/transport/sim"
)

// lostInHold is the document of a job of four that loses a process while all hold.
func lostInHold(t *testing.T, phase phases.Token, victim, writer int) *collect.Document {
	t.Helper()
	b := start(t, 2, spec(4, func(s *phases.Spec) { s.Holds = []phases.Hold{{Phase: phase, For: 3 * time.Second}} }), sim.FabricConfig{})
	time.Sleep(2 * time.Second)
	b.kill(victim)
	b.wait()
	if writer != 0 {
		b.procs[writer].out = filepath.Join(b.dir, "1.partial.json")
	}
	d := b.document(writer)
	agree(t, d)
	return d
}

// A process dies while all hold after connect. The connections to it had been established: no step of them failed, they
// broke. What the plan asked for stays what it was, whoever says so.
func TestConnectionsThatBreakInAHold(t *testing.T) {
	for _, test := range []struct {
		name           string
		victim, writer int
	}{{"one of four", 2, 0}, {"the root", 0, 1}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := lostInHold(t, phases.Connect, test.victim, test.writer)
				want := collect.Conns{Planned: 12, Started: 9, Established: 9, Accepted: 9, Broken: 3}
				if d.Connections != want {
					t.Errorf("connections %+v, want %+v", d.Connections, want)
				}
				for _, e := range d.Errors {
					if e.Phase != "connect" || e.Step != "" || int(*e.Peer) != test.victim {
						t.Errorf("error %+v, want one of connect, of no step, to rank %d", e, test.victim)
					}
				}
				for _, e := range d.EdgeList {
					if broken := int(e.To) == test.victim; e.Established != 1 || e.Failed != 0 || (e.Broken == 1) != broken {
						t.Errorf("edge %+v", e)
					}
				}
				if len(d.Errors) != 3 || len(d.EdgeList) != 9 {
					t.Errorf("%d errors, %d edges, want 3 and 9", len(d.Errors), len(d.EdgeList))
				}
				if len(d.Causes) != 1 || d.Causes[0].Kind != "broken" || *d.Causes[0].Count != 3 || int(*d.Causes[0].Rank) != test.victim {
					t.Errorf("causes %+v, want one: 3 broken to rank %d", d.Causes, test.victim)
				}
			})
		})
	}
}

// A job that ends before its first round has a plan all the same.
func TestLossBeforeTheFirstRound(t *testing.T) {
	for _, test := range []struct{ victim, writer int }{{2, 0}, {0, 1}} {
		synctest.Test(t, func(t *testing.T) {
			d := lostInHold(t, phases.ClockSync, test.victim, test.writer)
			if want := (collect.Conns{Planned: 12}); d.Connections != want {
				t.Errorf("process %d lost: connections %+v, want %+v", test.victim, d.Connections, want)
			}
		})
	}
}

// agree holds the connections of any document against its steps and the plan.
func agree(t *testing.T, d *collect.Document) {
	t.Helper()
	var failures, broken int64
	for _, p := range d.Phases {
		broken += p.Broken
		for _, s := range p.Steps {
			if s.Side == collect.SideInitiator {
				failures += s.Failed
			}
		}
	}
	c := d.Connections
	if c.Failed+c.Dead != failures || c.Broken != broken {
		t.Errorf("%d failed and %d dead connections, but %d failures of steps; %d broken, in phases %d", c.Failed, c.Dead, failures, c.Broken, broken)
	}
	if want := d.Edges * d.ConnsPerEdge * max(1, d.RoundsRun); c.Planned != want {
		t.Errorf("%d planned, want %d of %d rounds", c.Planned, want, d.RoundsRun)
	}
	if c.Established > c.Started || c.Started > c.Planned || c.Accepted > c.Planned || c.Failed+c.Dead > c.Planned || c.Broken > c.Established {
		t.Errorf("connections %+v, which cannot be", c)
	}
	if at := d.Progress; at != nil && (at.Done > at.Total || at.Total > 2*c.Planned) { // of both ends in destroy
		t.Errorf("stopped at %+v of %d planned", at, c.Planned)
	}
}
