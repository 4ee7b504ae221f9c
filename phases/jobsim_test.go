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
	sched  *Schedule
	limits Limits
	arity  int
	begun  Time // when the first slot began

	ends  []*simProc // roots that have decided, in order
	onEnd func()     // when the first one has
	notes []string
	work  time.Duration // longest local work
	delay time.Duration // longest trip over one link
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
	linkUp   map[rank.Proc]Time
	linkDown map[rank.Proc]Time
	root     *Root   // of process 0 and of successors
	finish   *Output // OutFinish
	late     bool    // its report never comes out
	reduced  []Output
	search   bool // it looks for the root
	summed   map[int32]bool
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
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: storyStart, sched: sched, limits: storyLimits, arity: arity,
		work: 500 * time.Millisecond, delay: 5 * time.Millisecond,
	}
	for p := range procs {
		sp := &simProc{job: j, p: rank.Proc(p), parent: rank.NoProc, stuck: -1, linkUp: map[rank.Proc]Time{}, linkDown: map[rank.Proc]Time{}, summed: map[int32]bool{}}
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
	j.procs[0].root = NewRoot(RootConfig{Procs: procs, Schedule: sched, Limits: j.limits, Merge: simMerge, Describe: storyHost})
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
	j.after(20*time.Millisecond, func() { j.procs[0].stepRoot(Input{Kind: InStart, TreeTime: 4 * j.delay}) })
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

func (s *simProc) stepRoot(in Input) {
	j, top := s.job, s
	if s.silent() {
		return
	}
	for _, o := range s.root.Step(j.now, in) {
		switch o.Kind {
		case OutDown:
			if o.Msg.Type == Prepare && o.Msg.Seq == 0 {
				j.begun = j.now
			}
			m := j.wire(o.Msg)
			j.at(j.now, func() { top.step(MemberInput{Kind: MFromParent, Msg: m}) })
		case OutReduced:
			s.reduced = append(s.reduced, o)
		case OutNote:
			j.notes = append(j.notes, o.Text)
		case OutWake:
			j.at(o.At, func() { s.stepRoot(Input{Kind: InTick}) })
		case OutFinish:
			if s.finish != nil {
				j.t.Errorf("the root finished twice")
			}
			s.finish = &o
			j.ends = append(j.ends, s)
			if j.onEnd != nil && len(j.ends) == 1 {
				j.onEnd()
			}
			if s.late {
				continue // a disk that does not answer
			}
			j.after(20*time.Millisecond, func() { s.stepRoot(Input{Kind: InReported, Told: &Decision{Code: o.Code, Cause: o.Cause}}) })
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
				m := j.wire(o.Msg)
				j.at(j.now, func() { s.stepRoot(Input{Kind: InMessage, Msg: m}) })
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
			if o.All && s.summed[o.Seq] { // the work is over
				body, _ := encodeRuns(SetOf(s.p))
				in := MemberInput{Kind: MLocalSummary, Seq: o.Seq, Body: body}
				j.at(j.now, func() { s.step(in) })
				continue
			}
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
		case MReattach:
			s.search = true
			j.after(10*time.Millisecond, func() { s.look(j.now, o.Cause) })
		case MNote:
			j.t.Errorf("process %d: %s", s.p, o.Cause)
		case MExit:
			s.gone, s.exit, s.exitAt = true, o, j.now
			if o.Abandon {
				s.closeLinks()
			}
		}
	}
}

// look looks for the root: the lowest living process. What is stopped costs
// time, who looks for the root itself is waited for.
func (s *simProc) look(begun Time, cause *rank.Error) {
	j := s.job
	if s.silent() {
		return
	}
	var gone ProcSet
	for _, q := range j.procs[:s.p] {
		switch {
		case q.dead || q.gone:
			gone.Add(q.p)
			continue
		case q.stopped && j.now < begun+int64(2*time.Second), q.search:
			j.after(50*time.Millisecond, func() { s.look(begun, cause) })
			return
		case q.stopped:
			gone.Add(q.p)
			continue
		case q.root == nil || !q.root.Admits(s.p):
			if q.root == nil && j.now < begun+int64(3*time.Second) { // it may not know yet
				j.after(50*time.Millisecond, func() { s.look(begun, cause) })
				return
			}
			s.search = false
			s.step(MemberInput{Kind: MGivenUp, Cause: rank.Errorf(rank.KindLost, "given up by process %d", q.p)})
			return
		}
		s.search = false
		s.parent = q.p
		if !slices.Contains(q.children, s.p) {
			q.children = append(q.children, s.p)
		}
		living := s.member.Living()
		q.step(MemberInput{Kind: MChildJoined, Proc: s.p, Msg: Message{Covers: living}})
		q.stepRoot(Input{Kind: InAttached, Proc: s.p, Msg: Message{Covers: living}, Cause: cause, Told: s.member.Told()})
		s.step(MemberInput{Kind: MAttached, Proc: q.p})
		return
	}
	s.search = false
	s.parent = rank.NoProc
	s.root = NewRoot(RootConfig{
		Self: s.p, Procs: len(j.procs), Schedule: j.sched, Limits: j.limits, Merge: simMerge, Describe: storyHost,
		Takeover: &Takeover{Seq: s.member.Seq(), Below: s.member.Living(), Lost: gone, Cause: cause, Told: s.member.Told()},
	})
	s.step(MemberInput{Kind: MTakeRoot})
	s.stepRoot(Input{Kind: InStart})
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
			if in.Kind == MLocalSummary {
				s.summed[seq] = true
			}
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
	s.linkUp[s.parent] = max(s.linkUp[s.parent], j.now+j.rng.Int64N(int64(j.delay)))
	to := j.procs[s.parent]
	j.at(s.linkUp[s.parent], func() { to.step(in) })
}

func (s *simProc) sendDown(c rank.Proc, in MemberInput) {
	j := s.job
	s.linkDown[c] = max(s.linkDown[c], j.now+j.rng.Int64N(int64(j.delay)))
	to := j.procs[c]
	j.at(s.linkDown[c], func() {
		if to.parent == s.p { // else it hangs below another one by now
			to.step(in)
		}
	})
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

// stop makes a process mute with its links open, as SIGSTOP does. When its
// neighbours miss its pings they take it for lost.
func (s *simProc) stop(found bool) {
	j := s.job
	s.stopped = true
	if found {
		j.at(j.now+int64(3*time.Second), func() {
			silent := &rank.Error{Kind: rank.KindLost, Proc: s.p, Peer: rank.None, Text: "does not answer a ping"}
			if s.parent != rank.NoProc {
				j.procs[s.parent].step(MemberInput{Kind: MChildLost, Proc: s.p, Cause: silent})
			}
			for _, c := range s.children {
				if j.procs[c].parent == s.p {
					j.procs[c].step(MemberInput{Kind: MParentLost, Cause: silent})
				}
			}
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

// longest a job of this schedule may last by its limits.
func (j *simJob) longest() time.Duration {
	d := j.limits.Phase + 2*j.limits.Margin
	for seq := range j.sched.Len() {
		slot := j.sched.At(seq)
		d += 2*j.limits.Prepare + j.limits.Phase + slot.Hold + 8*j.delay + j.limits.Lead
	}
	return d
}
