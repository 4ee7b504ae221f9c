package runner

import (
	"errors"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

// serve answers peers until the driver says stop.
func (w *worker) serve() {
	for !w.stop.Load() {
		w.take(w.now() + int64(tick))
	}
	// The stop may come between an answer and the poll that tells of it: the initiator has read it, and the phase is
	// over. What is known here by now still belongs to this slot.
	for w.take(0) > 0 {
	}
}

// take handles what has happened. until 0 polls; else it sleeps until then at
// most, in slices, so that a stop is seen and a stall is measured.
func (w *worker) take(until int64) (n int) {
	now := w.now()
	w.stall(now-w.seen, now)
	var err error
	if until == 0 {
		n = w.tw.Poll(w.ev)
	} else {
		until = min(until, now+int64(tick))
		n, err = w.tw.Wait(until, w.ev)
		now = w.now()
		w.stall(now-until, now)
	}
	w.seen = now
	for i := range n {
		w.handle(&w.ev[i])
	}
	if err != nil { // and it will again: what cannot be waited for must not keep a CPU busy
		w.note("wait", rank.None, err)
		w.rk.p.clock.SleepUntil(until, 0)
	}
	if gone := w.rk.p.gone.Load(); gone != w.seenGone {
		w.seenGone = gone
		w.dropGone(gone)
	}
	w.completed.Store(int64(w.finished))
	return n
}

// stall notes time that passed beyond the wait that was asked for while there was work: nobody ran this thread, or it
// was busy with one thing for so long. Where peers may need this rank there is work until all are through. A sleep is
// at most a tick long, so a stop hides no more than that of itself.
func (w *worker) stall(d, now int64) {
	if d = max(d, 0); d > w.gap && (serves(w.slot.Phase) || w.finished < int(w.planned.Load())) {
		w.gap, w.gapEnd = d, now
	}
}

// handle one event. On the path of every connection: no allocation unless it failed.
func (w *worker) handle(ev *transport.Event) {
	c := int(ev.Conn)
	switch ev.Kind {
	case transport.StepDone:
		if ev.Begin != 0 || ev.End != 0 {
			w.stamps.Set(ev.Step, c, ev.Begin, ev.End)
		}
		switch {
		case ev.Step == transport.StepFullConnect && w.waiting == transport.StepConnect:
			w.through(c)
			if w.sleeps() {
				w.mimicOne(transport.StepRTR, c)
				w.mimicOne(transport.StepRTS, c)
			}
		case ev.Step == w.waiting && w.waiting != transport.StepConnect:
			w.through(c)
			if ev.Step == transport.StepCreateID {
				w.state[c] = connLive
			}
		}
	case transport.StepFailed:
		w.fail(c, ev.Step, ev.Cause, ev.Err)
		if c < w.out || w.slot.Phase == phases.Destroy {
			w.through(c)
		}
	case transport.EventRequest:
		w.request(ev)
	case transport.EventPeerClosed:
		w.peerClosed(c)
	}
}

// peerClosed handles a connection whose peer went away on its own. If the running step is under way on it, the
// provider reports that step as failed and nothing is to be done here.
func (w *worker) peerClosed(c int) {
	switch {
	case c >= w.out || w.state[c] != connLive:
	case c >= w.next && c < w.end: // the running step counted on it and will not begin it any more
		w.fail(c, w.waiting, transport.CauseClosed, nil)
		w.inflight++
		w.through(c)
	case w.passed[c] || c < w.from || c >= w.end: // what steps measured stays measured, and none of them failed
		w.state[c] = connFailed
		w.broke++
		w.note("", w.peer(c), errBroke)
	}
}

// errBroke says what became of a connection on which no step was under way.
var errBroke = errors.New("the connection was established, and broke later")

// under is the step that connection c stands in while the running one is s: where the path has answered a connect, the
// target is waited for.
func (w *worker) under(c int, s transport.Step) transport.Step {
	if s == transport.StepConnect && w.stamps.Has(transport.StepEstablish) {
		if _, _, answered := w.stamps.Get(s, c); answered {
			return transport.StepEstablish
		}
	}
	return s
}

// through counts one connection of the running step as finished, once.
func (w *worker) through(c int) {
	if w.passed[c] {
		return
	}
	w.passed[c] = true
	w.inflight--
	w.finished++
}

// fail records the failure of step s on connection c.
func (w *worker) fail(c int, s transport.Step, cause transport.Cause, err error) {
	if c >= 0 && c < len(w.state) {
		if w.state[c] == connFailed {
			return
		}
		w.state[c] = connFailed
		if w.stamps.Has(s) {
			w.stamps.Fail(c, s, cause)
		}
	}
	w.lose(c, s, cause, err)
}

// lose counts a failed connection.
func (w *worker) lose(c int, s transport.Step, cause transport.Cause, err error) {
	w.failed++
	if c < w.out {
		w.lost++
		if w.slot.Phase == phases.Probe || s == transport.StepEstablish && cause == transport.CauseTimeout {
			w.dead++
		}
	}
	if err == nil {
		err = &transport.OpError{Op: s.String(), Provider: w.rk.p.cfg.Provider.Name(), Cause: cause}
	}
	w.note(s.String(), w.peer(c), err)
}

// note keeps the first few failures in words.
func (w *worker) note(step string, peer rank.Rank, err error) {
	if len(w.errs) < maxErrors {
		w.errs = append(w.errs, *w.rk.wrap(w.slot.Phase, step, peer, err))
	}
}

// peer of connection c, either side.
func (w *worker) peer(c int) rank.Rank {
	switch {
	case c < 0:
		return rank.None
	case c < w.out:
		e, _ := w.rk.plan.Edge(w.planIndex(c))
		return e.To
	case c-w.out < w.nIn:
		return w.peers[c-w.out].from
	}
	return rank.None
}

// edge of connection c, either side.
func (w *worker) edge(c int) collect.EdgeConn {
	if c < w.out {
		e, conn := w.rk.plan.Edge(w.planIndex(c))
		return collect.EdgeConn{From: e.From, To: e.To, Conn: conn}
	}
	in := w.peers[c-w.out]
	return collect.EdgeConn{From: in.from, To: w.rk.rank, Conn: in.conn}
}

// causeOf finds the cause under which a failure is counted.
func causeOf(err error) transport.Cause {
	if op, ok := errors.AsType[*transport.OpError](err); ok {
		return op.Cause
	}
	return transport.CauseOther
}
