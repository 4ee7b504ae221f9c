package runner

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
	"rankstorm/transport/sim"
)

var faultSeed = flag.Uint64("seed", 0, "run only this one of a test's seeded jobs")

// faultJob is one whole job to which one thing happens.
type faultJob struct {
	*bubble
	rng      *rand.Rand
	begun    time.Time
	at       time.Duration // when it happened, since the start
	victims  map[int]bool  // killed, or stopped for too long
	stopped  map[int]bool  // of them those that live
	sides    [][]int       // who is together after a cut
	signal   int
	harmless bool // nothing may be lost
}

const (
	faultLiveness = 2 * time.Second
	faultPhase    = 6 * time.Second
)

// faultKinds are what happens to a job. Each says what it did.
var faultKinds = []struct {
	name string
	fc   sim.FabricConfig
	mc   memnet.Config
	do   func(j *faultJob) string
}{
	{name: "kill the root", do: func(j *faultJob) string { return j.killAll(0) }},
	{name: "kill an inner process", do: func(j *faultJob) string { return j.killAll(1 + j.rng.IntN(min(3, len(j.procs)-1))) }},
	{name: "kill any process", do: func(j *faultJob) string { return j.killAll(j.rng.IntN(len(j.procs))) }},
	{name: "kill two", do: func(j *faultJob) string {
		a, b := j.rng.IntN(4), j.rng.IntN(len(j.procs))
		return j.killAll(a, b)
	}},
	{name: "kill all of one host", do: func(j *faultJob) string { return j.killAll(j.on(j.rng.IntN(len(j.hosts)))...) }},
	{name: "stop the root", do: func(j *faultJob) string { return j.stopFor(0, 0) }},
	{name: "stop any process", do: func(j *faultJob) string { return j.stopFor(j.rng.IntN(len(j.procs)), 0) }},
	{name: "stop for long", do: func(j *faultJob) string {
		return j.stopFor(j.rng.IntN(len(j.procs)), faultLiveness+time.Duration(100+j.rng.IntN(3000))*time.Millisecond)
	}},
	{name: "stop for a moment", do: func(j *faultJob) string {
		return j.stopFor(j.rng.IntN(len(j.procs)), time.Duration(j.rng.IntN(900))*time.Millisecond)
	}},
	{name: "suspend all", do: (*faultJob).suspend},
	{name: "cut that is seen", do: func(j *faultJob) string { return j.cutOff(true) }},
	{name: "cut that is not seen", do: func(j *faultJob) string { return j.cutOff(false) }},
	{name: "loss", fc: sim.FabricConfig{Loss: 0.3}, mc: memnet.Config{Loss: 0.3, Jitter: 20 * time.Millisecond}, do: (*faultJob).nothing},
	{name: "slow link", fc: sim.FabricConfig{Latency: 80 * time.Millisecond}, mc: memnet.Config{Latency: 80 * time.Millisecond, Jitter: 40 * time.Millisecond}, do: (*faultJob).nothing},
	{name: "signal", do: func(j *faultJob) string {
		j.signal = []int{1, 2, 15}[j.rng.IntN(3)]
		who := j.rng.IntN(len(j.procs))
		j.procs[who].cancel(&rank.Error{Kind: rank.KindCancelled, Signal: j.signal, Proc: rank.NoProc, Peer: rank.None, Text: "interrupted"})
		return fmt.Sprintf("signal %d at process %d", j.signal, who)
	}},
}

func (j *faultJob) nothing() string {
	j.harmless = true
	return "nothing"
}

func (j *faultJob) on(host int) (procs []int) {
	for _, p := range j.procs {
		if p.host == host {
			procs = append(procs, p.i)
		}
	}
	return procs
}

func (j *faultJob) killAll(procs ...int) string {
	for _, i := range procs {
		j.victims[i] = true
		j.kill(i)
	}
	return fmt.Sprintf("killed %v", procs)
}

// stopFor stops a process, for good if d is 0.
func (j *faultJob) stopFor(i int, d time.Duration) string {
	if d == 0 || d > faultLiveness {
		j.victims[i], j.stopped[i] = true, true
	} else {
		j.harmless = true
	}
	j.stop(i)
	if d > 0 {
		time.Sleep(d)
		j.goOn(i)
	}
	return fmt.Sprintf("stopped %d for %v", i, d)
}

// suspend stops the whole job for longer than the liveness timeout, as a launcher does that gives its place to another.
func (j *faultJob) suspend() string {
	d := faultLiveness + time.Duration(100+j.rng.IntN(20_000))*time.Millisecond
	for _, p := range j.procs {
		j.victims[p.i], j.stopped[p.i] = true, true
		j.stop(p.i)
	}
	time.Sleep(d)
	return fmt.Sprintf("suspended all for %v", d)
}

func (j *faultJob) cutOff(seen bool) string {
	host := j.rng.IntN(len(j.hosts))
	j.sides = make([][]int, 2)
	for _, p := range j.procs {
		side := 1
		if p.host == host {
			side = 0
		}
		j.sides[side] = append(j.sides[side], p.i)
	}
	j.cut(host, seen)
	return fmt.Sprintf("cut off host %d, seen %v", host, seen)
}

// Whatever happens to a job, whenever: it ends in bounded time, with the same
// code at all survivors, the lost named, and the documents where they belong
// and nowhere else.
func TestFaults(t *testing.T) {
	counts, hit := map[string]int{}, map[string]int{} // jobs of a kind, and those that it changed
	for _, seed := range seeds(share(t, 20) * len(faultKinds)) {
		kind := faultKinds[seed%uint64(len(faultKinds))]
		counts[kind.name]++
		var told string
		ok := t.Run(fmt.Sprintf("%d %s", seed, kind.name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				procs := 8 + rng.IntN(25)
				hosts := 2 + rng.IntN(min(procs/2, 6)-1)
				s := spec(procs, func(s *phases.Spec) {
					s.Topology.Name = []string{"ring", "hypercube", "incast"}[rng.IntN(3)]
					s.TreeArity = 2 + rng.IntN(4)
					s.LivenessTimeout, s.PhaseTimeout = faultLiveness, faultPhase
					s.Connections = 3
					edges := float64(procs)
					if s.Topology.Name == "hypercube" {
						edges *= 4
					}
					s.Shape = phases.Shape{Kind: phases.Rate, PerS: edges * 3 / 3} // about three seconds
					if rng.IntN(3) == 0 {
						s.Holds = []phases.Hold{{Phase: []phases.Token{phases.Create, phases.Publish, phases.Probe, phases.Destroy}[rng.IntN(4)], For: 2 * time.Second}}
					}
				})
				kind.mc.Seed, kind.fc.Seed = seed, seed
				if kind.mc.Latency == 0 {
					kind.mc.Latency = 50 * time.Microsecond
				}
				j := &faultJob{rng: rng, victims: map[int]bool{}, stopped: map[int]bool{}, begun: time.Now()}
				j.bubble = startOver(t, hosts, s, kind.fc, kind.mc)
				for !j.allJoined() {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
				j.at = time.Since(j.begun)
				over := j.anyEnded()
				told = fmt.Sprintf("%d processes on %d hosts, arity %d, %s, holds %v; %v after the start: %s",
					procs, hosts, s.TreeArity, s.Topology.Name, s.Holds, j.at, kind.do(j))
				// Everybody but the stopped ends by itself; then those go on.
				j.sleepUntil(func() bool { return j.ended(func(i int) bool { return !j.stopped[i] }) }, time.Minute)
				resumed := time.Since(j.begun)
				for i := range j.stopped {
					j.goOn(i)
				}
				j.wait()
				if over {
					j.sameEnd(t)
				} else {
					j.check(t, resumed)
				}
				if slices.ContainsFunc(j.procs, func(p *bubbleProc) bool { return ExitCode(p.err) != 0 && (!j.victims[p.i] || j.stopped[p.i]) }) {
					hit[kind.name]++
				}
			})
		})
		if !ok {
			t.Fatalf("seed %d: %s\nreplay with -run TestFaults -seed %d", seed, told, seed)
		}
	}
	t.Logf("jobs: %v; changed: %v", counts, hit)
	for _, kind := range faultKinds {
		harmless := kind.name == "stop for a moment" || kind.name == "slow link"
		if n := counts[kind.name]; n >= 20 && (harmless && hit[kind.name] > 0 || !harmless && hit[kind.name] < n/3) {
			t.Errorf("%s changed %d of %d jobs", kind.name, hit[kind.name], n)
		}
	}
}

func (j *faultJob) allJoined() bool {
	return !slices.ContainsFunc(j.procs, func(p *bubbleProc) bool { return !p.joined.Load() })
}

func (j *faultJob) anyEnded() bool {
	return slices.ContainsFunc(j.procs, func(p *bubbleProc) bool { return p.over.Load() })
}

func (j *faultJob) ended(who func(int) bool) bool {
	return !slices.ContainsFunc(j.procs, func(p *bubbleProc) bool { return who(p.i) && !p.over.Load() })
}

func (j *faultJob) sleepUntil(done func() bool, most time.Duration) {
	for end := time.Now().Add(most); !done() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// sameEnd: what happens once somebody has left changes nobody's exit code, except that of a process that was stopped.
func (j *faultJob) sameEnd(t *testing.T) {
	t.Helper()
	for _, p := range j.procs {
		if got, want := ExitCode(p.err), ExitCode(j.procs[0].err); !j.victims[p.i] && !j.victims[0] && got != want {
			t.Errorf("process %d: exit %d, process 0: %d\n%v\n%v", p.i, got, want, p.err, j.procs[0].err)
		}
	}
}

func (j *faultJob) check(t *testing.T, resumed time.Duration) {
	t.Helper()
	sides := j.sides
	if sides == nil {
		sides = [][]int{nil}
		for _, p := range j.procs {
			sides[0] = append(sides[0], p.i)
		}
	}
	var documents []string // that may be there
	for _, side := range sides {
		side = slices.DeleteFunc(slices.Clone(side), func(i int) bool { return j.victims[i] })
		if len(side) == 0 {
			continue
		}
		writer := j.procs[side[0]]
		code := ExitCode(writer.err)
		name := fmt.Sprintf("%d.json", writer.i)
		if writer.i > 0 {
			name = fmt.Sprintf("%d.partial.json", writer.i)
		}
		documents = append(documents, name)
		if _, err := os.Stat(filepath.Join(j.dir, name)); err != nil {
			t.Errorf("no document of process %d: %v\n%s", writer.i, err, writer.stderr.String())
		}
		// The phase under way when it happened, one that is held, and the limits after the first cause.
		bound := j.at + faultLiveness + time.Second + faultPhase + 2*time.Second + (8+3+2+2)*time.Second
		for _, i := range side {
			p := j.procs[i]
			if got := ExitCode(p.err); got != code {
				t.Errorf("process %d: exit %d, process %d: %d\n%v\n%v", i, got, writer.i, code, p.err, writer.err)
			}
			if p.ended > bound {
				t.Errorf("process %d ended %v after the start, bound %v", i, p.ended, bound)
			}
			if i != writer.i && p.stdout.String() != "" {
				t.Errorf("process %d wrote to stdout: %s", i, p.stdout.String())
			}
		}
		writer.out = filepath.Join(j.dir, name)
		agree(t, j.document(writer.i))
		j.checkCause(t, writer, code)
	}
	for i := range j.victims {
		p := j.procs[i]
		documents = append(documents, fmt.Sprintf("%d.json", i), fmt.Sprintf("%d.partial.json", i)) // a killed one only plays dead here
		if !j.stopped[i] {
			continue
		}
		if ExitCode(p.err) == 0 { // it knew the verdict
			documents = documents[:len(documents)-1]
			continue
		}
		if p.ended > resumed+5*time.Second || ExitCode(p.err) != 1 || p.stdout.String() != "" {
			t.Errorf("process %d was stopped and went on at %v: it ended at %v with %d and printed %q: %v", i, resumed, p.ended, ExitCode(p.err), p.stdout.String(), p.err)
		}
		for _, name := range documents[len(documents)-2:] {
			if _, err := os.Stat(filepath.Join(j.dir, name)); err == nil {
				t.Errorf("process %d was stopped for too long, and wrote %s", i, name)
			}
		}
	}
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(documents, e.Name()) {
			t.Errorf("a document too many: %s", e.Name())
		}
	}
}

// checkCause holds what a side's root says against what has happened.
func (j *faultJob) checkCause(t *testing.T, writer *bubbleProc, code int) {
	t.Helper()
	var e *rank.Error
	errors.As(writer.err, &e)
	switch {
	case j.signal != 0:
		if code != 128+j.signal {
			t.Errorf("exit %d after signal %d: %v", code, j.signal, writer.err)
		}
	case j.harmless:
		if code != 0 && (e == nil || e.Kind != rank.KindFailed) {
			t.Errorf("nothing was lost, but exit %d: %v", code, writer.err)
		}
	case j.sides != nil:
		if code != 1 || e == nil || e.Kind != rank.KindLost {
			t.Errorf("exit %d after a cut: %v", code, writer.err)
		}
	case code == 0:
		// All was decided before anybody missed the lost.
	case code != 1 || e == nil || e.Kind != rank.KindLost || !j.victims[int(e.Proc)]:
		t.Errorf("exit %d: %v; lost are %v", code, writer.err, j.victims)
	case e.Host == "" || len(e.Ranks) == 0:
		t.Errorf("the cause says too little: %v", writer.err)
	case !strings.Contains(writer.err.Error(), fmt.Sprintf("rank %d", e.Proc)):
		t.Errorf("the cause does not name the rank: %v", writer.err)
	}
}

// The figures of those below a killed process, and of all who outlive the root, are in the report.
func TestWhoLivesIsInTheReport(t *testing.T) {
	for _, victim := range []int{0, 1, 5} { // the root; with ten below it; with one below it
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const procs = 24
				b := start(t, 4, spec(procs, func(s *phases.Spec) {
					s.Connections, s.TreeArity, s.Topology.Name = 5, 2, "ring"
					s.Shape = phases.Shape{Kind: phases.Rate, PerS: procs * 5 / 4} // four seconds
				}), sim.FabricConfig{})
				time.Sleep(2 * time.Second)
				b.kill(victim)
				b.wait()
				writer, name := 0, "0.json"
				if victim == 0 {
					writer, name = 1, "1.partial.json"
				}
				b.procs[writer].out = filepath.Join(b.dir, name)
				d := b.document(writer)
				if d.Exit.Code != 1 || !d.Exit.Partial || d.Exit.Error == nil || !slices.Contains(d.Exit.Error.Ranks, rank.Rank(victim)) {
					t.Errorf("exit %+v, want the loss of rank %d", d.Exit, victim)
				}
				seen := map[string]map[rank.Rank]bool{}
				for _, ph := range d.Phases {
					seen[ph.Phase] = map[rank.Rank]bool{}
					for _, r := range ph.Ranks {
						seen[ph.Phase][r.Rank] = true
					}
				}
				for _, ph := range []string{"create", "publish", "connect"} { // also those of before the loss
					for r := range rank.Rank(procs) {
						if int(r) != victim && !seen[ph][r] {
							t.Errorf("rank %d has no figures of %s", r, ph)
						}
					}
				}
				if seen["connect"][rank.Rank(victim)] {
					t.Errorf("rank %d was killed in connect, and has figures of it", victim)
				}
			})
		})
	}
}
