package runner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
	"rankstorm/transport/sim"
)

// An inner process is killed while the last phase is held: whoever lives is in the figures of that phase.
func TestSubtreesFiguresArriveFromTheLastPhase(t *testing.T) {
	for _, seed := range seeds(share(t, 40)) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const procs = 18
				rng := rand.New(rand.NewPCG(seed, 3))
				b := startOver(t, 1+int(seed%3), spec(procs, func(s *phases.Spec) {
					s.TreeArity, s.Topology.Name, s.PhaseTimeout = 2, "hypercube", 5*time.Second
					s.Holds = []phases.Hold{{Phase: phases.Destroy, For: 12 * time.Second}}
				}), sim.FabricConfig{}, memnet.Config{Seed: seed, Latency: 100 * time.Microsecond, Jitter: time.Duration(rng.IntN(40)) * time.Millisecond})
				time.Sleep(4*time.Second + time.Duration(rng.Int64N(int64(time.Second))))
				const victim = 1
				b.kill(victim)
				b.wait()
				d := b.document(0)
				var seen []rank.Rank
				for _, ph := range d.Phases {
					if ph.Phase == "destroy" {
						for _, r := range ph.Ranks {
							seen = append(seen, r.Rank)
						}
					}
				}
				for r := range rank.Rank(procs) {
					if r != victim && !slices.Contains(seen, r) {
						t.Errorf("rank %d has no figures of destroy: %v\n%s", r, b.procs[0].err, b.procs[0].stderr.String())
					}
				}
			})
		})
		if !ok {
			t.Fatalf("replay with -run TestSubtreesFigures -seed %d", seed)
		}
	}
}
