package phases

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rankstorm/rank"
)

var jobSeed = flag.Uint64("seed", 0, "run only this whole job of TestJobs")

func TestCleanJob(t *testing.T) {
	for _, procs := range []int{1, 2, 17, 40} {
		spec := DefaultSpec()
		spec.Rounds = 2
		spec.Holds = []Hold{{Connect, 20 * time.Second}}
		j := newSimJob(t, uint64(procs), procs, 3, spec)
		j.run(j.longest())
		top := j.procs[0]
		if end := top.finish; end == nil || end.Code != 0 || end.Cause != nil || end.Partial {
			t.Fatalf("%d processes: %+v", procs, end)
		}
		if len(top.reduced) != int(j.sched.Len()) || len(j.notes) > 0 {
			t.Errorf("%d slots reduced, notes %q", len(top.reduced), j.notes)
		}
		for i, o := range top.reduced {
			body, err := decodeRuns(o.Body)
			if o.Seq != int32(i) || err != nil || body.Len() != procs || o.Msg.Covers.Len() != procs {
				t.Errorf("slot %d: covers %s, body of %s", o.Seq, formatProcs(o.Msg.Covers), formatProcs(body))
			}
		}
		for _, s := range j.procs {
			if !s.gone || s.exit.Code != 0 || s.exit.Cause != nil {
				t.Errorf("process %d: left %v with %d, %v", s.p, s.gone, s.exit.Code, s.exit.Cause)
			}
		}
	}
}

// trouble is what goes wrong in one job.
type trouble struct {
	killed, stopped, cut, stuck ProcSet
	signals                     int
	first                       Time // the earliest of all
	late                        bool // a root was about to finish, or had
}

func (tr trouble) any() bool {
	return tr.killed.Len()+tr.stopped.Len()+tr.cut.Len()+tr.stuck.Len()+tr.signals > 0
}

func addTrouble(j *simJob) *trouble {
	tr := &trouble{first: 1<<63 - 1}
	procs := int64(len(j.procs))
	// A clean job of this schedule takes about this long.
	span := Time(j.sched.Len()) * 2 * Time(j.work)
	for range j.rng.IntN(4) {
		s := j.procs[j.rng.Int64N(procs)]
		at := storyStart + j.rng.Int64N(span)
		mark := func(set *ProcSet) {
			if !s.gone {
				set.Add(s.p)
				tr.first = min(tr.first, j.now)
				if len(j.ends) > 0 {
					tr.late = true
				}
			}
		}
		switch j.rng.IntN(8) {
		case 0, 1, 2:
			j.at(at, func() { mark(&tr.killed); s.kill() })
		case 3: // the link to its parent is cut, both live
			j.at(at, func() {
				if s.parent == rank.NoProc || s.silent() || j.procs[s.parent].silent() {
					return
				}
				mark(&tr.cut)
				eof := rank.Errorf(rank.KindLost, "connection reset by peer")
				s.sendUp(MemberInput{Kind: MChildLost, Proc: s.p, Cause: eof})
				j.procs[s.parent].sendDown(s.p, MemberInput{Kind: MParentLost, Cause: eof})
			})
		case 4:
			found := j.rng.IntN(2) == 0
			j.at(at, func() { mark(&tr.stopped); s.stop(found) })
		case 5: // its own work never ends
			s.stuck = int32(j.rng.IntN(int(j.sched.Len())))
			s.stuckIn = []MemberOutputKind{MPrepare, MBegin, MCollect}[j.rng.IntN(3)]
			tr.stuck.Add(s.p)
		default:
			j.at(at, func() {
				if s.silent() {
					return
				}
				tr.signals++
				tr.first = min(tr.first, j.now)
				e := rank.Errorf(rank.KindCancelled, "got signal 2")
				e.Signal = 2
				s.step(MemberInput{Kind: MCancel, Cause: e})
			})
		}
	}
	return tr
}

// Whatever goes wrong: everybody alive leaves within the limits, with the code
// of the job, and names its first cause, or was cut off from the job and names
// who cut it off. No summary is counted twice.
func TestJobs(t *testing.T) {
	seeds := make([]uint64, 0, 1000)
	if *jobSeed != 0 {
		seeds = append(seeds, *jobSeed)
	} else {
		jobs := uint64(1000)
		if testing.Short() {
			jobs = 200
		}
		for seed := range jobs {
			seeds = append(seeds, seed+1)
		}
	}
	outcomes := map[string]int{}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		spec := DefaultSpec()
		spec.Rounds = 1 + rng.IntN(2)
		if rng.IntN(3) == 0 {
			spec.Holds = []Hold{{Connect, 20 * time.Second}}
		}
		j := newSimJob(t, seed, 1+rng.IntN(24), 1+rng.IntN(4), spec)
		tr := addTrouble(j)
		j.run(j.longest())
		outcomes[checkJob(t, seed, j, tr)]++
		if t.Failed() {
			t.Fatalf("replay with -run TestJobs -seed %d", seed)
		}
	}
	t.Logf("outcomes: %v", outcomes)
	if len(seeds) > 1 {
		for _, want := range []string{"clean", "lost", "timeout", "cancelled", "taken over"} {
			if outcomes[want] == 0 {
				t.Errorf("no job ended as %q: %v", want, outcomes)
			}
		}
	}
}

func checkJob(t *testing.T, seed uint64, j *simJob, tr *trouble) string {
	top := j.procs[0]
	for _, s := range j.procs {
		if !s.gone && !s.dead && !s.stopped {
			t.Errorf("seed %d: process %d is still there in %s of %s", seed, s.p, s.member.state, s.member.slot.Phase)
		}
		if s.gone && s.exit.Code != 0 && s.exit.Cause == nil {
			t.Errorf("seed %d: process %d left with %d and no cause", seed, s.p, s.exit.Code)
		}
		checkReduced(t, seed, s)
	}
	for _, note := range j.notes {
		if len(note) > 7 && note[:7] == "refused" {
			t.Errorf("seed %d: %s", seed, note)
		}
	}
	if tr.stopped.Len()+tr.cut.Len()+tr.stuck.Len() == 0 && tr.signals < 2 {
		var first *simProc
		for _, s := range j.procs {
			if first == nil && s.gone {
				first = s
			}
			if s.gone && s.exit.Code != first.exit.Code {
				t.Errorf("seed %d: process %d left with %d, process %d with %d", seed, s.p, s.exit.Code, first.p, first.exit.Code)
			}
		}
	}
	// Who did not leave of its own accord has the word of a root.
	for _, s := range j.procs {
		said := func(root *simProc) bool {
			return s.exit.Code == root.finish.Code && causeText(s.exit.Cause) == causeText(root.finish.Cause)
		}
		if s.gone && !s.exit.Abandon && !slices.ContainsFunc(j.ends, said) && tr.signals < 2 {
			// A process that left by its deadline tells those below it.
			tells := func(up *simProc) bool {
				return up.exit.Abandon && causeText(up.exit.Cause) == causeText(s.exit.Cause)
			}
			if !slices.ContainsFunc(j.procs, tells) {
				t.Errorf("seed %d: process %d left with %d [%v], which no root has said", seed, s.p, s.exit.Code, s.exit.Cause)
			}
		}
	}
	if len(j.ends) == 0 {
		for _, s := range j.procs {
			if s.gone && s.exit.Code == 0 {
				t.Errorf("seed %d: process %d left clean, but no root finished", seed, s.p)
			}
		}
		if !top.dead && !top.stopped && tr.signals < 2 {
			t.Errorf("seed %d: the root did not finish", seed)
		}
		return "no root"
	}
	first := j.ends[0]
	end := first.finish
	if len(j.ends) > 1 && tr.stopped.Len()+tr.stuck.Len()+tr.cut.Len()+tr.signals == 0 && !tr.late {
		t.Errorf("seed %d: %d roots finished: %v, %v", seed, len(j.ends), end.Cause, j.ends[1].finish.Cause)
	}
	if !tr.any() && end.Code != 0 {
		t.Errorf("seed %d: nothing went wrong, but code %d: %v", seed, end.Code, end.Cause)
	}
	cause := end.Cause
	switch {
	case cause == nil:
		if len(first.reduced) != int(j.sched.Len()) {
			t.Errorf("seed %d: clean after %d of %d slots", seed, len(first.reduced), j.sched.Len())
		}
		return "clean"
	case first != top:
		if end.Code != 1 || cause.Kind != rank.KindLost || !end.Partial || !top.dead && !top.stopped && tr.signals < 2 {
			t.Errorf("seed %d: the successor ended with %+v", seed, end)
		}
		return "taken over"
	case cause.Kind == rank.KindCancelled:
		if end.Code != 130 || tr.signals == 0 {
			t.Errorf("seed %d: code %d for %v", seed, end.Code, cause)
		}
		return "cancelled"
	case cause.Kind == rank.KindLost:
		left := tr.killed.Clone()
		left.Union(tr.stopped)
		left.Union(tr.cut)
		for p := range tr.cut.All() { // the other end of a cut link may be the one that is named
			left.Add((p - 1) / rank.Proc(j.arity))
		}
		if end.Code != 1 || !left.Has(cause.Proc) && tr.signals < 2 && tr.stuck.Len() == 0 {
			t.Errorf("seed %d: %v, but gone are %s", seed, cause, formatProcs(left))
		}
		return "lost"
	case cause.Kind == rank.KindTimeout:
		if tr.stopped.Len()+tr.stuck.Len() == 0 || end.Code != 1 {
			t.Errorf("seed %d: %v, but nothing was slow", seed, cause)
		}
		return "timeout"
	}
	t.Errorf("seed %d: unexpected cause %v", seed, cause)
	return "unexpected"
}

// checkReduced: nobody is counted twice, and nobody who is said to be covered
// is missing.
func checkReduced(t *testing.T, seed uint64, s *simProc) {
	for i, o := range s.reduced {
		body, err := decodeRuns(o.Body)
		extra := body.Clone()
		extra.Subtract(o.Msg.Covers)
		missing := o.Msg.Covers.Clone()
		missing.Subtract(body)
		// Who came before its first slot, or had given the slot's figures before, has nothing to add.
		if err != nil || extra.Len() > 0 || missing.Len() > 0 && i < len(s.reduced)-1 {
			t.Errorf("seed %d: slot %d covers %s, body of %s, %v", seed, o.Seq, formatProcs(o.Msg.Covers), formatProcs(body), err)
		}
		if s.p == 0 && o.Seq != int32(i) {
			t.Errorf("seed %d: slot %d reduced as number %d", seed, o.Seq, i)
		}
		if i < len(s.reduced)-1 && o.Msg.Covers.Len() != len(s.job.procs) {
			t.Errorf("seed %d: the job went on after slot %d with %s", seed, o.Seq, formatProcs(o.Msg.Covers))
		}
	}
}

func causeText(e *rank.Error) string {
	if e == nil {
		return ""
	}
	return e.Error()
}

// One process is killed: everybody else ends within a little more than the
// running phase's own work, also when a hold keeps the phase open, and names
// it.
func TestEverySurvivorNamesTheKilled(t *testing.T) {
	for seed := range uint64(200) {
		spec := DefaultSpec()
		spec.Holds = []Hold{{Connect, 20 * time.Second}}
		j := newSimJob(t, seed, 2+int(seed%30), 1+int(seed%4), spec)
		victim := j.procs[j.rng.IntN(len(j.procs))]
		at := storyStart + j.rng.Int64N(int64(25*time.Second))
		j.at(at, victim.kill)
		j.run(j.longest())
		if victim.gone {
			t.Fatalf("seed %d: the job was over before the kill", seed)
		}
		bound := at + int64(3*j.work+40*time.Duration(len(j.procs))*j.delay)
		if len(j.procs) > 1 {
			root := j.procs[0]
			if victim == root {
				root = j.procs[1]
			}
			// Whoever lives is in the last figures, also those below the killed.
			// A loss before a slot's go leaves no figures of it.
			all := Full(len(j.procs))
			all.Subtract(SetOf(victim.p))
			if n := len(root.reduced); root.finish == nil || n == 0 && victim.p == 0 || n > 0 && !root.reduced[n-1].Msg.Covers.Contains(all) {
				t.Errorf("seed %d: process %d of %d was killed: finish %v, figures %+v", seed, victim.p, len(j.procs), root.finish, root.reduced)
			}
		}
		for _, s := range j.procs {
			if s == victim {
				continue
			}
			if !s.gone || s.exit.Code != 1 || s.exit.Cause == nil || s.exit.Cause.Proc != victim.p || s.exit.Cause.Kind != rank.KindLost || s.exit.Abandon {
				t.Errorf("seed %d: process %d: left %v with %d: %v, want process %d named", seed, s.p, s.gone, s.exit.Code, s.exit.Cause, victim.p)
			}
			if s.exitAt > bound {
				t.Errorf("seed %d: process %d left %v after the kill", seed, s.p, time.Duration(s.exitAt-at))
			}
		}
	}
}

// One process's own work never ends: the root names exactly it, at the
// deadline, however deep in the tree it sits and whoever sits below it.
func TestTheStuckIsNamed(t *testing.T) {
	for seed := range uint64(200) {
		j := newSimJob(t, seed, 2+int(seed%30), 1+int(seed%4), DefaultSpec())
		if depth := len(j.procs); seed%4 == 0 && depth > 12 {
			continue // a chain: trips take longer than members report ahead
		}
		s := j.procs[j.rng.IntN(len(j.procs))]
		s.stuck = int32(j.rng.IntN(int(j.sched.Len())))
		s.stuckIn = []MemberOutputKind{MPrepare, MBegin, MCollect}[seed%3]
		j.run(j.longest())
		end := j.procs[0].finish
		if end == nil || end.Cause == nil || end.Cause.Kind != rank.KindTimeout || end.Cause.Proc != s.p {
			t.Fatalf("seed %d: %d is stuck in %s, but %+v", seed, s.p, j.sched.At(s.stuck).Phase, end)
		}
		if end.Cause.Phase != string(j.sched.At(s.stuck).Phase) || end.Code != 1 || !end.Partial {
			t.Errorf("seed %d: %+v", seed, end)
		}
		for _, other := range j.procs {
			if !other.gone || causeText(other.exit.Cause) != causeText(end.Cause) {
				t.Errorf("seed %d: process %d left %v: %v", seed, other.p, other.gone, other.exit.Cause)
			}
		}
	}
}

// A process is stopped and given up: the rest ends its phase without it, long
// before the deadline.
func TestTheStoppedIsGivenUp(t *testing.T) {
	for seed := range uint64(200) {
		spec := DefaultSpec()
		spec.Holds = []Hold{{Connect, 20 * time.Second}}
		j := newSimJob(t, seed, 2+int(seed%30), 1+int(seed%4), spec)
		victim := j.procs[j.rng.IntN(len(j.procs))]
		at := storyStart + j.rng.Int64N(int64(20*time.Second))
		j.at(at, func() { victim.stop(true) })
		j.run(j.longest())
		bound := at + int64(3*time.Second+2*time.Second+3*j.work+40*time.Duration(len(j.procs))*j.delay)
		for _, s := range j.procs {
			if s == victim {
				continue
			}
			if !s.gone || s.exit.Code != 1 || s.exit.Cause.Proc != victim.p || s.exit.Abandon {
				t.Errorf("seed %d: process %d: left %v with %d: %v", seed, s.p, s.gone, s.exit.Code, s.exit.Cause)
			} else if s.exitAt > bound && s.exit.Cause.Kind == rank.KindLost {
				t.Errorf("seed %d: process %d left %v after the stop", seed, s.p, time.Duration(s.exitAt-at))
			}
		}
	}
}
