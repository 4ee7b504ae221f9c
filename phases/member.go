package phases

import (
	"fmt"
	"slices"
	"time"

	"rankstorm/rank"
)

// Child of a member in the control tree.
type Child struct {
	Proc    rank.Proc
	Subtree ProcSet // the child and everybody below it
}

// MemberConfig of NewMember.
type MemberConfig struct {
	Self     rank.Proc
	Parent   rank.Proc // NoProc at the root process: its parent is the Root machine
	Children []Child
	Procs    int // P ≥ 1
	Schedule *Schedule
	Limits   Limits
	Merge    MergeFunc
	// Filter reduces a Collect message with an exchanged whole to what the
	// subtree of child needs; nil sends the whole to everybody. It is pure and
	// does not change the message's body.
	Filter func(child rank.Proc, m Message) Message
	// Describe names the host and the ranks of a process; may be nil.
	Describe func(rank.Proc) (host string, ranks []rank.Rank)
}

// Member carries one process through the slots: it hands what comes down to
// its children, starts local work, and sends up one reply for its whole
// living subtree. The clock of Step is the root's.
//
// Messages and ends of local work of another slot, state or epoch are stale
// and ignored. Replies that speak for somebody already counted, or for somebody
// outside the child's subtree, are refused with MNote.
//
// What a member does without a parent is in orphan.go.
type Member struct {
	cfg      MemberConfig
	describe describer
	parent   rank.Proc
	orphan   bool      // the parent is lost, the root is looked for
	held     []Message // Lost and Cancel that wait for a way up
	epoch    int64     // of the replies
	changed  bool      // children joined in this epoch: it will be replaced
	ask      int32     // slot that replies are for; of an Abort it may be another than the own
	given    *Message  // own reply of the state
	state    State
	slot     Slot
	entry    Entry   // of the slot's phase
	below    ProcSet // self and all subtrees, less the lost
	replies  replies
	told     *Decision // the verdict, once it is known
	own      bool      // own reply of the state was given
	flushAt  Time      // incomplete replies go up from here on, 0: never
	final    Time      // own deadline, 0: none
	wake     Time
	signals  int
	progress []progress // own, then the children's
	awaited  string     // what the own deadline waits for, for its text
	childAt  map[rank.Proc]int
	out      []MemberOutput
}

type progress struct{ done, total int64 }

// NewMember makes the machine. One tick at the beginning starts its own
// deadline for the first Prepare: Limits.Phase + Margin.
func NewMember(cfg MemberConfig) *Member {
	m := &Member{
		cfg:      cfg,
		describe: cfg.Describe,
		parent:   cfg.Parent,
		below:    SetOf(cfg.Self),
		progress: make([]progress, 1+len(cfg.Children)),
		childAt:  make(map[rank.Proc]int, len(cfg.Children)),
	}
	m.cfg.Children = slices.Clone(cfg.Children)
	for i, c := range cfg.Children {
		m.below.Union(c.Subtree)
		m.childAt[c.Proc] = i
	}
	return m
}

// Step takes one input and returns what has to be done, in order. now is on
// the root's clock and never goes back. The causes in the outputs are shared
// and must not be changed.
func (m *Member) Step(now Time, in MemberInput) []MemberOutput {
	if m.state == Finished {
		return nil
	}
	m.out = nil
	switch in.Kind {
	case MFromParent:
		m.fromParent(now, in.Msg)
	case MFromChild:
		m.fromChild(in.Proc, in.Msg)
	case MLocalReady:
		m.local(Ready, in)
	case MLocalDone:
		m.local(Done, in)
	case MLocalSummary:
		m.local(Summary, in)
	case MLocalProgress:
		m.localProgress(in)
	case MChildLost:
		m.childLost(in.Proc, in.Cause)
	case MParentLost:
		m.parentLost(now, in.Cause)
	case MAttached:
		m.attached(now, in.Proc)
	case MTakeRoot:
		m.attached(now, rank.NoProc)
	case MGivenUp:
		m.givenUp(m.describe.complete(in.Cause, m.slot.Phase))
	case MChildJoined:
		m.joined(in.Proc, in.Msg.Covers)
	case MCancel:
		m.cancel(in.Cause)
	case MTick:
		if m.state == Idle && m.final == 0 {
			m.final = now + int64(m.cfg.Limits.Phase+m.cfg.Limits.Margin)
		}
	}
	m.checkDeadlines(now)
	m.setWake()
	out := m.out
	m.out = nil
	return out
}

func (m *Member) fromParent(now Time, msg Message) {
	if m.state == Parting && msg.Type != Resume && msg.Type != Wait && msg.Type != Bye {
		return
	}
	switch msg.Type {
	case Prepare:
		m.prepare(now, msg)
	case Go:
		if m.state == Preparing && msg.Seq == m.slot.Seq {
			m.down(msg)
			m.begin(msg)
		}
	case Collect:
		if m.state == Running && msg.Seq == m.slot.Seq {
			m.collectDown(msg)
			m.collect(now, msg)
		}
	case Resume:
		m.resume(now, msg)
	case Wait:
		m.extend(now, m.cfg.Limits.Search)
		m.down(msg)
	case Abort:
		m.abort(now, msg)
	case Lost:
		m.heardLost(now, msg)
	case Verdict:
		m.hear(now, msg)
	case Bye:
		m.leave(msg.Code, msg.Cause, false)
	}
}

func (m *Member) prepare(now Time, msg Message) {
	// Slots come in order. After an Abort none follows.
	next := msg.Seq == m.slot.Seq+1 && m.state == Collecting
	if msg.Seq >= m.cfg.Schedule.Len() || !next && !(msg.Seq >= 0 && m.state == Idle) {
		return
	}
	m.slot = m.cfg.Schedule.At(msg.Seq)
	m.entry, _ = Lookup(m.slot.Phase)
	m.ask = msg.Seq
	m.expect(Ready, Preparing)
	m.deadlinesAfter(now, m.slot.Ahead+m.cfg.Limits.Prepare, "the go")
	clear(m.progress)
	m.down(msg)
	m.emit(MemberOutput{Kind: MPrepare, Seq: msg.Seq, Last: msg.Last})
}

func (m *Member) begin(msg Message) {
	m.expect(Done, Running)
	m.deadlinesAfter(msg.T, m.slot.Hold+m.cfg.Limits.Phase, "the end of the phase")
	// The lead comes from the phase alone: a hold says nothing about how
	// closely the job is watched.
	m.flushAt = msg.T + int64(m.slot.Hold+m.cfg.Limits.Phase-flushLead(m.cfg.Limits.Phase))
	m.emit(MemberOutput{Kind: MBegin, Seq: msg.Seq, T: msg.T})
}

// collectDown passes a Collect on, with what each child's subtree needs of it.
func (m *Member) collectDown(msg Message) {
	if m.entry.Exchange && m.cfg.Filter != nil {
		for _, c := range m.cfg.Children {
			if m.below.Has(c.Proc) {
				m.emit(MemberOutput{Kind: MDown, Msg: m.cfg.Filter(c.Proc, msg)})
				m.out[len(m.out)-1].Proc = c.Proc
			}
		}
	} else {
		m.down(msg)
	}
}

func (m *Member) collect(now Time, msg Message) {
	m.expect(Summary, Collecting)
	m.deadlinesAfter(now, m.cfg.Limits.Prepare, "the next phase")
	m.final += int64(m.cfg.Limits.Report) // if this is the last slot
	m.emit(MemberOutput{Kind: MCollect, Seq: msg.Seq, Msg: msg, Abort: msg.Type == Resume})
}

// abort breaks the slot off. If its summary is under way already, that one
// counts.
func (m *Member) abort(now Time, msg Message) {
	if msg.Seq != m.slot.Seq || m.state != Preparing && m.state != Running {
		return
	}
	m.down(msg)
	m.breakOff(now, msg)
}

func (m *Member) breakOff(now Time, msg Message) {
	m.expect(Summary, Aborting)
	m.deadlinesAfter(now, m.cfg.Limits.Abort, "the end of the job")
	m.extend(now, 0)
	m.emit(MemberOutput{Kind: MCollect, Seq: m.slot.Seq, Msg: msg, Abort: true, All: msg.All, Cause: msg.Cause})
}

// heardLost hears from the root that processes are gone. If this process is among
// them, it was given up while it could not answer: it leaves.
func (m *Member) heardLost(now Time, msg Message) {
	if msg.Covers.Has(m.cfg.Self) {
		m.abandon(m.describe.complete(msg.Cause, m.slot.Phase))
		return
	}
	m.extend(now, 0)
	m.below.Subtract(msg.Covers)
	m.down(msg)
	m.emit(MemberOutput{Kind: MLost, Seq: m.slot.Seq, Msg: msg, Cause: msg.Cause})
	m.forward()
}

func (m *Member) fromChild(from rank.Proc, msg Message) {
	i, known := m.childAt[from]
	if !known {
		return
	}
	switch msg.Type {
	case Ready, Done, Summary, Heard:
		if msg.Seq != m.ask || msg.Epoch != m.epoch || !m.waitsFor(msg.Type) {
			return
		}
		if !m.cfg.Children[i].Subtree.Contains(msg.Covers) || !m.replies.take(from, m.stripped(msg)) {
			if m.changed {
				return // from before its subtree moved; it will be asked for again
			}
			e := rank.Errorf(rank.KindInternal,
				"refused a %s: it speaks for processes already counted, for others than its own, or for nobody", msg.Type)
			e.Proc = from
			m.emit(MemberOutput{Kind: MNote, Seq: m.slot.Seq, Cause: m.describe.complete(e, m.slot.Phase)})
			return
		}
		m.forward()
	case Progress:
		if msg.Seq == m.slot.Seq && m.state == Running {
			m.progress[1+i] = progress{msg.Done, msg.Total}
		}
	case Lost:
		lost, orphans := msg.Covers.Clone(), msg.Orphans.Clone()
		lost.Intersect(m.cfg.Children[i].Subtree)
		orphans.Intersect(m.cfg.Children[i].Subtree)
		m.lose(lost, orphans, msg.Cause)
	case Cancel:
		m.up(Message{Type: Cancel, Seq: msg.Seq, Cause: msg.Cause})
	}
}

// stripped drops a body that its message has no business to carry, so that it
// cannot pile up on the way to the root.
func (m *Member) stripped(msg Message) Message {
	if msg.Type == Ready || msg.Type == Heard || msg.Type == Done && !m.entry.Exchange {
		msg.Body = nil
	}
	return msg
}

func (m *Member) local(t Type, in MemberInput) {
	if in.Seq != m.slot.Seq || !m.waitsFor(t) || m.own {
		return
	}
	m.own = true
	msg := Message{Type: t, Seq: m.ask, Covers: SetOf(m.cfg.Self), Failed: in.Failed, Body: in.Body}
	if in.Cause != nil {
		c := *in.Cause
		if c.Proc == rank.NoProc {
			c.Proc = m.cfg.Self
		}
		msg.Cause = m.describe.complete(&c, m.slot.Phase)
	}
	msg = m.stripped(msg)
	m.given = &msg
	m.replies.take(m.cfg.Self, msg)
	m.forward()
}

// localProgress sends up the sum of the subtree. Children are only stored, so
// that the root hears from its children once per period however deep the tree.
func (m *Member) localProgress(in MemberInput) {
	if in.Seq != m.slot.Seq || m.state != Running {
		return
	}
	m.progress[0] = progress{in.Done, in.Total}
	sum := m.progress[0]
	for i, c := range m.cfg.Children {
		if m.below.Has(c.Proc) { // what hangs below a lost child comes again by another way
			sum.done += m.progress[1+i].done
			sum.total += m.progress[1+i].total
		}
	}
	m.up(Message{Type: Progress, Seq: in.Seq, Done: sum.done, Total: sum.total})
}

func (m *Member) childLost(child rank.Proc, why *rank.Error) {
	i, known := m.childAt[child]
	if !known || !m.below.Has(child) {
		return
	}
	m.lose(SetOf(child), m.cfg.Children[i].Subtree.Clone(),
		m.describe.lost(child, m.cfg.Self, m.slot.Phase, why))
}

// lose reports those of lost and orphans that were not known to be gone from
// below; replies no longer wait for them here: orphans go to the root.
func (m *Member) lose(lost, orphans ProcSet, cause *rank.Error) {
	self := SetOf(m.cfg.Self)
	lost.Intersect(m.below)
	lost.Subtract(self)
	orphans.Intersect(m.below)
	orphans.Subtract(self)
	orphans.Subtract(lost)
	if lost.Len() == 0 && orphans.Len() == 0 {
		return
	}
	m.below.Subtract(lost)
	m.below.Subtract(orphans)
	m.up(Message{Type: Lost, Seq: m.slot.Seq, Covers: lost, Orphans: orphans, Cause: cause})
	m.forward()
}

// cancel reports a signal or a local fault. A second signal means now.
func (m *Member) cancel(cause *rank.Error) {
	c := m.describe.complete(cause, m.slot.Phase)
	if c.Proc == rank.NoProc {
		c.Proc = m.cfg.Self
		c = m.describe.complete(c, m.slot.Phase)
	}
	if c.Kind == rank.KindCancelled {
		m.signals++
		if m.signals > 1 {
			m.leave(rank.ExitCode(c), c, true)
			return
		}
	}
	m.up(Message{Type: Cancel, Seq: m.slot.Seq, Cause: c})
}

// leave ends the machine; the children end with the same code and cause. Who
// leaves of its own accord does so without a goodbye, so that its parent hears
// of a loss.
func (m *Member) leave(code int, cause *rank.Error, own bool) {
	m.state, m.final, m.flushAt = Finished, 0, 0
	m.down(Message{Type: Bye, Seq: m.slot.Seq, Code: code, Cause: cause})
	m.emit(MemberOutput{Kind: MExit, Seq: m.slot.Seq, Code: code, Cause: cause, Abandon: own})
}

func (m *Member) waitsFor(t Type) bool {
	return m.state != Idle && m.state != Finished && m.replies.typ == t
}

func (m *Member) expect(t Type, state State) {
	m.replies = replies{typ: t}
	m.state, m.own, m.given = state, false, nil
}

// deadlinesAfter sets the own deadlines of a state that the root ends within
// limit after from.
func (m *Member) deadlinesAfter(from Time, limit time.Duration, what string) {
	m.flushAt = from + int64(limit-flushLead(limit))
	m.final = from + int64(limit+m.cfg.Limits.Margin)
	m.awaited = what
}

// forward sends up what is fresh, if the reply is complete or the time for
// incomplete ones has come.
func (m *Member) forward() {
	if m.state == Idle || m.state == Finished || m.replies.closed {
		return
	}
	r := &m.replies
	r.need = m.below
	done := r.complete()
	if !done && m.flushAt != 0 || r.fresh.Len() == 0 {
		return
	}
	r.closed = done
	msg := Message{Type: r.typ, Seq: m.ask, Epoch: m.epoch, Covers: r.fresh, Failed: r.failed, Cause: r.cause}
	body, err := r.merged(m.slot, m.cfg.Merge)
	if err != nil {
		c := *rank.AsError(err, rank.KindInternal)
		c.Proc = m.cfg.Self
		m.up(Message{Type: Cancel, Seq: m.slot.Seq, Cause: m.describe.complete(&c, m.slot.Phase)})
	}
	msg.Body = body
	r.fresh, r.failed, r.cause = nil, 0, nil
	m.up(msg)
}

func (m *Member) checkDeadlines(now Time) {
	if m.flushAt != 0 && now >= m.flushAt {
		m.flushAt = 0
		m.forward()
	}
	if m.final == 0 || now < m.final {
		return
	}
	if m.told != nil { // nobody says Bye, but the verdict stands
		m.leave(m.told.Code, m.told.Cause, true)
		return
	}
	m.leave(1, m.silence(), true)
}

// silence is the cause of the own deadline: who should have spoken.
func (m *Member) silence() *rank.Error {
	e := &rank.Error{Kind: rank.KindTimeout, Peer: rank.None, Phase: string(m.slot.Phase)}
	silent := m.parent
	if silent == rank.NoProc { // the root machine is in this very process
		silent = m.cfg.Self
	}
	m.describe.about(e, []rank.Proc{silent})
	what := m.awaited
	if what == "" {
		what = "the first phase"
	}
	e.Text = fmt.Sprintf("silent: %s was not told within the limits and %s", what, m.cfg.Limits.Margin)
	if m.state == Idle {
		return e
	}
	rest := m.below.Clone()
	rest.Subtract(m.replies.got)
	if missing := slices.Collect(rest.All()); len(missing) > 0 {
		e.Text += fmt.Sprintf("; no %s from %s", m.replies.typ, m.describe.names(missing))
	}
	return e
}

// up sends to the parent. Without one, what tells of the living is asked for
// again later, and what tells of the lost waits.
func (m *Member) up(msg Message) {
	switch {
	case !m.orphan:
		m.emit(MemberOutput{Kind: MUp, Msg: msg})
	case msg.Type == Lost || msg.Type == Cancel:
		m.held = append(m.held, msg)
	}
}

func (m *Member) down(msg Message) {
	if len(m.cfg.Children) > 0 {
		m.emit(MemberOutput{Kind: MDown, Msg: msg})
	}
}

func (m *Member) emit(o MemberOutput) {
	o.Proc = rank.NoProc
	m.out = append(m.out, o)
}

func (m *Member) setWake() {
	at := m.final
	if m.flushAt != 0 && !m.replies.closed && (at == 0 || m.flushAt < at) {
		at = m.flushAt
	}
	if at != m.wake && at != 0 {
		m.emit(MemberOutput{Kind: MWake, At: at})
	}
	m.wake = at
}
