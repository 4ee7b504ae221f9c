package phases

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rankstorm/rank"
)

// simJob is a whole job on virtual time: a root and P members wired to a tree,
// messages that keep their order on each link and nothing else, local work of
// random length, and things that go wrong. All messages go through their wire
// form.
type simJob struct {
	t      testing.TB
	rng    *rand.Rand
	now    Time
	events eventQueue
	count  int
	procs  []*simProc
	root   *Root
	sched  *Schedule
	limits Limits
	begun  Time // when the first slot began

	finish  *Output // OutFinish
	reduced []Output
	notes   []string
	work    time.Duration // longest local work
	delay   time.Duration // longest trip over one link
}

type simProc struct {
	job      *simJob
	p        rank.Proc
	member   *Member
	parent   rank.Proc
	children []rank.Proc
	subtree  ProcSet
	dead     bool // killed
	stopped  bool // takes part in nothing any more, links stay open
	stuck    int32
	stuckIn  MemberOutputKind
	gone     bool // left by itself
	exit     MemberOutput
	exitAt   Time
	epoch    int // changes when work is broken off
	linkUp   Time
	linkDown map[rank.Proc]Time
	holds    func() // reports at once what a hold keeps back
	noHold   bool   // a loss is known: holds end, and none begins
}

type event struct {
	at  Time
	seq int
	do  func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

func (j *simJob) at(t Time, do func()) {
	j.count++
	heap.Push(&j.events, event{max(t, j.now), j.count, do})
}

func (j *simJob) after(longest time.Duration, do func()) {
	j.at(j.now+j.rng.Int64N(int64(longest)+1), do)
}

// simMerge adds up sets of processes and refuses one that is in two bodies.
func simMerge(typ Type, slot Slot, bodies [][]byte) ([]byte, error) {
	var all ProcSet
	for _, b := range bodies {
		s, err := decodeRuns(b)
		if err != nil {
			return nil, err
		}
		if all.Intersects(s) {
			return nil, fmt.Errorf("%s of %s merged twice", typ, slot.Phase)
		}
		all.Union(s)
	}
	return encodeRuns(all)
}

func newSimJob(t testing.TB, seed uint64, procs, arity int, spec Spec) *simJob {
	sched, err := NewSchedule(spec, 2, storm)
	if err != nil {
		t.Fatal(err)
	}
	j := &simJob{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: storyStart, sched: sched, limits: storyLimits,
		work: 500 * time.Millisecond, delay: 5 * time.Millisecond,
	}
	for p := range procs {
		sp := &simProc{job: j, p: rank.Proc(p), parent: rank.NoProc, stuck: -1, linkDown: map[rank.Proc]Time{}}
		if p > 0 {
			sp.parent = rank.Proc((p - 1) / arity)
		}
		j.procs = append(j.procs, sp)
	}
	for p := procs - 1; p >= 0; p-- { // children before parents
		sp := j.procs[p]
		sp.subtree.Add(sp.p)
		for c := arity*p + 1; c <= arity*p+arity && c < procs; c++ {
			sp.children = append(sp.children, rank.Proc(c))
			sp.subtree.Union(j.procs[c].subtree)
		}
	}
	j.root = NewRoot(RootConfig{Procs: procs, Schedule: sched, Limits: j.limits, Merge: simMerge, Describe: storyHost})
	for _, sp := range j.procs {
		cfg := MemberConfig{Self: sp.p, Parent: sp.parent, Procs: procs, Schedule: sched, Limits: j.limits, Merge: simMerge, Describe: storyHost}
		for _, c := range sp.children {
			cfg.Children = append(cfg.Children, Child{c, j.procs[c].subtree})
		}
		cfg.Filter = func(child rank.Proc, m Message) Message {
			whole, err := decodeRuns(m.Body)
			if err != nil {
				t.Errorf("exchanged whole: %v", err)
			}
			whole.Intersect(j.procs[child].subtree)
			m.Body, _ = encodeRuns(whole)
			return m
		}
		sp.member = NewMember(cfg)
		j.at(j.now, func() { sp.step(MemberInput{Kind: MTick}) })
	}
	j.after(20*time.Millisecond, func() { j.stepRoot(Input{Kind: InStart, TreeTime: 4 * j.delay}) })
	return j
}

// run goes on until nothing is left to happen before the horizon.
func (j *simJob) run(horizon time.Duration) {
	end := j.now + int64(horizon)
	for j.events.Len() > 0 && j.events[0].at <= end {
		e := heap.Pop(&j.events).(event)
		j.now = e.at
		e.do()
	}
}

func (j *simJob) wire(m Message) Message {
	b, err := EncodeMessage(m)
	if err != nil {
		j.t.Errorf("encode %v: %v", m, err)
	}
	m, err = DecodeMessage(b)
	if err != nil {
		j.t.Errorf("decode: %v", err)
	}
	return m
}

func (j *simJob) stepRoot(in Input) {
	top := j.procs[0]
	if top.dead || top.stopped || top.gone {
		return
	}
	for _, o := range j.root.Step(j.now, in) {
		switch o.Kind {
		case OutDown:
			if o.Msg.Type == Prepare && o.Msg.Seq == 0 {
				j.begun = j.now
			}
			m := j.wire(o.Msg)
			j.at(j.now, func() { top.step(MemberInput{Kind: MFromParent, Msg: m}) })
		case OutReduced:
			j.reduced = append(j.reduced, o)
		case OutNote:
			j.notes = append(j.notes, o.Text)
		case OutWake:
			j.at(o.At, func() { j.stepRoot(Input{Kind: InTick}) })
		case OutFinish:
			if j.finish != nil {
				j.t.Errorf("the root finished twice")
			}
			j.finish = &o
		}
	}
}

func (s *simProc) silent() bool { return s.dead || s.stopped || s.gone }

func (s *simProc) step(in MemberInput) {
	j := s.job
	if s.silent() {
		return
	}
	for _, o := range s.member.Step(j.now, in) {
		switch o.Kind {
		case MUp:
			if s.parent == rank.NoProc {
				j.stepRootLater(j.wire(o.Msg))
				continue
			}
			s.sendUp(MemberInput{Kind: MFromChild, Proc: s.p, Msg: j.wire(o.Msg)})
		case MDown:
			for _, c := range s.children {
				if o.Proc < 0 || o.Proc == c {
					s.sendDown(c, MemberInput{Kind: MFromParent, Msg: j.wire(o.Msg)})
				}
			}
		case MPrepare:
			s.localWork(o.Kind, o.Seq, j.now, 0, MemberInput{Kind: MLocalReady, Seq: o.Seq})
		case MBegin:
			slot := j.sched.At(o.Seq)
			in := MemberInput{Kind: MLocalDone, Seq: o.Seq}
			if slot.Phase == Publish {
				in.Body, _ = encodeRuns(SetOf(s.p))
			}
			s.localWork(o.Kind, o.Seq, o.T, slot.Hold, in)
		case MCollect:
			s.epoch++
			if j.sched.At(o.Seq).Phase == Publish && !o.Abort {
				got, err := decodeRuns(o.Msg.Body)
				if err != nil || !got.Has(s.p) {
					j.t.Errorf("process %d got %v of the exchange, %v", s.p, got, err)
				}
			}
			body, _ := encodeRuns(SetOf(s.p))
			s.localWork(o.Kind, o.Seq, j.now, 0, MemberInput{Kind: MLocalSummary, Seq: o.Seq, Body: body})
		case MWake:
			j.at(o.At, func() { s.step(MemberInput{Kind: MTick}) })
		case MLost:
			s.noHold = true
			if s.holds != nil {
				j.at(j.now, s.holds)
			}
		case MNote:
			j.t.Errorf("process %d: %s", s.p, o.Cause)
		case MExit:
			s.gone, s.exit, s.exitAt = true, o, j.now
			s.closeLinks()
		}
	}
}

func (j *simJob) stepRootLater(m Message) {
	j.at(j.now, func() { j.stepRoot(Input{Kind: InMessage, Msg: m}) })
}

// localWork ends in after some time from begin on, unless it is stuck or
// broken off.
func (s *simProc) localWork(kind MemberOutputKind, seq int32, begin Time, hold time.Duration, in MemberInput) {
	if s.stuck == seq && s.stuckIn == kind {
		return
	}
	epoch := s.epoch
	report := func() {
		if s.epoch == epoch {
			s.step(in)
		}
	}
	s.job.at(begin+s.job.rng.Int64N(int64(s.job.work)), func() {
		s.holds = nil
		if hold > 0 && !s.noHold {
			s.holds = report
			s.job.at(s.job.now+int64(hold), report)
			return
		}
		report()
	})
}

// sendUp and sendDown keep the order of their link.
func (s *simProc) sendUp(in MemberInput) {
	j := s.job
	s.linkUp = max(s.linkUp, j.now+j.rng.Int64N(int64(j.delay)))
	to := j.procs[s.parent]
	j.at(s.linkUp, func() { to.step(in) })
}

func (s *simProc) sendDown(c rank.Proc, in MemberInput) {
	j := s.job
	s.linkDown[c] = max(s.linkDown[c], j.now+j.rng.Int64N(int64(j.delay)))
	to := j.procs[c]
	j.at(s.linkDown[c], func() { to.step(in) })
}

func (s *simProc) closeLinks() {
	eof := rank.Errorf(rank.KindLost, "EOF")
	if s.parent != rank.NoProc {
		s.sendUp(MemberInput{Kind: MChildLost, Proc: s.p, Cause: eof})
	}
	for _, c := range s.children {
		s.sendDown(c, MemberInput{Kind: MParentLost, Cause: eof})
	}
}

// stop makes a process mute with its links open, as SIGSTOP does. Sometimes
// gossip and ping find out, and the root gives it up with all below it.
func (s *simProc) stop(found bool) {
	j := s.job
	s.stopped = true
	if found {
		j.at(j.now+int64(3*time.Second), func() {
			j.stepRoot(Input{
				Kind: InLost, Procs: slices.Collect(s.subtree.All()),
				Cause: &rank.Error{Kind: rank.KindLost, Proc: s.p, Peer: rank.None, Text: "does not answer a ping"},
			})
		})
	}
}

func (s *simProc) kill() {
	if s.gone || s.dead {
		return
	}
	s.dead = true
	s.closeLinks()
}

// below says whether any of the processes above s (s not counted) is in set.
func (s *simProc) below(set ProcSet) bool {
	for p := s.parent; p != rank.NoProc; p = s.job.procs[p].parent {
		if set.Has(p) {
			return true
		}
	}
	return false
}

// longest a job of this schedule may last by its limits.
func (j *simJob) longest() time.Duration {
	d := j.limits.Phase + 2*j.limits.Margin
	for seq := range j.sched.Len() {
		slot := j.sched.At(seq)
		d += 2*j.limits.Prepare + j.limits.Phase + slot.Hold + 8*j.delay + j.limits.Lead
	}
	return d
}
