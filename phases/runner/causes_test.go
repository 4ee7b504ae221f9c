package runner

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport/sim"
)

// planted is a job of eight ranks on four hosts in which one thing is wrong.
type planted struct {
	rng  *rand.Rand
	spec phases.Spec
	fc   sim.FabricConfig
	slow func(*sim.Fabric)
}

const plantedRanks = 8

// names of the endpoints of all processes, or of those given.
func endpoints(only ...int) []string {
	var out []string
	for i := range plantedRanks {
		if len(only) == 0 || slices.Contains(only, i) {
			out = append(out, fmt.Sprintf("p%d", i))
		}
	}
	return out
}

func (p *planted) extra() time.Duration {
	return 8*time.Millisecond + time.Duration(p.rng.IntN(40))*time.Millisecond
}

func named(kind string, r int) func(collect.Cause) bool {
	return func(c collect.Cause) bool { return c.Kind == kind && c.Rank != nil && *c.Rank == rank.Rank(r) }
}

// Whole jobs over the simulated transport, through the real stamps, summaries
// and document: some of each cause, and as many clean ones; RANKSTORM_PLANTED says
// how many. What stands here is what simulated time can show;
// TestPlantedCausesAreNamed in collect has the rest.
func TestPlantedCausesInWholeJobs(t *testing.T) {
	plants := []struct {
		name  string
		plant func(*planted) func(collect.Cause) bool // what names it; nil: nothing may be said
	}{
		{"clean", func(*planted) func(collect.Cause) bool { return nil }},
		{"slow rank", func(p *planted) func(collect.Cause) bool {
			r := p.rng.IntN(plantedRanks)
			p.spec.Delays = []phases.Delay{{Rank: rank.Rank(r), Phase: phases.Connect, For: 5 * p.extra()}}
			return named("straggler", r)
		}},
		{"slow target", func(p *planted) func(collect.Cause) bool {
			r, extra := p.rng.IntN(plantedRanks), p.extra()
			p.slow = func(f *sim.Fabric) { f.Slow(endpoints(), endpoints(r), extra) }
			return named("slow_target", r)
		}},
		{"slow initiator", func(p *planted) func(collect.Cause) bool {
			r, extra := p.rng.IntN(plantedRanks), p.extra()
			p.slow = func(f *sim.Fabric) { f.Slow(endpoints(r), endpoints(), extra) }
			return named("slow_initiator", r)
		}},
		{"slow edge", func(p *planted) func(collect.Cause) bool {
			a, extra := p.rng.IntN(plantedRanks), p.extra()
			b := (a + 1 + p.rng.IntN(plantedRanks-1)) % plantedRanks
			p.slow = func(f *sim.Fabric) { f.Slow(endpoints(a), endpoints(b), extra) }
			return func(c collect.Cause) bool {
				return named("slow_edge", a)(c) && strings.Contains(c.Evidence, fmt.Sprintf(" → %d (", b))
			}
		}},
		{"overflow", func(p *planted) func(collect.Cause) bool {
			p.spec.Topology.Name, p.spec.Backlog = "incast", 2+p.rng.IntN(4)
			p.spec.Delays = []phases.Delay{{Rank: 0, Phase: phases.Connect, For: 300 * time.Millisecond}}
			return func(c collect.Cause) bool {
				return named("drops", 0)(c) && strings.Contains(c.Evidence, "waited for SYN retransmissions (1 s: ") && strings.Contains(c.Fix, "--backlog")
			}
		}},
		{"uneven start", func(p *planted) func(collect.Cause) bool {
			for r := range plantedRanks / 2 {
				p.spec.Delays = append(p.spec.Delays, phases.Delay{Rank: rank.Rank(2*r + p.rng.IntN(2)), Phase: phases.Connect, For: 40*time.Millisecond + 5*p.extra()})
			}
			return func(c collect.Cause) bool {
				return c.Kind == "uneven" && c.Phase == "connect" && *c.Count == plantedRanks/2
			}
		}},
	}
	each := 5
	if s := os.Getenv("RANKSTORM_PLANTED"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("RANKSTORM_PLANTED=%s: want jobs of each kind", s)
		}
		each = n
	}
	for i, plant := range plants {
		t.Run(plant.name, func(t *testing.T) {
			hit, silent := 0, 0
			for k := range each {
				seed := uint64(100*i + k)
				p := &planted{
					rng: rand.New(rand.NewPCG(seed, 5)),
					fc:  sim.FabricConfig{Seed: seed, Latency: 100 * time.Microsecond, Jitter: 300 * time.Microsecond, PerConnCost: 5 * time.Microsecond},
				}
				p.spec = spec(plantedRanks, func(s *phases.Spec) { s.Connections = 4 + p.rng.IntN(8) })
				is := plant.plant(p)
				synctest.Test(t, func(t *testing.T) {
					b := start(t, 4, p.spec, p.fc, func(_ int, cfg *Config) { cfg.CPUs = 2 })
					if p.slow != nil {
						p.slow(b.fabric)
					}
					causes := b.clean().Causes
					switch {
					case len(causes) == 0:
						silent++
					case is != nil && slices.ContainsFunc(causes, is):
						hit++
					}
					if is == nil && len(causes) > 0 || is != nil && !slices.ContainsFunc(causes, is) {
						t.Logf("seed %d: %+v", seed, causes)
					}
				})
			}
			t.Logf("%d of %d named, %d silent", hit, each, silent)
			if plant.name == "clean" && silent < each || plant.name != "clean" && 100*hit < 95*each {
				t.Errorf("%d of %d named, %d silent", hit, each, silent)
			}
		})
	}
}
