package sim

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"rankstorm/transport"
)

// Worker carries the connections of one goroutine.
type Worker struct {
	ep    *Endpoint
	index int
	wake  chan struct{} // 1: something may have happened
	woken atomic.Bool   // Wake was called
	timer *time.Timer   // made by the first Wait that needs it

	// Guarded by the fabric's mutex.
	conns     []conn
	out, in   int
	taken     int       // accepted connections of this round so far
	rejected  []int32   // indices of accepted connections that a reject gave back
	mute      int       // requests taken whose hello is awaited
	half      ring[ref] // the same; some in it are settled
	live      int       // connections not destroyed
	flight    int       // asynchronous steps under way
	gen       uint32
	accepting bool
	closed    bool
	pending   ring[ref]    // requests given to this worker
	inbox     ring[packet] // arrived, not yet handled
	done      ring[item]   // to report, by end
	busy      int64        // clock time at which the worker has done what it began
}

func newWorker(e *Endpoint, i int) *Worker {
	return &Worker{ep: e, index: i, wake: make(chan struct{}, 1), accepting: true, busy: math.MinInt64}
}

func (w *Worker) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // it is nudged already
	}
}

// Wake ends a running or the next Wait.
func (w *Worker) Wake() {
	w.woken.Store(true)
	w.nudge()
}

func (w *Worker) error(op string, format string, args ...any) *transport.OpError {
	return w.ep.error(op, fmt.Errorf(format, args...))
}

// Reserve makes room; see the contract.
func (w *Worker) Reserve(out, in int) error {
	f := w.ep.f
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case w.over() != nil:
		return w.ep.error("reserve", w.over())
	case out < 0 || in < 0 || out > math.MaxInt32-in:
		return w.error("reserve", "%d initiated and %d accepted connections are out of range", out, in)
	case w.live > w.requested():
		return w.error("reserve", "%d connections of the last round are not destroyed yet", w.live-w.requested())
	}
	for i := w.out; w.live > 0; i++ {
		if c := &w.conns[i]; c.state == stRequested {
			w.release(transport.Conn(i), c, w.ep.cfg.Clock.Now())
		}
	}
	w.done.clear()
	w.conns = slices.Grow(w.conns[:0], out+in)[:out+in]
	clear(w.conns)
	w.out, w.in, w.taken = out, in, 0
	w.rejected = slices.Grow(w.rejected[:0], in)
	w.inbox.grow(out + in)
	w.done.grow(2 * (out + in))
	w.half.grow(in)
	return nil
}

// requested is how many requests wait for their Answer.
func (w *Worker) requested() (n int) {
	for i := range w.conns {
		if w.conns[i].state == stRequested {
			n++
		}
	}
	return n
}

// room is how many more requests fit the table.
func (w *Worker) room() int {
	return w.in - w.taken + len(w.rejected) - w.mute
}

// Assign names the target and the hello of connection c.
func (w *Worker) Assign(c transport.Conn, to transport.Address, hello *transport.Hello) error {
	f := w.ep.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if c < 0 || int(c) >= w.out {
		return w.error("assign", "connection %d is not one of the %d to initiate", c, w.out)
	}
	if st := w.conns[c].state; st != stNone && (st != stCreated || w.conns[c].resolved > 0 || w.conns[c].inflight) {
		return w.error("assign", "connection %d is resolved already, assign comes before", c)
	}
	s, ok := f.site(to)
	if !ok {
		return w.error("assign", "%q is no address of this provider", to)
	}
	w.conns[c].to, w.conns[c].hello, w.conns[c].assigned = s, *hello, true
	return nil
}

// Poll moves what has happened into ev.
func (w *Worker) Poll(ev []transport.Event) int {
	n, _, _ := w.poll(ev)
	return n
}

// poll also tells when there is more to report if nothing else happens.
func (w *Worker) poll(ev []transport.Event) (n int, next int64, err error) {
	e, f := w.ep, w.ep.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := w.over(); err != nil {
		return 0, math.MaxInt64, e.error("wait", err)
	}
	f.advance(f.now())
	if e.paused {
		return 0, math.MaxInt64, nil
	}
	now := e.cfg.Clock.Now()
	for n < len(ev) {
		if w.done.len() > 0 && w.done.front().end <= now {
			w.fill(&ev[n], w.done.pop())
			n++
			continue
		}
		if w.busy > now {
			break // what arrived waits until the worker has time
		}
		if w.inbox.len() > 0 {
			p := w.inbox.pop()
			w.handle(&p, now)
			continue
		}
		if !w.take(now) {
			break
		}
	}
	f.advance(f.now())
	next = math.MaxInt64
	if w.done.len() > 0 {
		next = w.done.front().end
	} else if w.busy > now {
		next = w.busy
	}
	return n, next, nil
}

func (w *Worker) fill(ev *transport.Event, it item) {
	*ev = transport.Event{
		Conn: it.conn, Step: it.step, Kind: it.kind, Cause: it.cause, Reason: it.reason,
		Begin: it.begin, End: it.end, Err: it.err,
	}
	if it.idle {
		ev.End = 0
	}
	if it.kind == transport.EventRequest {
		ev.Hello = w.conns[it.conn].hello
	}
}

// Wait sleeps until something happened, Wake was called or the clock reaches
// until. It fails once the endpoint is closed or killed. A return because of
// Wake carries no events and no error.
func (w *Worker) Wait(until int64, ev []transport.Event) (int, error) {
	for {
		n, next, err := w.poll(ev)
		if n > 0 || err != nil {
			return n, err
		}
		if w.woken.Swap(false) {
			return 0, nil
		}
		now := w.ep.cfg.Clock.Now()
		if now >= until || len(ev) == 0 {
			return 0, nil
		}
		at := min(until, next)
		if at == math.MaxInt64 {
			<-w.wake
			continue
		}
		d := time.Duration(at - now)
		if d <= 0 {
			continue // it became due just now
		}
		if w.timer == nil {
			w.timer = time.NewTimer(d)
		} else {
			w.timer.Reset(d)
		}
		select {
		case <-w.wake:
			w.timer.Stop()
		case <-w.timer.C:
		}
	}
}

// Answer accepts or rejects a request.
func (w *Worker) Answer(i transport.Conn, accept bool, reason uint16) error {
	f := w.ep.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := w.over(); err != nil {
		return w.ep.error("answer", err)
	}
	if i < 0 || int(i) >= len(w.conns) || w.conns[i].state != stRequested {
		return w.error("answer", "connection %d has no open request", i)
	}
	c, now := &w.conns[i], w.ep.cfg.Clock.Now()
	if c.broken && accept {
		w.fail(i, transport.StepAccept, c.begin, now, transport.CauseClosed, 0)
		return nil
	}
	if !accept {
		if !c.broken {
			_, end := w.spend(transport.StepAccept, now)
			w.send(packet{from: w.me(i), to: c.peer, kind: pktAnswer, reason: reason}, c, now, end)
		}
		c.peer = ref{} // it has its answer
		w.release(i, c, now)
		w.rejected = append(w.rejected, int32(i)-int32(w.out))
		f.advance(f.now())
		return nil
	}
	for _, s := range acceptSteps {
		if f.rdma && f.cfg.Steps.Has(s) {
			w.step(i, s, now)
		}
	}
	_, end := w.spend(transport.StepAccept, now)
	c.state = stOpen
	w.report(i, transport.StepAccept, c.begin, end)
	w.send(packet{from: w.me(i), to: c.peer, kind: pktAnswer, ok: true}, c, now, end)
	f.advance(f.now())
	return nil
}

// acceptSteps are what StepsRDMA does at the target between request and answer.
var acceptSteps = [...]transport.Step{
	transport.StepAcceptCreateQP, transport.StepAcceptInitQPAttr, transport.StepAcceptInitQP,
	transport.StepAcceptRTRAttr, transport.StepAcceptRTR, transport.StepAcceptRTSAttr, transport.StepAcceptRTS,
}

// Abandon gives up a connection under way.
func (w *Worker) Abandon(i transport.Conn) {
	w.ep.f.mu.Lock()
	defer w.ep.f.mu.Unlock()
	if i < 0 || int(i) >= len(w.conns) || w.conns[i].gen == 0 {
		return
	}
	c := &w.conns[i]
	c.state = stFailed
	w.settle(c)
	w.forget(i)
}

// forget drops the events of a connection that are not reported yet.
func (w *Worker) forget(i transport.Conn) {
	for range w.done.len() {
		if it := w.done.pop(); it.conn != i {
			w.done.push(it)
		}
	}
}

// Accepting turns taking requests on and off; while off they wait in the
// backlog, or go to the endpoint's other workers.
func (w *Worker) Accepting(on bool) {
	e := w.ep
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	w.accepting = on
	if !on {
		for w.pending.len() > 0 {
			e.assign(w.pending.pop())
		}
	}
	w.nudge()
}

// Close releases the worker's connections as destroying them would; requests
// that wait go to the endpoint's other workers.
func (w *Worker) Close() error {
	f := w.ep.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.ep.gone != nil || w.closed {
		return nil
	}
	w.accepting = false
	for w.pending.len() > 0 {
		w.ep.assign(w.pending.pop())
	}
	w.shut(f.now())
	f.advance(f.now())
	return nil
}

// shut ends the worker and resets what it holds.
func (w *Worker) shut(now int64) {
	w.closed = true
	for w.half.len() > 0 {
		r := w.half.pop()
		if src := r.get(); src != nil && src.takenBy == w {
			src.takenBy = nil
			w.mute--
			w.ep.turnAway(r, now)
		}
	}
	for i := range w.conns {
		if c := &w.conns[i]; c.gen != 0 {
			w.release(transport.Conn(i), c, now)
		}
	}
	w.inbox.clear()
	w.done.clear()
	w.nudge()
}

// over says why the worker takes no more work, nil if it does.
func (w *Worker) over() error {
	if w.ep.gone == nil && w.closed {
		return errWorkerClosed
	}
	return w.ep.gone
}

// release forgets a connection and tells its peer, unless both sides closed it.
func (w *Worker) release(i transport.Conn, c *conn, now int64) {
	if c.peer.w != nil && c.state != stClosed && w.ep.f.reachable(c.peer) {
		w.ep.f.send(packet{from: w.me(i), to: c.peer, kind: pktReset, cause: transport.CauseReset}, c, now)
	}
	if c.pair {
		w.ep.pair(-1)
	}
	if c.takenBy != nil {
		c.takenBy.mute--
	}
	w.settle(c)
	w.ep.conns--
	w.live--
	*c = conn{}
}

func (f *Fabric) reachable(r ref) bool { return r.get() != nil }
