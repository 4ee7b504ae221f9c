package runner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/phases"
	"rankstorm/rendezvous"
	"rankstorm/transport/sim"
)

// Whole jobs through the real knock, gossip, tree and runner, up to a thousand
// processes: what they carry and how long a barrier takes follows the model
// that rankstorm plan prints. On the fake clock only the network takes time.
func TestGrowthFollowsTheModel(t *testing.T) {
	for _, size := range []struct{ procs, hosts int }{{10, 10}, {100, 100}, {96, 12}, {300, 300}, {1000, 125}} {
		t.Run(fmt.Sprintf("%d on %d", size.procs, size.hosts), func(t *testing.T) {
			if most := max(100, share(t, 1000)); size.procs > most {
				t.Skipf("a job of this size takes seconds; now none above %d processes", most)
			}
			synctest.Test(t, func(t *testing.T) {
				s := spec(size.procs, func(s *phases.Spec) { s.Topology.Name = "ring" })
				d := start(t, size.hosts, s, sim.FabricConfig{}).clean()
				whole(t, d, int64(size.procs))
				c := rendezvous.CostOf(rendezvous.Shape{
					Procs: size.procs, ProcsPerHost: size.procs / size.hosts, TreeArity: s.TreeArity, ProcsPerAgent: s.ProcsPerAgent, AgentsAbove: rendezvous.DefaultAgentsAbove,
				})
				// The controller is a member even where another process is its host's agent.
				if got, want := d.Gossip.Members, int64(c.Members); got < want || got > want+1 {
					t.Errorf("%d gossip members, model %d", got, want)
				}
				// The barrier of the first slot may wait for processes that still hear of the seal.
				for _, b := range d.Barriers[1:] {
					if got, want := time.Duration(*b.BarrierNS), c.Barrier(rendezvous.Rates{Hop: 50 * time.Microsecond}); got != want {
						t.Errorf("barrier %d took %v, model %v", b.Seq, got, want)
					}
				}
				// What follows the last summary (it and the bye) is not in the document.
				slots := int64(len(d.Barriers))
				if got, want := d.Control.Messages, c.SlotMessages*slots; got > want || got < want-c.SlotMessages/2 {
					t.Errorf("%d messages in %d slots, model %d", got, slots, want)
				}
				// A slot's collect may still be on its way down when the summary is made: it counts in the next slot.
				if got, want := d.Control.MostMessages, int64(6*c.MostLinks); got < want || got > want+int64(c.MostLinks) {
					t.Errorf("at most %d messages of one process in one slot, model %d", got, want)
				}
				if got, want := d.Control.MostBytes, int64(size.procs)*rendezvous.SummaryBytesPerRank+64<<10; got > want {
					t.Errorf("at most %d bytes of one process in one slot, model %d", got, want)
				}
				t.Logf("%d messages, %d bytes; one process in one slot at most %d messages, %d bytes", d.Control.Messages, d.Control.Bytes, d.Control.MostMessages, d.Control.MostBytes)
			})
		})
	}
}
