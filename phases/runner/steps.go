package runner

import (
	"errors"
	"time"

	"rankstorm/phases"
	"rankstorm/transport"
)

// run is the next stretch of up to most usable connections in [from, end);
// a probe or disconnect skips what never came up.
func (w *worker) run(from, end, most int) (first, n int) {
	for from < end && w.state[from] != connLive && !(w.slot.Phase == phases.Create && w.state[from] == connNone) {
		from++
	}
	n = 0
	for from+n < end && n < most && (w.state[from+n] == connLive || w.slot.Phase == phases.Create && w.state[from+n] == connNone) {
		n++
	}
	return from, n
}

// each starts step s on every usable connection of [from, end) as fast as the
// provider takes them and waits until all are through.
func (w *worker) each(s transport.Step, from, end int) {
	total := w.enter(s, from, end)
	deadline := w.deadline(s)
	for w.finished < total && !w.stop.Load() {
		if w.next < end {
			var n int
			w.next, n = w.run(w.next, end, chunk)
			if n > 0 {
				w.start(s, n, nil)
			}
			w.take(0)
			continue
		}
		if now := w.now(); now >= deadline {
			break
		}
		w.take(deadline)
	}
	w.giveUp(from, s)
}

// enter begins the bookkeeping of step s on [from, end) and says on how many of these it will be started.
func (w *worker) enter(s transport.Step, from, end int) (total int) {
	w.waiting, w.finished, w.inflight = s, 0, 0
	w.from, w.next, w.end = from, from, end
	w.seenGone = nil
	clear(w.passed)
	w.seen = w.now()
	for _, st := range w.state[from:end] {
		if st == connLive || w.slot.Phase == phases.Create {
			total++
		}
	}
	w.planned.Store(int64(total))
	return total
}

// deadline of a step: a silent peer makes a failed connection, not a reason to end the job, so the root must still
// hear of it in time. A first round trip or a close that takes three quarters of the phase's time is not coming; a
// connect gets all but the time that the report needs.
func (w *worker) deadline(s transport.Step) int64 {
	limit := w.rk.p.spec.PhaseTimeout
	switch s {
	case transport.StepProbe, transport.StepDisconnect:
		limit = limit * 3 / 4
	default:
		limit -= min(limit/8, 2*time.Second)
	}
	return w.at + int64(limit)
}

// start begins s on the next n connections, as many as the provider takes; one that it refuses has failed at once.
func (w *worker) start(s transport.Step, n int, due []int64) (begun int) {
	k, err := w.tw.Start(s, transport.Conn(w.next), n, due)
	w.inflight += k
	w.started += int64(k)
	w.next += k
	if err != nil && !errors.Is(err, transport.ErrAgain) {
		w.inflight++
		w.fail(w.next, s, causeOf(err), err)
		w.through(w.next)
		w.next++
		k++
	}
	return k
}

// connect dials this worker's connections of a stage in the asked shape while it serves requests.
func (w *worker) connect(at int64) {
	from, end := w.stageRange(w.slot.Stage)
	total := w.enter(transport.StepConnect, from, end)
	pacer := phases.NewPacer(w.rk.p.spec.Shape, w.rk.pacing(w), at)
	deadline := w.deadline(transport.StepConnect)
	begun := 0
	for w.finished < total && !w.stop.Load() {
		now := w.now()
		if now >= deadline {
			break
		}
		n, wake := pacer.Next(now, w.inflight)
		if n > 0 && w.next < end {
			w.next, n = w.run(w.next, end, min(n, chunk))
			var due []int64
			if pacer.Paced() {
				due = w.due[:n]
				for i := range due {
					due[i] = pacer.Due(int64(begun + i))
				}
			}
			n = w.start(transport.StepConnect, n, due)
			begun += n
			pacer.Began(n)
			w.take(0)
			continue
		}
		if w.next == end {
			wake = phases.Never
		}
		w.take(min(deadline, wake))
	}
	w.giveUp(from, transport.StepConnect)
	w.neverBegun()
}

// destroy ends both kinds of connections, whatever became of them.
func (w *worker) destroy(s transport.Step) {
	end := w.out + w.nIn
	last := s == transport.StepDestroyID
	w.enter(s, 0, 0)
	total := 0
	for _, st := range w.state[:end] {
		if st == connLive || st == connFailed {
			total++
		}
	}
	w.planned.Store(int64(total))
	for (w.next < end || w.finished < total) && !w.stop.Load() {
		for w.next < end && w.state[w.next] != connLive && w.state[w.next] != connFailed {
			w.next++
		}
		n := 0
		for w.next+n < end && n < chunk && (w.state[w.next+n] == connLive || w.state[w.next+n] == connFailed) {
			n++
		}
		if n > 0 {
			first := w.next
			w.start(s, n, nil)
			if last {
				for c := first; c < w.next; c++ {
					w.state[c] = connGone
				}
			}
			w.take(0)
			continue
		}
		w.take(w.now() + int64(tick))
	}
}

// giveUp fails what is still under way when the work of a step ended early.
func (w *worker) giveUp(from int, s transport.Step) {
	if w.inflight <= 0 {
		return
	}
	cause := transport.CauseTimeout
	if w.stop.Load() && w.now() < w.deadline(s) {
		cause = transport.CauseAborted
	}
	for c := from; c < w.next; c++ {
		if w.state[c] != connLive || w.passed[c] {
			continue
		}
		w.tw.Abandon(transport.Conn(c))
		w.fail(c, w.under(c, s), cause, nil)
		w.through(c)
	}
}

// mimicAll sleeps the asked time for every usable connection, one after the
// other as one thread calling the verbs would.
func (w *worker) mimicAll(steps ...transport.Step) {
	for _, s := range steps {
		for c := range w.out {
			if w.stop.Load() {
				return
			}
			if w.state[c] == connLive {
				w.mimicOne(s, c)
			}
		}
	}
}

func (w *worker) mimicOne(s transport.Step, c int) {
	begin := w.now()
	end := begin + int64(w.rk.pass.Delay)
	w.pause(end)
	w.seen = w.now()
	if w.seen >= end { // not cut short
		w.mimic.Set(s, c, begin, w.seen)
	}
}
