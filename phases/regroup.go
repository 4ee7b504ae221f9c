package phases

import (
	"fmt"
	"slices"
	"time"

	"rankstorm/rank"
)

// Takeover is what a successor starts from: the running slot is broken off,
// everybody alive hangs on to it within Limits.Orphans, sends the summaries of
// all slots that it still has, and the job ends with the lost root as its cause.
type Takeover struct {
	Seq   int32       // the successor's own slot, -1 before the first
	Below ProcSet     // the successor and who hangs below it
	Lost  ProcSet     // who was found gone on the way
	Cause *rank.Error // how the root was lost
	Told  *Decision   // the verdict of the lost root, if the successor knows it: only the others must hear of it
}

// takeOver begins in place of a lost root.
func (r *Root) takeOver(now Time, t Takeover) {
	if t.Seq >= 0 {
		r.slot = r.cfg.Schedule.At(t.Seq)
	}
	r.all = true
	lost := t.Lost.Clone()
	lost.Subtract(t.Below)
	r.alive.Subtract(lost)
	if t.Told != nil {
		r.orphans = r.alive.Clone()
		r.orphans.Subtract(t.Below)
		r.orphansBy = now + int64(r.cfg.Limits.Orphans)
		r.inherit(now, t.Told)
		r.regroup(now)
		return
	}
	r.blame(r.describe.complete(t.Cause, r.slot.Phase))
	if others := slices.DeleteFunc(slices.Collect(lost.All()), func(p rank.Proc) bool { return p == r.cause.Proc }); len(others) > 0 {
		r.note("also gone: %s", r.describe.names(others))
	}
	r.orphans = r.alive.Clone()
	r.orphans.Subtract(t.Below)
	r.regrouped = true
	r.orphansBy = now + int64(r.cfg.Limits.Orphans)
	r.expect(Summary, Aborting, now+int64(r.cfg.Limits.Abort))
	r.regroup(now)
}

// lose takes processes out of the job, and waits a little for those who lost
// their way here with them. Without a slot under way the job ends; otherwise
// the slot ends among the living.
func (r *Root) lose(now Time, procs, orphans ProcSet, cause *rank.Error) {
	self := SetOf(r.cfg.Self)
	procs.Intersect(r.alive)
	procs.Subtract(self)
	orphans.Intersect(r.alive)
	orphans.Subtract(self)
	orphans.Subtract(procs)
	if procs.Len() == 0 && orphans.Len() == 0 {
		return
	}
	r.alive.Subtract(procs)
	r.orphans.Subtract(procs)
	r.doubted.Subtract(procs)
	if orphans.Len() > 0 {
		r.orphans.Union(orphans)
		r.orphansBy = now + int64(r.cfg.Limits.Orphans)
		r.awaitOrphans()
	}
	cause = r.describe.complete(cause, r.slot.Phase)
	r.blame(cause)
	if procs.Len() > 0 && (r.state == Running || r.state == Collecting || r.state == Aborting) {
		r.down(Message{Type: Lost, Seq: r.slot.Seq, Covers: procs, Cause: cause})
	}
	r.regroup(now)
}

// Admits says whether an orphan may hang on to this root: whoever was given up
// before, or comes when all is over, may not. Once the end is decided whoever
// comes may still hear of it.
func (r *Root) Admits(p rank.Proc) bool {
	return r.state != Finished && p != r.cfg.Self && (r.alive.Has(p) || r.decided())
}

// attach counts on an orphan and its subtree again. That it came says that a
// way was lost; if nobody has told of that yet, this is the cause.
func (r *Root) attach(now Time, in Input) {
	p, subtree, cause := in.Proc, in.Msg.Covers, in.Cause
	if !r.Admits(p) {
		return
	}
	if in.Told != nil && r.state != Parting {
		r.inherit(now, in.Told)
	}
	if r.decided() {
		r.alive.Union(subtree)
	}
	r.orphans.Subtract(subtree)
	r.regrouped = true
	if cause != nil && cause.Proc != r.cfg.Self && r.alive.Has(cause.Proc) {
		// More may be lost with it, and told by others in a moment.
		r.doubted.Add(cause.Proc)
		r.orphansBy = max(r.orphansBy, now+int64(r.cfg.Limits.Orphans))
	}
	if !r.decided() { // else it was told, or is no news
		r.blame(r.describe.complete(cause, r.slot.Phase))
	}
	r.regroup(now)
}

// regroup goes on after a change of the tree. The replies are asked for again
// when nobody is on the way any more.
func (r *Root) regroup(now Time) {
	if r.orphans.Len()+r.doubted.Len() == 0 {
		r.orphansBy = 0
	}
	switch {
	case r.state == Idle, r.state == Preparing:
		r.finish(now)
	case r.state == Reporting:
	case r.orphans.Len() == 0 && r.regrouped:
		r.resume(now)
	default:
		r.advance(now)
	}
}

// resume asks for all replies of the state again, in a new epoch.
func (r *Root) resume(now Time) {
	r.regrouped = false
	r.epoch++
	r.fresh = 0
	r.replies = replies{typ: r.replies.typ}
	of := Go
	switch r.state {
	case Collecting:
		of = Collect
		r.deadline = max(r.deadline, now+int64(r.cfg.Limits.Abort))
	case Aborting:
		of = Abort
		r.deadline = now + int64(r.cfg.Limits.Abort)
	case Parting:
		of = Verdict
		r.deadline = max(r.deadline, now+int64(r.cfg.Limits.Abort))
	}
	gone := Full(r.cfg.Procs)
	gone.Subtract(r.alive)
	m := Message{Type: Resume, Seq: r.slot.Seq, Epoch: r.epoch, Of: of, T: r.start, All: r.all, Covers: gone, Cause: r.cause}
	if of == Verdict {
		m.Code, m.Cause = r.told.Code, r.told.Cause
	}
	r.down(m)
}

// awaitOrphans moves the deadline for summaries behind the arrival of orphans.
func (r *Root) awaitOrphans() {
	if r.orphans.Len() > 0 && (r.state == Collecting || r.state == Aborting || r.state == Parting) {
		r.deadline = max(r.deadline, r.orphansBy+int64(r.cfg.Limits.Abort))
	}
}

// giveUpOrphans takes those for lost who have not come.
func (r *Root) giveUpOrphans(now Time) {
	if r.orphansBy == 0 || now < r.orphansBy || r.state == Finished {
		return
	}
	late := r.orphans
	r.orphans, r.doubted, r.orphansBy = nil, nil, 0
	if late.Len() == 0 || r.inherited { // the lost root may have let them go
		r.alive.Subtract(late)
		r.regroup(now)
		return
	}
	e := &rank.Error{Kind: rank.KindLost, Peer: rank.None}
	procs := slices.Collect(late.All())
	r.describe.about(e, procs)
	e.Text = fmt.Sprintf("lost the way to the root and did not come back within %s: %s%s",
		r.cfg.Limits.Orphans.Round(time.Millisecond), r.describe.names(procs), r.describe.hosts(procs))
	r.lose(now, late, nil, e)
}
