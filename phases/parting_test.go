package phases

import (
	"testing"
	"time"
)

// Processes are killed while the job ends, at any moment from the decision on: all who live leave with one exit code,
// which is the root's unless the root died before anybody had heard of it.
func TestEndIsTheSameForAll(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(400) {
		spec := DefaultSpec()
		j := newSimJob(t, seed, 2+int(seed%30), 1+int(seed%4), spec)
		rootDies := false
		var ended Time
		j.onEnd = func() {
			ended = j.now
			j.procs[0].late = seed%7 == 0
			for n := range 1 + seed%2 {
				victim := j.procs[j.rng.IntN(len(j.procs))]
				if n == 0 && seed%3 == 0 {
					victim = j.procs[j.rng.IntN(min(len(j.procs), 3))] // the root and those next to it
				}
				rootDies = rootDies || victim.p == 0
				j.after(time.Duration(60+10*len(j.procs)/(1+int(seed%4)))*time.Millisecond, victim.kill)
			}
		}
		j.run(j.longest())
		code, first := -1, -1
		for _, s := range j.procs {
			switch {
			case s.dead:
				continue
			case !s.gone:
				t.Fatalf("seed %d: process %d is still there", seed, s.p)
			case code < 0:
				code, first = s.exit.Code, int(s.p)
			case s.exit.Code != code:
				t.Errorf("seed %d: process %d of %d leaves with %d, process %d with %d", seed, s.p, len(j.procs), s.exit.Code, first, code)
			}
			limits := j.limits
			if most := limits.Report + 2*limits.Orphans + 2*limits.Abort + limits.Search; s.exitAt > ended+int64(most) {
				t.Errorf("seed %d: process %d left %v after the end was decided", seed, s.p, time.Duration(s.exitAt-ended))
			}
			if s.exit.Code != 0 && !rootDies {
				t.Errorf("seed %d: the root lives, and the figures were complete, but process %d leaves with %d: %v", seed, s.p, s.exit.Code, s.exit.Cause)
			}
		}
		switch {
		case code == 0 && rootDies:
			outcomes["inherited"]++
		case code == 0:
			outcomes["clean"]++
		default:
			outcomes["taken over"]++
		}
	}
	for _, want := range []string{"clean", "inherited", "taken over"} {
		if outcomes[want] < 20 {
			t.Errorf("only %d jobs ended as %q: %v", outcomes[want], want, outcomes)
		}
	}
	t.Logf("outcomes: %v", outcomes)
}
