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
	do   func(*bubble) // while the job runs
	// starve: who stands still waits for a CPU
	starve bool
}

// hold makes the job hold for a second in the phase before connect, and connect for as long.
func (p *planted) hold() {
	p.spec.Holds = []phases.Hold{{Phase: phases.QP, For: time.Second}}
	p.spec.Shape = phases.Shape{Kind: phases.Rate, PerS: float64(plantedRanks * (plantedRanks - 1) * p.spec.Connections)}
}

// stop makes processes stand still for lasts, from 200 to 500 ms after the hold began and later.
func (p *planted) stop(later time.Duration, procs ...int) (lasts time.Duration) {
	at := later + 200*time.Millisecond + time.Duration(p.rng.Int64N(int64(300*time.Millisecond)))
	lasts = 250*time.Millisecond + time.Duration(p.rng.Int64N(int64(200*time.Millisecond)))
	p.do = func(b *bubble) {
		for !strings.Contains(b.procs[0].stderr.String(), "holding rank") {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(at)
		for _, i := range procs {
			b.stop(i)
		}
		time.Sleep(lasts)
		for _, i := range procs {
			b.goOn(i)
		}
	}
	return lasts
}

// stopped is the only cause, and names a stop that lasted so long: of a rank or, below 0, of all ranks of a host.
func stopped(r int, host, begin string, lasts time.Duration) func([]collect.Cause) bool {
	return func(list []collect.Cause) bool {
		if len(list) != 1 {
			return false
		}
		c := list[0]
		who := r < 0 && c.Rank == nil && *c.Count == 2 || c.Rank != nil && *c.Rank == rank.Rank(r)
		return c.Kind == "stopped" && who && c.Host == host && strings.HasPrefix(c.Evidence, begin) &&
			*c.ValueNS >= int64(lasts-beat) && *c.ValueNS <= int64(lasts)
	}
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

// among says that one of the causes is it.
func among(is func(collect.Cause) bool) func([]collect.Cause) bool {
	return func(list []collect.Cause) bool { return slices.ContainsFunc(list, is) }
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
		plant func(*planted) func([]collect.Cause) bool // the causes that name it; nil: nothing may be said
	}{
		{"clean", func(*planted) func([]collect.Cause) bool { return nil }},
		{"stopped in connect", func(p *planted) func([]collect.Cause) bool {
			p.hold()
			r := p.rng.IntN(plantedRanks)
			return stopped(r, fmt.Sprintf("n%d", r/2), fmt.Sprintf("connect: rank %d ", r), p.stop(time.Second, r))
		}},
		{"stopped between phases", func(p *planted) func([]collect.Cause) bool {
			p.hold()
			r := p.rng.IntN(plantedRanks)
			return stopped(r, fmt.Sprintf("n%d", r/2), fmt.Sprintf("after qp: rank %d ", r), p.stop(0, r))
		}},
		{"stopped host in connect", func(p *planted) func([]collect.Cause) bool {
			p.hold()
			h := p.rng.IntN(plantedRanks / 2)
			return stopped(-1, fmt.Sprintf("n%d", h), fmt.Sprintf("connect: all 2 ranks of host n%d ", h), p.stop(time.Second, 2*h, 2*h+1))
		}},
		{"stopped host between phases", func(p *planted) func([]collect.Cause) bool {
			p.hold()
			h := p.rng.IntN(plantedRanks / 2)
			return stopped(-1, fmt.Sprintf("n%d", h), fmt.Sprintf("after qp: all 2 ranks of host n%d ", h), p.stop(0, 2*h, 2*h+1))
		}},
		{"starved host", func(p *planted) func([]collect.Cause) bool {
			p.hold()
			p.starve = true
			h := p.rng.IntN(plantedRanks / 2)
			p.stop(time.Second, 2*h, 2*h+1)
			return func(list []collect.Cause) bool {
				return len(list) == 1 && list[0].Kind == "starved" && list[0].Host == fmt.Sprintf("n%d", h) && strings.Contains(list[0].Evidence, " (its process waited ")
			}
		}},
		{"starved between phases", func(p *planted) func([]collect.Cause) bool { // costs nobody's figures
			p.hold()
			p.starve = true
			p.stop(0, p.rng.IntN(plantedRanks))
			return nil
		}},
		{"slow rank", func(p *planted) func([]collect.Cause) bool {
			r := p.rng.IntN(plantedRanks)
			p.spec.Delays = []phases.Delay{{Rank: rank.Rank(r), Phase: phases.Connect, For: 5 * p.extra()}}
			return among(named("straggler", r))
		}},
		{"slow target", func(p *planted) func([]collect.Cause) bool {
			r, extra := p.rng.IntN(plantedRanks), p.extra()
			p.slow = func(f *sim.Fabric) { f.Slow(endpoints(), endpoints(r), extra) }
			return among(named("slow_target", r))
		}},
		{"slow initiator", func(p *planted) func([]collect.Cause) bool {
			r, extra := p.rng.IntN(plantedRanks), p.extra()
			p.slow = func(f *sim.Fabric) { f.Slow(endpoints(r), endpoints(), extra) }
			return among(named("slow_initiator", r))
		}},
		{"slow edge", func(p *planted) func([]collect.Cause) bool {
			a, extra := p.rng.IntN(plantedRanks), p.extra()
			b := (a + 1 + p.rng.IntN(plantedRanks-1)) % plantedRanks
			p.slow = func(f *sim.Fabric) { f.Slow(endpoints(a), endpoints(b), extra) }
			return among(func(c collect.Cause) bool {
				return named("slow_edge", a)(c) && strings.Contains(c.Evidence, fmt.Sprintf(" → %d (", b))
			})
		}},
		{"overflow", func(p *planted) func([]collect.Cause) bool {
			p.spec.Topology.Name, p.spec.Backlog = "incast", 2+p.rng.IntN(4)
			p.spec.Delays = []phases.Delay{{Rank: 0, Phase: phases.Connect, For: 300 * time.Millisecond}}
			return among(func(c collect.Cause) bool {
				return named("drops", 0)(c) && strings.Contains(c.Evidence, "waited for SYN retransmissions (1 s: ") && strings.Contains(c.Fix, "--backlog")
			})
		}},
		{"uneven start", func(p *planted) func([]collect.Cause) bool {
			for r := range plantedRanks / 2 {
				p.spec.Delays = append(p.spec.Delays, phases.Delay{Rank: rank.Rank(2*r + p.rng.IntN(2)), Phase: phases.Connect, For: 40*time.Millisecond + 5*p.extra()})
			}
			return among(func(c collect.Cause) bool {
				return c.Kind == "uneven" && c.Phase == "connect" && *c.Count == plantedRanks/2
			})
		}},
	}
	each := plantedJobs(t, 5)
	for i, plant := range plants {
		t.Run(plant.name, func(t *testing.T) {
			hit, silent, quiet := 0, 0, false
			for k := range each {
				seed := uint64(100*i + k)
				p := &planted{
					rng: rand.New(rand.NewPCG(seed, 5)),
					fc:  sim.FabricConfig{Seed: seed, Latency: 100 * time.Microsecond, Jitter: 300 * time.Microsecond, PerConnCost: 5 * time.Microsecond},
				}
				p.spec = spec(plantedRanks, func(s *phases.Spec) { s.Connections = 4 + p.rng.IntN(8) })
				is := plant.plant(p)
				quiet = is == nil
				synctest.Test(t, func(t *testing.T) {
					b := start(t, 4, p.spec, p.fc, func(_ int, cfg *Config) {
						cfg.CPUs, cfg.SchedStat = 2, cfg.Clock.(*haltClock).threads(p.starve)
					})
					if p.slow != nil {
						p.slow(b.fabric)
					}
					if p.do != nil {
						p.do(b)
					}
					causes := b.clean().Causes
					switch {
					case len(causes) == 0:
						silent++
					case is != nil && is(causes):
						hit++
					}
					if is == nil && len(causes) > 0 || is != nil && !is(causes) {
						t.Logf("seed %d: %+v", seed, causes)
					}
				})
			}
			t.Logf("%d of %d named, %d silent", hit, each, silent)
			if quiet && silent < each || !quiet && 100*hit < 95*each {
				t.Errorf("%d of %d named, %d silent", hit, each, silent)
			}
		})
	}
}

// plantedJobs of each kind: RANKSTORM_PLANTED, or so many.
func plantedJobs(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv("RANKSTORM_PLANTED"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 {
			t.Fatalf("RANKSTORM_PLANTED=%s: want jobs of each kind", s)
		}
	}
	return n
}

// A slow target is found by all its edges where the document does not list them all.
func TestSlowTargetOfAJobWithManyEdges(t *testing.T) {
	const ranks = 110
	var all []string
	for i := range ranks {
		all = append(all, fmt.Sprintf("p%d", i))
	}
	for seed := range uint64(plantedJobs(t, 1)) {
		rng := rand.New(rand.NewPCG(seed, 6))
		slow, extra := rng.IntN(ranks), 20*time.Millisecond+time.Duration(rng.IntN(30))*time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			fc := sim.FabricConfig{Seed: seed, Latency: 100 * time.Microsecond, Jitter: 300 * time.Microsecond, PerConnCost: 5 * time.Microsecond}
			b := start(t, ranks/2, spec(ranks, nil), fc, func(_ int, cfg *Config) { cfg.CPUs = 2 })
			b.fabric.Slow(all, all[slow:slow+1], extra)
			d := b.clean()
			if len(d.TargetSums) != ranks || d.EdgesMore == 0 {
				t.Errorf("seed %d: %d sums of targets, %d edges left out", seed, len(d.TargetSums), d.EdgesMore)
			}
			if len(d.Causes) != 1 || !named("slow_target", slow)(d.Causes[0]) || !strings.Contains(d.Causes[0].Evidence, "over all its 109 edges") {
				t.Errorf("seed %d: want slow target %d: %+v", seed, slow, d.Causes)
			}
		})
	}
}
