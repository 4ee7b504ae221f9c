package phases

import (
	"slices"

	"rankstorm/rank"
)

// How everybody comes to leave with the same exit code. When all is decided
// and the report is out, the root sends the verdict, and from then on it stands:
// no loss, signal or deadline changes it. Everybody says that it knows it, and
// stays until the root says that all do. Whoever loses its way up meanwhile
// looks for the root as at any other time and brings along the verdict if it
// has it, so that a successor of the root does not end otherwise than those who
// knew. All waits are bounded; who waits in vain leaves with the verdict.

// hear takes the verdict and passes it on.
func (m *Member) hear(now Time, msg Message) {
	m.down(msg)
	m.hearing(now, msg)
}

func (m *Member) hearing(now Time, msg Message) {
	m.told = &Decision{Code: msg.Code, Cause: msg.Cause}
	m.expect(Heard, Parting)
	m.deadlinesAfter(now, m.cfg.Limits.Part, "the end of the job")
	m.own = true
	m.acknowledge(msg.Seq)
}

// acknowledge says that the verdict is known. A successor of the root may be in
// another slot than the root was.
func (m *Member) acknowledge(seq int32) {
	m.ask = seq
	m.given = &Message{Type: Heard, Seq: seq, Covers: SetOf(m.cfg.Self)}
	m.again()
}

// Told is the verdict of the job, nil as long as this process does not know it.
func (m *Member) Told() *Decision { return m.told }

// decided says that the end of the job stands.
func (r *Root) decided() bool { return r.state >= Reporting }

// finish decides how the job ends and has it reported.
func (r *Root) finish(now Time) {
	r.countFailed()
	cause := r.cause
	if cause == nil {
		cause = r.fault
	}
	if cause == nil {
		cause = r.failures()
	}
	code := 0
	if cause != nil {
		code = rank.ExitCode(cause)
	}
	r.told = &Decision{Code: code, Cause: cause}
	r.state, r.jobEnd = Reporting, 0
	r.deadline = now + int64(r.cfg.Limits.Report)
	r.replies = replies{typ: Heard}
	if r.cause != nil { // nobody expects the end now
		r.down(Message{Type: Wait, Seq: r.slot.Seq})
	}
	r.out = append(r.out, Output{Kind: OutFinish, Code: code, Cause: cause, Partial: r.cause != nil})
}

// reported goes on when the report is out; it may have changed the verdict.
func (r *Root) reported(now Time, told *Decision) {
	if r.state != Reporting {
		return
	}
	if told != nil {
		r.told = told
	}
	r.part(now)
}

// part tells everybody the verdict.
func (r *Root) part(now Time) {
	r.expect(Heard, Parting, now+int64(r.cfg.Limits.Part))
	if r.orphans.Len() == 0 && r.regrouped {
		r.resume(now)
		return
	}
	r.down(Message{Type: Verdict, Seq: r.slot.Seq, Code: r.told.Code, Cause: r.told.Cause})
}

// inherit ends the job as its lost root has decided.
func (r *Root) inherit(now Time, told *Decision) {
	r.told, r.inherited, r.jobEnd = told, true, 0
	r.regrouped = true
	r.expect(Heard, Parting, now+int64(r.cfg.Limits.Part))
}

// bye lets everybody go.
func (r *Root) bye() {
	r.state, r.deadline, r.orphansBy = Finished, 0, 0
	r.down(Message{Type: Bye, Seq: r.slot.Seq, Code: r.told.Code, Cause: r.told.Cause})
}

// unheard goes on without those who have not said that they know the verdict.
func (r *Root) unheard() {
	r.note("not known to have heard that the job is over with exit code %d: %s", r.told.Code, r.describe.names(slices.Collect(r.Waiting().All())))
	r.bye()
}

// Inherited says that this root's verdict is that of a lost one, who has seen
// to the report.
func (r *Root) Inherited() bool { return r.inherited }
