package runner

import (
	"context"
	"errors"
	"time"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
)

// toldPatience is how long a process waits until the one that is to tell why all end has ended the job.
const toldPatience = 500 * time.Millisecond

// drive runs the machines until the job is over for this process.
func (p *process) drive(ctx context.Context) {
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	done := ctx.Done()
	var again <-chan time.Time
	for !p.over() {
		p.arm(timer)
		var hold, release <-chan time.Time
		if p.hold != nil {
			hold = p.hold.C
		}
		if p.release != nil {
			release = p.release.C
		}
		var reported <-chan error
		if p.root != nil {
			reported = p.root.reported
		}
		var do func()
		select {
		case ev := <-p.group.Events():
			do = func() { p.event(ev) }
		case r := <-p.results:
			do = func() { p.result(r) }
		case <-timer.C:
			do = p.tick
		case <-hold:
			do = func() {
				p.hold = nil
				p.afterHold()
			}
		case <-release:
			do = func() {
				p.release = nil
				p.start()
			}
		case err := <-reported:
			do = func() { p.root.out(err) }
		case <-progress.C:
			do = func() {
				p.progress()
				p.answerAskers()
			}
		case <-done:
			done = nil
			do = func() {
				if cause := p.cancelled(ctx); p.told { // another process ends the job for the same reason, and is to say so
					again = time.After(toldPatience)
				} else {
					p.step(phases.MemberInput{Kind: phases.MCancel, Cause: cause})
				}
			}
		case <-again:
			do = func() {
				if !p.aborting && p.member.Told() == nil {
					p.step(phases.MemberInput{Kind: phases.MCancel, Cause: p.cancelled(ctx)})
				}
			}
		}
		if p.stalled() { // before anything is made of what has come in meanwhile
			return
		}
		do()
		p.drain()
	}
}

// over says that nothing is left to decide.
func (p *process) over() bool {
	return p.exit != nil && (p.root == nil || p.root.finished)
}

// drain feeds the machines what their own outputs caused, in order.
func (p *process) drain() {
	for len(p.queue) > 0 {
		f := p.queue[0]
		p.queue = p.queue[1:]
		f()
	}
}

// arm sets the timer to the earlier wake of the two machines.
func (p *process) arm(timer *time.Timer) {
	wake := p.memberWake
	if p.rootWake != 0 && (wake == 0 || p.rootWake < wake) {
		wake = p.rootWake
	}
	if wake == 0 {
		timer.Reset(time.Hour)
		return
	}
	timer.Reset(max(0, time.Duration(wake-p.now())))
}

// tick wakes whichever machine is due.
func (p *process) tick() {
	now := p.now()
	if p.memberWake != 0 && now >= p.memberWake {
		p.memberWake = 0
		p.step(phases.MemberInput{Kind: phases.MTick})
	}
	if p.rootWake != 0 && now >= p.rootWake {
		p.rootWake = 0
		p.queue = append(p.queue, func() { p.root.step(phases.Input{Kind: phases.InTick}) })
	}
}

// step queues an input of the member machine.
func (p *process) step(in phases.MemberInput) {
	p.queue = append(p.queue, func() {
		for _, out := range p.member.Step(p.now(), in) {
			p.do(out)
		}
	})
}

// event translates what the control plane says.
func (p *process) event(ev rendezvous.Event) {
	p.heard = ev.At
	switch ev.Kind {
	case rendezvous.FromParent, rendezvous.FromChild:
		p.carried(1, len(ev.Payload))
		m, err := phases.DecodeMessage(ev.Payload)
		if err != nil {
			p.note("process %d sent a message that cannot be read: %v", ev.Proc, err)
			return
		}
		kind := phases.MFromParent
		if ev.Kind == rendezvous.FromChild {
			kind = phases.MFromChild
		}
		p.step(phases.MemberInput{Kind: kind, Proc: ev.Proc, Msg: m})
	case rendezvous.Orphan:
		p.asked(ev)
	case rendezvous.Attached, rendezvous.Successor, rendezvous.GivenUp:
		p.found(ev)
	case rendezvous.ChildLost:
		if stood, yes := p.echo(); yes {
			p.outOfJob(stood)
			return
		}
		p.step(phases.MemberInput{Kind: phases.MChildLost, Proc: ev.Proc, Cause: p.lost(ev.Proc, ev.Err)})
	case rendezvous.ParentLost:
		p.orphaned, p.parting = true, parting{ev.Proc, p.clock.Now() - p.startNS}
		p.step(phases.MemberInput{Kind: phases.MParentLost, Proc: ev.Proc, Cause: p.lost(ev.Proc, ev.Err)})
	case rendezvous.Suspected:
		if p.root != nil {
			p.root.losses.seen(p, ev.Proc, p.clock.Now()-p.startNS, true)
		}
	case rendezvous.Refused:
		p.note("%v", ev.Err)
	}
}

// do carries out one output of the member machine.
func (p *process) do(out phases.MemberOutput) {
	switch out.Kind {
	case phases.MUp:
		if p.root != nil {
			p.queue = append(p.queue, func() { p.root.message(out.Msg) })
			return
		}
		p.send(out.Msg, 1, p.group.SendUp)
	case phases.MDown:
		if out.Proc >= 0 {
			p.send(out.Msg, 1, func(b []byte) error { return p.group.SendDown(out.Proc, b) })
			return
		}
		if n := len(p.group.Children()) + p.adopted; n > 0 {
			p.send(out.Msg, n, p.group.Broadcast)
		}
	case phases.MPrepare:
		p.last = out.Last
		p.prepare(p.sched.At(out.Seq))
	case phases.MBegin:
		p.begin(out.Seq, out.T)
	case phases.MCollect:
		p.collect(out)
	case phases.MWake:
		p.memberWake = out.At
	case phases.MNote:
		if p.cfg.Verbose > 0 {
			p.say("%v", out.Cause)
		}
	case phases.MLost:
		p.lose(out.Msg.Covers)
		p.lossTold = true
		if p.hold != nil {
			p.hold.Stop()
			p.hold = nil
			p.afterHold()
		}
	case phases.MReattach:
		p.search(out.Cause)
	case phases.MExit:
		if out.Abandon {
			p.group.Abandon()
		}
		if p.exit == nil {
			p.exit = &exitState{code: out.Code, cause: out.Cause}
		}
		if p.root != nil && !p.root.finished {
			// A second signal, or this process's own deadline: the root machine was not asked.
			p.root.finished = true
			if !p.root.begun {
				p.root.code, p.root.cause, p.root.partial = out.Code, out.Cause, true
			}
		}
	}
}

// carried counts messages on the control tree.
func (p *process) carried(messages, bytes int) {
	p.control.Messages += int64(messages)
	p.control.Bytes += int64(messages * bytes)
}

// send encodes and sends over so many links; a link that fails reports itself as an event.
func (p *process) send(m phases.Message, links int, to func([]byte) error) {
	b, err := phases.EncodeMessage(m)
	if err != nil {
		p.note("%s message of slot %d cannot be written: %v", m.Type, m.Seq, err)
		return
	}
	p.carried(links, len(b))
	_ = to(b) // the loss of a link comes as ChildLost or ParentLost
}

// progress tells how far the running slot is.
func (p *process) progress() {
	if p.stage != workRunning {
		return
	}
	var done, total int64
	for _, rk := range p.ranks {
		for _, w := range rk.workers {
			done += w.completed.Load()
			total += w.planned.Load()
		}
	}
	p.step(phases.MemberInput{Kind: phases.MLocalProgress, Seq: p.slot.Seq, Done: done, Total: total})
}

// cancelled is the cause of a cancelled context.
func (p *process) cancelled(ctx context.Context) *rank.Error {
	p.told = rendezvous.Told(context.Cause(ctx))
	if e, ok := errors.AsType[*rank.Error](context.Cause(ctx)); ok {
		return e
	}
	return rank.Errorf(rank.KindCancelled, "cancelled: %w", context.Cause(ctx))
}
