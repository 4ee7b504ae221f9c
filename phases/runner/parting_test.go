package runner

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
	"rankstorm/transport/sim"
)

// A process is killed in the milliseconds around the end of the job. Whoever lives leaves with the same exit code: 0 with
// the root's document if the end was decided, 1 if not. The clock is fake and the network seeded, so a seed is one moment.
func TestKilledAroundTheEnd(t *testing.T) {
	all := seeds(share(t, 100))
	mc := memnet.Config{Latency: 2 * time.Millisecond}
	job := func(t *testing.T, seed uint64) *bubble {
		mc := mc
		mc.Seed = seed
		return startOver(t, 3, spec(9, func(s *phases.Spec) { s.TreeArity, s.Topology.Name = 2, "ring" }), sim.FabricConfig{}, mc)
	}
	codes := map[int]int{}
	for _, seed := range all {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var end time.Duration // of the undisturbed job
			synctest.Test(t, func(t *testing.T) {
				b := job(t, seed)
				b.clean()
				for _, p := range b.procs {
					end = max(end, p.ended)
				}
			})
			rng := rand.New(rand.NewPCG(seed, 9))
			victim := []int{0, 1, 2, rng.IntN(9)}[seed%4]
			synctest.Test(t, func(t *testing.T) {
				b := job(t, seed)
				time.Sleep(end - 35*time.Millisecond + time.Duration(rng.Int64N(int64(36*time.Millisecond))))
				b.kill(victim)
				b.wait()
				survivor := b.procs[1-min(victim, 1)]
				if victim > 0 {
					survivor = b.procs[0]
				}
				code := ExitCode(survivor.err)
				codes[code]++
				for _, p := range b.procs {
					if p.i == victim {
						continue
					}
					if got := ExitCode(p.err); got != code {
						t.Errorf("victim %d: process %d: exit %d, process %d: %d\n%v\n%v", victim, p.i, got, survivor.i, code, p.err, survivor.err)
					}
					if most := end + 20*time.Second; p.ended > most {
						t.Errorf("victim %d: process %d ended after %v, the undisturbed job after %v", victim, p.i, p.ended, end)
					}
				}
				name := "0.json"
				if victim == 0 && code == 1 {
					name = "1.partial.json"
				}
				if _, err := os.Stat(filepath.Join(b.dir, name)); err != nil {
					t.Errorf("victim %d, exit %d: %v", victim, code, err)
				}
			})
		})
		if !ok {
			t.Fatalf("replay with -run TestKilledAroundTheEnd -seed %d", seed)
		}
	}
	if jobs := len(all); jobs >= 25 && (codes[0] < jobs/10 || codes[1] < jobs/10) {
		t.Errorf("exit codes %v: the moments lie on one side only", codes)
	}
	t.Logf("exit codes: %v", codes)
}

// A hold of the phases before the lockstep ends with a loss, at everybody and at once, however long it was to be.
func TestHoldsBeforeTheLockstepEndWithALoss(t *testing.T) {
	for _, ph := range []phases.Token{phases.Seal, phases.ClockSync} {
		for _, victim := range []int{0, 1, 8} {
			t.Run(fmt.Sprint(ph, " ", victim), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := start(t, 3, spec(9, func(s *phases.Spec) {
						s.TreeArity, s.Topology.Name = 2, "ring"
						s.Holds = []phases.Hold{{Phase: ph, For: 10 * time.Minute}}
					}), sim.FabricConfig{})
					time.Sleep(2 * time.Minute)
					for _, p := range b.procs {
						if p.over.Load() || !strings.Contains(p.stderr.String(), fmt.Sprintf("phase %s for 10m0s", ph)) {
							t.Fatalf("process %d has ended (%v) or does not hold: %s", p.i, p.over.Load(), p.stderr.String())
						}
					}
					b.kill(victim)
					b.wait()
					for _, p := range b.procs {
						if p.i == victim {
							continue
						}
						var e *rank.Error
						if !errors.As(p.err, &e) || ExitCode(p.err) != 1 || e.Kind != rank.KindLost || int(e.Proc) != victim || e.Phase != string(ph) || p.ended > 2*time.Minute+8*time.Second {
							t.Errorf("process %d after %v: %v", p.i, p.ended, p.err)
						}
					}
				})
			})
		}
		t.Run(string(ph)+" goes on", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, 2, spec(4, func(s *phases.Spec) {
					s.PhaseTimeout = 5 * time.Second
					s.Holds = []phases.Hold{{Phase: ph, For: time.Minute}}
				}), sim.FabricConfig{})
				whole(t, b.clean(), 12)
				if b.procs[3].ended < time.Minute {
					t.Errorf("ended after %v: not held", b.procs[3].ended)
				}
			})
		})
	}
}
