package runner

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport/sim"
)

// Sixteen processes are sixteen gossip members. A process that stops answering is suspected by gossip and lost when its
// control link has been silent for the liveness timeout; a killed one closes its link before gossip can notice. The
// document has both times.
func TestLossesInTheDocument(t *testing.T) {
	slow := spec(16, func(s *phases.Spec) {
		s.Connections, s.Shape = 10, phases.Shape{Kind: phases.Rate, PerS: 16 * 15 * 10 / 30} // half a minute
		s.LivenessTimeout = 10 * time.Second
	})
	t.Run("stopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// Long enough for gossip to be sure before the link is given up, whoever probes whom.
			patient := slow
			patient.LivenessTimeout = 25 * time.Second
			b := start(t, 16, patient, sim.FabricConfig{})
			time.Sleep(2 * time.Second)
			b.fabric.Pause("p5")
			b.procs[5].net.Stop()
			time.AfterFunc(40*time.Second, func() { b.kill(5) })
			b.wait()
			d := b.document(0)
			if d.Gossip.Members != 16 {
				t.Errorf("%d gossip members, want 16", d.Gossip.Members)
			}
			if len(d.Losses) != 1 || d.Losses[0].Proc != 5 || d.Losses[0].LinkNS == nil || d.Losses[0].GossipNS == nil {
				t.Fatalf("losses %+v, want process 5 with both times", d.Losses)
			}
			link, gossip := time.Duration(*d.Losses[0].LinkNS), time.Duration(*d.Losses[0].GossipNS)
			if gossip < 2*time.Second || gossip > link || link < 26*time.Second || link > 29*time.Second {
				t.Errorf("stopped at 2 s: gossip thought so at %v, the link was lost at %v", gossip, link)
			}
		})
	})
	t.Run("killed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, 16, slow, sim.FabricConfig{})
			time.Sleep(2 * time.Second)
			b.kill(5)
			b.wait()
			d := b.document(0)
			if len(d.Losses) != 1 || d.Losses[0].Proc != 5 || d.Losses[0].LinkNS == nil || time.Duration(*d.Losses[0].LinkNS) > 3*time.Second {
				t.Errorf("losses %+v, want process 5 lost by its link at 2 s", d.Losses)
			}
		})
	})
	// Who takes over says whom it takes over from: the same as the root says of others.
	t.Run("root killed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, 16, slow, sim.FabricConfig{})
			time.Sleep(2 * time.Second)
			b.kill(0)
			b.wait()
			b.procs[1].out = filepath.Join(b.dir, "1.partial.json")
			d := b.document(1)
			if len(d.Losses) != 1 || d.Losses[0].Proc != 0 || d.Losses[0].LinkNS == nil || time.Duration(*d.Losses[0].LinkNS) > 3*time.Second {
				t.Fatalf("losses %+v, want process 0 lost by its link at 2 s", d.Losses)
			}
			if d.Losses[0].Phase != "connect" || d.Losses[0].Host == "" {
				t.Errorf("loss %+v, want it in connect, on a host", d.Losses[0])
			}
		})
	})
	// So it is with the own parent and with the root, when both are gone.
	t.Run("root and parent killed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, 16, spec(16, func(s *phases.Spec) {
				s.Connections, s.Shape, s.TreeArity = 10, slow.Shape, 1 // a chain
			}), sim.FabricConfig{})
			time.Sleep(2 * time.Second)
			b.kill(0)
			b.kill(1)
			b.wait()
			b.procs[2].out = filepath.Join(b.dir, "2.partial.json")
			var gone []rank.Proc
			for _, l := range b.document(2).Losses {
				if l.LinkNS == nil {
					t.Errorf("loss %+v without a time", l)
				}
				gone = append(gone, l.Proc)
			}
			slices.Sort(gone)
			if !slices.Equal(gone, []rank.Proc{0, 1}) {
				t.Errorf("lost %v, want 0 and 1", gone)
			}
		})
	})
}
