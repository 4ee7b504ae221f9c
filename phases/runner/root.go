package runner

import (
	"fmt"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
)

// rootShell carries the root machine out at the process of rank 0.
type rootShell struct {
	p        *process
	m        *phases.Root
	doc      *collect.Document
	losses   losses
	finished bool
	code     int
	cause    *rank.Error
	partial  bool
	display  *display
	begun    bool       // the report is written, or was
	reported chan error // gets its outcome; nil: there is none to come
	// successor says that this process took the job over from a lost root.
	successor bool
}

// step feeds the root machine and does what it says.
func (r *rootShell) step(in phases.Input) {
	for _, out := range r.m.Step(r.p.now(), in) {
		switch out.Kind {
		case phases.OutDown:
			m := out.Msg
			switch m.Type {
			case phases.Bye:
				r.finished = true
			case phases.Go:
				r.display.begin(r.p.sched.At(m.Seq), m.T)
			}
			r.p.step(phases.MemberInput{Kind: phases.MFromParent, Msg: m})
		case phases.OutReduced:
			r.reduced(out)
		case phases.OutNote:
			r.p.note("%s", out.Text)
		case phases.OutWake:
			r.p.rootWake = out.At
		case phases.OutFinish:
			r.code, r.cause, r.partial = out.Code, out.Cause, out.Partial
			r.report()
		}
	}
}

// message takes what the own member sends up.
func (r *rootShell) message(m phases.Message) {
	if m.Type == phases.Progress {
		defer r.display.progress(m) // after the machine knows of it
	}
	if m.Type == phases.Lost {
		for proc := range m.Covers.All() {
			r.losses.seen(r.p, proc, r.p.clock.Now()-r.p.startNS, false)
		}
	}
	r.step(phases.Input{Kind: phases.InMessage, Msg: m})
}

// reduced adds a slot to the document.
func (r *rootShell) reduced(out phases.Output) {
	if out.Body == nil {
		return
	}
	slots, err := unpackSummaries(out.Body)
	if err != nil {
		r.doc.Warn(fmt.Sprintf("the figures of slot %d are not in this document: %v", out.Seq, err))
		return
	}
	first := int32(0)
	for i, b := range slots {
		s, err := collect.DecodeSummary(b)
		if err == nil {
			err = r.doc.AddSlot(s)
		}
		if err != nil {
			r.doc.Warn(fmt.Sprintf("the figures of slot %d are not in this document: %v", out.Seq, err))
			continue
		}
		if i == 0 {
			first = s.Seq
		}
		if w := r.p.cfg.Witness; w != nil {
			w.Whole(s)
		}
		r.tellBarrier()
	}
	if r.successor && first > 0 {
		r.doc.Warn(fmt.Sprintf("the figures of the slots before number %d are not in this document: the root had them, and the others did not keep them", first))
	}
}

// tellBarrier says how the last barrier went, if the user asks for that much.
func (r *rootShell) tellBarrier() {
	b := r.doc.LastBarrier()
	if r.p.cfg.Verbose < 2 || b == nil {
		return
	}
	if b.BarrierNS == nil || b.ReleaseSkewNS == nil || b.LastInProc == nil {
		return // cut short
	}
	host, ranks := r.p.describe(*b.LastInProc)
	r.p.say("barrier before %s (round %d, stage %d): last in rank %s (%s); last in → last out %v, release skew %v",
		b.Phase, b.Round, b.Stage, rank.FormatRanks(ranks), host, time.Duration(*b.BarrierNS), time.Duration(*b.ReleaseSkewNS))
}
