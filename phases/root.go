package phases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rankstorm/rank"
)

// RootConfig of NewRoot.
type RootConfig struct {
	Self     rank.Proc // the process that the root runs in; it cannot be lost to itself
	Procs    int       // P ≥ 1
	Schedule *Schedule
	Limits   Limits
	Began    Time      // when the job began, for Limits.MaxTime; 0: at InStart
	Merge    MergeFunc // needed when incomplete replies have to be put together
	// Describe names the host and the ranks of a process; may be nil.
	Describe func(rank.Proc) (host string, ranks []rank.Rank)
	// Takeover makes this root the successor of a lost one; nil at process 0.
	Takeover *Takeover
}

// Root decides for the whole job. See the package comment for its states.
//
// Replies of another slot or of another state are stale and ignored without a
// word: they are what a late process sends after the root has gone on. Replies
// that speak for a process already counted are refused with a note.
//
// What it does about those whose way to it was lost is in regroup.go.
type Root struct {
	cfg      RootConfig
	describe describer
	state    State
	started  bool
	slot     Slot
	last     bool // no slot follows the running one
	alive    ProcSet
	replies  replies
	treeTime time.Duration
	start    Time // T of the running slot
	deadline Time // of the state, 0 none
	jobEnd   Time // Limits.MaxTime, 0 none
	wake     Time // last OutWake
	cause    *rank.Error
	fault    *rank.Error // first failure that did not stop the job
	failed   []phaseFailures
	fresh    int64 // failures told in the running state: told again after a Resume

	orphans   ProcSet // alive, on their way here
	orphansBy Time    // when those still missing are given up
	doubted   ProcSet // an orphan says that they are lost, nobody else has yet
	regrouped bool    // somebody was attached since the last Resume
	told      *Decision
	inherited bool // the verdict is the lost root's, and so is the report
	epoch     int64
	all       bool // a successor: asks for the summaries of all slots
	done      int64
	total     int64
	out       []Output
}

type phaseFailures struct {
	phase Token
	count int64
}

// NewRoot makes the machine. It waits for InStart.
func NewRoot(cfg RootConfig) *Root {
	return &Root{cfg: cfg, describe: cfg.Describe, alive: Full(cfg.Procs), epoch: int64(cfg.Self) << 32}
}

// Slot is the slot under way, or the last one; ok is false before the first.
func (r *Root) Slot() (slot Slot, ok bool) { return r.slot, r.slot.Phase != "" }

// Waiting is the set of processes whose reply is missing now; a copy.
func (r *Root) Waiting() ProcSet {
	if r.state == Idle || r.state == Reporting || r.state == Finished {
		return nil
	}
	s := r.alive.Clone()
	s.Subtract(r.replies.got)
	return s
}

// Progress is what the members last told about the slot, 0 of 0 if nothing.
func (r *Root) Progress() (done, total int64) { return r.done, r.total }

// Step takes one input and returns what has to be done, in order. now is on
// the root's clock and never goes back. The causes in the outputs are shared
// and must not be changed.
func (r *Root) Step(now Time, in Input) []Output {
	if r.state == Finished {
		return nil
	}
	r.out = nil
	switch in.Kind {
	case InStart:
		r.begin(now, in.TreeTime)
	case InMessage:
		r.message(now, in.Msg)
	case InLost:
		r.lose(now, SetOf(in.Procs...), nil, in.Cause)
	case InAttached:
		r.attach(now, in)
	case InReported:
		r.reported(now, in.Told)
	}
	r.checkDeadlines(now)
	r.setWake()
	out := r.out
	r.out = nil
	return out
}

func (r *Root) begin(now Time, treeTime time.Duration) {
	if r.started || r.state != Idle {
		return
	}
	r.started = true
	r.treeTime = treeTime
	if r.cfg.Limits.MaxTime > 0 {
		began := r.cfg.Began
		if began == 0 {
			began = now
		}
		r.jobEnd = began + int64(r.cfg.Limits.MaxTime)
	}
	if r.cfg.Takeover != nil {
		r.takeOver(now, *r.cfg.Takeover)
		return
	}
	r.prepare(now, 0)
}

func (r *Root) message(now Time, m Message) {
	switch m.Type {
	case Lost:
		r.lose(now, m.Covers.Clone(), m.Orphans.Clone(), m.Cause)
	case Cancel:
		r.stop(now, m.Cause)
	case Ready, Done, Summary, Heard:
		if m.Seq == r.slot.Seq && m.Epoch == r.epoch && r.waitsFor(m.Type) && r.take(m) {
			r.advance(now)
		}
	case Progress:
		if m.Seq == r.slot.Seq && r.state == Running {
			r.done, r.total = m.Done, m.Total
		}
	}
}

func (r *Root) waitsFor(t Type) bool {
	switch r.state {
	case Preparing, Running, Collecting, Aborting, Parting:
		return r.replies.typ == t
	}
	return false
}

func (r *Root) take(m Message) bool {
	if !r.replies.take(r.cfg.Self, m) {
		r.note("refused a %s of slot %d (%s): it speaks for processes already counted, or for nobody", m.Type, m.Seq, r.slot.Phase)
		return false
	}
	r.fresh += m.Failed
	if m.Cause != nil && r.fault == nil {
		r.fault = r.describe.complete(m.Cause, r.slot.Phase)
	}
	return true
}

// countFailed keeps what the replies of a state that is over have told.
func (r *Root) countFailed() {
	n := r.fresh
	if r.fresh = 0; n == 0 {
		return
	}
	i := slices.IndexFunc(r.failed, func(f phaseFailures) bool { return f.phase == r.slot.Phase })
	if i < 0 {
		i = len(r.failed)
		r.failed = append(r.failed, phaseFailures{phase: r.slot.Phase})
	}
	r.failed[i].count += n
}

// expect starts to wait for one kind of reply of everybody alive.
func (r *Root) expect(t Type, state State, deadline Time) {
	r.countFailed()
	r.replies = replies{typ: t}
	r.state, r.deadline = state, deadline
	if state != Preparing {
		r.awaitOrphans()
	}
}

// advance goes on when everybody alive has replied.
func (r *Root) advance(now Time) {
	switch r.state {
	case Preparing, Running, Collecting, Aborting, Parting:
	default:
		return
	}
	r.replies.need = r.alive
	if !r.replies.complete() {
		return
	}
	switch r.state {
	case Preparing:
		r.release(now)
	case Running:
		r.collect(now)
	case Collecting, Aborting:
		r.reduced(now)
	case Parting:
		r.bye()
	}
}

func (r *Root) prepare(now Time, seq int32) {
	r.countFailed()
	if r.last || seq >= r.cfg.Schedule.Len() {
		r.finish(now)
		return
	}
	r.slot = r.cfg.Schedule.At(seq)
	r.last = r.cfg.Schedule.Last(seq, r.roundsOver(now))
	r.done, r.total = 0, 0
	r.expect(Ready, Preparing, now+int64(r.slot.Ahead+r.cfg.Limits.Prepare))
	r.down(Message{Type: Prepare, Seq: seq, Last: r.last})
}

// roundsOver says that no further round of those without end begins.
func (r *Root) roundsOver(now Time) bool { return r.jobEnd > 0 && now >= r.jobEnd }

// release sets T far enough ahead that everybody hears of it before: two
// measured trips down the tree and 5 ms, at least Limits.Lead.
func (r *Root) release(now Time) {
	lead := max(r.cfg.Limits.Lead, 2*r.treeTime+5*time.Millisecond)
	r.start = now + int64(lead)
	r.expect(Done, Running, r.start+int64(r.slot.Hold)+int64(r.cfg.Limits.Phase))
	r.down(Message{Type: Go, Seq: r.slot.Seq, T: r.start})
}

func (r *Root) collect(now Time) {
	var whole []byte
	if entry, _ := Lookup(r.slot.Phase); entry.Exchange {
		var err error
		if whole, err = r.replies.merged(r.slot, r.cfg.Merge); err != nil {
			r.stop(now, rank.AsError(err, rank.KindInternal))
			return
		}
	}
	r.expect(Summary, Collecting, now+int64(r.cfg.Limits.Prepare))
	r.down(Message{Type: Collect, Seq: r.slot.Seq, Body: whole})
}

// reduced hands out the summary of the slot, whole or not, and goes on.
// A successor's summary has all slots that were at hand.
func (r *Root) reduced(now Time) {
	merged, err := r.replies.merged(r.slot, r.cfg.Merge)
	if err != nil {
		r.blame(r.describe.complete(rank.AsError(err, rank.KindInternal), r.slot.Phase))
	}
	r.out = append(r.out, Output{
		Kind: OutReduced,
		Seq:  r.slot.Seq,
		Body: merged,
		Msg:  Message{Type: Summary, Seq: r.slot.Seq, Covers: r.replies.got.Clone()},
	})
	if r.cause != nil {
		r.finish(now)
		return
	}
	r.prepare(now, r.slot.Seq+1)
}

// stop breaks the job off: a signal, --max-time, a deadline, a local fault.
func (r *Root) stop(now Time, cause *rank.Error) {
	if r.decided() {
		return
	}
	r.blame(r.describe.complete(cause, r.slot.Phase))
	switch r.state {
	case Idle:
		r.finish(now)
	case Preparing, Running:
		r.expect(Summary, Aborting, now+int64(r.cfg.Limits.Abort))
		r.down(Message{Type: Abort, Seq: r.slot.Seq, Cause: r.cause})
	case Collecting, Aborting:
		// The summaries are on their way, and the job ends with them.
	}
}

// blame keeps the first cause; later ones become notes. Everybody's ^C is one
// and the same, so only the first is told.
func (r *Root) blame(cause *rank.Error) {
	switch {
	case r.decided():
		r.note("%s; that was after the end of the job was decided, and exit code %d stands", cause, r.told.Code)
	case r.cause == nil:
		r.cause = cause
	case cause.Kind == rank.KindCancelled && r.cause.Kind == rank.KindCancelled:
	case cause.Kind == rank.KindLost && r.cause.Kind == rank.KindLost && cause.Proc == r.cause.Proc && cause.Proc != rank.NoProc:
		// The same loss, seen from another side.
	default:
		r.note("then %s", cause)
	}
}

func (r *Root) checkDeadlines(now Time) {
	if r.jobEnd > 0 && now >= r.jobEnd && !r.cfg.Schedule.Endless() && !r.decided() {
		r.jobEnd = 0
		r.stop(now, rank.Errorf(rank.KindTimeout, "the job did not end within --max-time %s", r.cfg.Limits.MaxTime))
	}
	r.giveUpOrphans(now)
	if r.deadline == 0 || now < r.deadline || r.state == Finished {
		return
	}
	limits := r.cfg.Limits
	missing := slices.Collect(r.Waiting().All())
	late := func(format string, args ...any) *rank.Error {
		e := &rank.Error{Kind: rank.KindTimeout, Peer: rank.None, Phase: string(r.slot.Phase)}
		r.describe.about(e, missing)
		e.Text = fmt.Sprintf(format, args...)
		if len(missing) > 0 {
			e.Text += ": " + r.describe.names(missing)
		}
		return e
	}
	switch r.state {
	case Reporting:
		r.part(now) // whatever the report waits for, the others need not
	case Parting:
		r.unheard()
	case Preparing:
		r.stop(now, late("not ready within %s", limits.Prepare))
	case Running:
		within := limits.Phase.String()
		if r.slot.Hold > 0 {
			within = fmt.Sprintf("%s and a hold of %s", limits.Phase, r.slot.Hold)
		}
		r.stop(now, late("not done within --phase-timeout %s", within))
	case Collecting:
		r.blame(late("no summary within %s", limits.Prepare))
		r.reduced(now)
	case Aborting:
		r.note("no summary of the broken off phase from %s", r.describe.names(missing))
		r.reduced(now)
	}
}

// failures is the cause of a job that went through with failed connections.
func (r *Root) failures() *rank.Error {
	if len(r.failed) == 0 {
		return nil
	}
	var sum int64
	parts := make([]string, len(r.failed))
	for i, f := range r.failed {
		sum += f.count
		parts[i] = fmt.Sprintf("%s %d", f.phase, f.count)
	}
	noun, are := "connections", "are"
	if sum == 1 {
		noun, are = "connection", "is"
	}
	return rank.Errorf(rank.KindFailed, "%d %s failed or %s dead (%s)", sum, noun, are, strings.Join(parts, ", "))
}

func (r *Root) down(m Message) { r.out = append(r.out, Output{Kind: OutDown, Msg: m}) }

func (r *Root) note(format string, args ...any) {
	r.out = append(r.out, Output{Kind: OutNote, Text: fmt.Sprintf(format, args...)})
}

func (r *Root) setWake() {
	at := r.deadline
	if r.orphansBy > 0 && (at == 0 || r.orphansBy < at) {
		at = r.orphansBy
	}
	if r.jobEnd > 0 && !r.cfg.Schedule.Endless() && (at == 0 || r.jobEnd < at) {
		at = r.jobEnd
	}
	if at != r.wake && at != 0 {
		r.out = append(r.out, Output{Kind: OutWake, At: at})
	}
	r.wake = at
}
