package phases

import (
	"time"

	"rankstorm/rank"
)

// A member whose parent is gone goes on with its work, keeps its children, and
// has its shell look for the root (MReattach). In the end it hangs below the
// root directly, or is the root itself because every process with a lower
// number is gone, or leaves because the root has given it up.
//
// Nobody can tell which of its replies came through before the parent died. So
// the root asks everybody again: Resume names where the slot stands, for those
// who missed it, and who is gone, and opens a new epoch. Replies of earlier epochs are ignored
// everywhere, and everyone has one parent per epoch; a process is therefore
// counted once however often the tree changes.

func (m *Member) parentLost(now Time, why *rank.Error) {
	if m.orphan || m.parent == rank.NoProc {
		return
	}
	m.orphan = true
	m.extend(now, m.cfg.Limits.Search)
	m.down(Message{Type: Wait, Seq: m.slot.Seq})
	m.emit(MemberOutput{Kind: MReattach, Seq: m.slot.Seq, Cause: m.describe.lost(m.parent, m.cfg.Self, m.slot.Phase, why)})
}

// attached has a way up again: to another process or, NoProc, to the root
// machine of this very process.
func (m *Member) attached(now Time, parent rank.Proc) {
	if !m.orphan {
		return
	}
	m.orphan, m.parent = false, parent
	m.extend(now, 0)
	held := m.held
	m.held = nil
	for _, msg := range held {
		m.up(msg)
	}
}

// joined takes an orphan with its subtree as a child. They hang below no other
// child any more, whatever that one still says about them; and who is a child
// here is not below the orphan, whatever that has not heard yet.
func (m *Member) joined(child rank.Proc, subtree ProcSet) {
	subtree = subtree.Clone()
	for i := range m.cfg.Children {
		c := &m.cfg.Children[i]
		if c.Proc != child && subtree.Has(c.Proc) && m.below.Has(c.Proc) {
			subtree.Subtract(c.Subtree)
			continue
		}
		c.Subtree = c.Subtree.Clone()
		c.Subtree.Subtract(subtree)
	}
	m.changed = true
	i, known := m.childAt[child]
	if !known {
		i = len(m.cfg.Children)
		m.childAt[child] = i
		m.cfg.Children = append(m.cfg.Children, Child{Proc: child})
		m.progress = append(m.progress, progress{})
	}
	m.cfg.Children[i].Subtree = subtree
	m.below.Union(subtree)
}

// Living is this process and everybody below it who is not known to be gone; a
// copy.
func (m *Member) Living() ProcSet { return m.below.Clone() }

// Seq is the slot under way, -1 before the first.
func (m *Member) Seq() int32 {
	if m.slot.Phase == "" {
		return -1
	}
	return m.slot.Seq
}

// resume catches up with the root and gives the reply again.
func (m *Member) resume(now Time, msg Message) {
	if msg.Epoch <= m.epoch {
		return
	}
	m.epoch, m.changed = msg.Epoch, false
	m.below.Subtract(msg.Covers)
	m.down(msg)
	if msg.Covers.Len() > 0 && msg.Of == Go { // an orphan has not been told
		m.emit(MemberOutput{Kind: MLost, Seq: m.slot.Seq, Msg: msg, Cause: msg.Cause})
	}
	switch {
	case m.told != nil:
		// The root may be a successor that does not know the verdict yet; it is asked for nothing else.
		if msg.Of == Verdict {
			m.acknowledge(msg.Seq)
		}
	case msg.Of == Verdict:
		m.hearing(now, msg)
	case msg.Of == Abort && m.state == Idle, msg.Of == Abort && msg.Seq != m.slot.Seq && !msg.All:
		// Nothing was measured here that is still missing.
		m.ask = msg.Seq
		m.expect(Summary, Aborting)
		m.own = true
		m.given = &Message{Type: Summary, Seq: m.ask, Covers: SetOf(m.cfg.Self)}
		m.again()
	case msg.Of == Abort && (msg.All || m.state != Collecting && m.state != Aborting):
		m.ask = msg.Seq
		m.breakOff(now, msg)
	case msg.Of == Abort:
		m.again()
	case msg.Seq != m.slot.Seq || m.state == Idle:
		return
	case msg.Of == Go && m.state == Preparing:
		m.begin(msg)
	case msg.Of == Go && m.state == Running, msg.Of == Collect && m.state == Collecting:
		m.again()
	case msg.Of == Collect && (m.state == Preparing || m.state == Running):
		m.collect(now, msg)
	}
	m.extend(now, 0)
}

// again starts the replies of the state over with the own one.
func (m *Member) again() {
	m.replies = replies{typ: m.replies.typ}
	if m.given != nil {
		m.replies.take(m.cfg.Self, *m.given)
	}
	m.forward()
}

// extend moves the own deadline so far that whoever looks for the root, and
// the root itself, come first.
func (m *Member) extend(now Time, search time.Duration) {
	l := m.cfg.Limits
	m.final = max(m.final, now+int64(search+l.Orphans+l.Abort+l.Margin))
}

// abandon leaves without a goodbye: the children are orphans and find the root
// themselves.
func (m *Member) abandon(cause *rank.Error) {
	m.state, m.final, m.flushAt = Finished, 0, 0
	m.emit(MemberOutput{Kind: MExit, Seq: m.slot.Seq, Code: max(1, rank.ExitCode(cause)), Cause: cause, Abandon: true})
}

// givenUp ends a process that has no way to the root any more.
func (m *Member) givenUp(cause *rank.Error) {
	if m.told != nil {
		m.leave(m.told.Code, m.told.Cause, true)
		return
	}
	m.abandon(cause)
}
