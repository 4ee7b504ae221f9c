package sim

import "rankstorm/transport"

// state of one side of a connection.
type state uint8

const (
	stNone       state = iota // place in the table not in use
	stCreated                 // initiator: set-up steps
	stConnecting              // request sent, path (StepsRDMA: answer) awaited
	stAnswering               // initiator: hello sent, answer awaited
	stRequested               // target: EventRequest given, Answer awaited
	stOpen
	stProbing
	stClosing // own close sent, the peer's awaited
	stPeerClosed
	stClosed // both sides closed
	stFailed
)

// conn is one side of a connection. Guarded by the fabric's mutex.
type conn struct {
	gen      uint32 // 0: not in use
	state    state
	accepted bool
	bound    bool
	assigned bool
	resolved uint8 // 1: address, 2: route
	pair     bool  // queue pair exists
	helloIn  bool  // initiator: the hello reached the target's kernel
	broken   bool  // target: the peer went away before Answer
	inflight bool  // an asynchronous step is under way
	tries    uint8 // set-up requests sent again
	draws    uint32
	id       uint64 // the same on both sides
	sentAt   int64  // fabric time the last request left
	pathAt   int64  // initiator: fabric time the path's answer arrives
	lastAt   int64  // fabric time the last packet arrives: packets keep their order
	begin    int64  // clock time the step under way began
	full     int64  // clock time StepFullConnect counts from
	to       *site
	takenBy  *Worker // initiator: the target's worker that took the request and awaits the hello
	takenAt  int64   // when, on that worker's clock
	peer     ref
	hello    transport.Hello
}

// item is an event that the worker reports once its clock reaches end.
type item struct {
	begin, end int64
	conn       transport.Conn
	step       transport.Step
	kind       transport.EventKind
	cause      transport.Cause
	reason     uint16
	idle       bool // StepDone that had nothing to do
	err        error
}

func (w *Worker) me(c transport.Conn) ref { return ref{w, c, w.conns[c].gen} }

// spend takes the worker's time for one step and tells when it did so. The
// worker is serial: steps queue behind each other.
func (w *Worker) spend(s transport.Step, now int64) (begin, end int64) {
	begin = max(now, w.busy)
	end = begin + w.ep.cost(s)
	w.busy = end
	return begin, end
}

func (w *Worker) report(c transport.Conn, s transport.Step, begin, end int64) {
	w.done.push(item{begin: begin, end: end, conn: c, step: s, kind: transport.StepDone})
}

// step takes and reports a step that the worker does itself.
func (w *Worker) step(c transport.Conn, s transport.Step, now int64) (end int64) {
	begin, end := w.spend(s, now)
	w.report(c, s, begin, end)
	return end
}

// fail ends the life of a connection with one event.
func (w *Worker) fail(i transport.Conn, s transport.Step, begin, now int64, cause transport.Cause, reason uint16) {
	c := &w.conns[i]
	c.state = stFailed
	w.settle(c)
	e := &transport.OpError{Op: s.String(), Provider: "sim", Local: w.ep.host, Cause: cause}
	if c.to != nil {
		e.Remote = c.to.addr
	}
	w.done.push(item{begin: begin, end: max(now, w.busy), conn: i, step: s, kind: transport.StepFailed, cause: cause, reason: reason, err: e})
}

// settle ends an asynchronous step in the books of QueueDepth.
func (w *Worker) settle(c *conn) {
	if c.inflight {
		c.inflight = false
		w.flight--
	}
}

// handle does what a process does when its provider tells it of p.
func (w *Worker) handle(p *packet, now int64) {
	if p.kind == pktHello {
		if src := p.from.get(); src != nil && src.takenBy == w {
			w.announce(p.from, src, now)
		}
		return
	}
	c := p.to.get()
	if c == nil || c.state == stFailed || c.state == stClosed {
		return
	}
	f, i := w.ep.f, p.to.c
	switch p.kind {
	case pktResolved:
		s := transport.StepResolveAddr
		if c.resolved == 1 {
			s = transport.StepResolveRoute
		}
		if s == transport.StepResolveAddr && !f.hosts[c.to.host] {
			w.fail(i, s, c.begin, now, transport.CauseUnreachable, 0)
			return
		}
		c.resolved++
		w.settle(c)
		w.report(i, s, c.begin, now)
	case pktPath:
		if c.state != stConnecting {
			return
		}
		w.report(i, transport.StepConnect, c.begin, now)
		c.state = stAnswering
		begin, end := w.spend(transport.StepEstablish, now)
		c.begin = begin
		w.send(packet{from: w.me(i), kind: pktHello}, c, now, end)
	case pktAnswer:
		w.handleAnswer(p, c, now)
	case pktReady:
		// The target is open since its answer; a probe may have come first, as a queue pair allows.
	case pktProbe:
		if c.state != stOpen {
			return
		}
		end := w.step(i, transport.StepProbeAnswer, now)
		w.send(packet{from: w.me(i), to: c.peer, kind: pktEcho}, c, now, end)
	case pktEcho:
		if c.state != stProbing {
			return
		}
		c.state = stOpen
		w.settle(c)
		w.report(i, transport.StepProbe, c.begin, now)
	case pktClose:
		w.handleClose(i, c, now)
	case pktReset:
		w.handleReset(i, c, now, p.cause)
	}
}

func (w *Worker) handleAnswer(p *packet, c *conn, now int64) {
	i := p.to.c
	if c.state != stAnswering && !(w.ep.f.rdma && c.state == stConnecting) {
		return
	}
	if !p.ok {
		s := transport.StepEstablish
		if w.ep.f.rdma {
			s = transport.StepConnect
		}
		w.fail(i, s, c.begin, now, transport.CauseRejected, p.reason)
		c.peer = ref{} // the target has let go of it
		return
	}
	c.peer = p.from
	c.state = stOpen
	w.settle(c)
	end := now
	if !w.ep.f.rdma {
		w.report(i, transport.StepEstablish, c.begin, now)
	} else {
		w.report(i, transport.StepConnect, c.begin, now)
		w.step(i, transport.StepRTRAttr, now)
		w.step(i, transport.StepRTR, now)
		w.step(i, transport.StepRTSAttr, now)
		w.step(i, transport.StepRTS, now)
		end = w.step(i, transport.StepEstablish, now)
		w.send(packet{from: w.me(i), to: c.peer, kind: pktReady}, c, now, end)
	}
	w.report(i, transport.StepFullConnect, c.full, end)
}

// handleClose sees the peer's orderly close.
func (w *Worker) handleClose(i transport.Conn, c *conn, now int64) {
	switch c.state {
	case stClosing:
		c.state = stClosed
		w.settle(c)
		w.report(i, transport.StepDisconnect, c.begin, now)
	case stOpen, stProbing:
		if c.accepted {
			end := w.step(i, transport.StepPeerDisconnect, now)
			c.state = stClosed
			w.send(packet{from: w.me(i), to: c.peer, kind: pktClose}, c, now, end)
			return
		}
		if c.state == stProbing {
			w.fail(i, transport.StepProbe, c.begin, now, transport.CauseClosed, 0)
			return
		}
		c.state = stPeerClosed
		w.peerClosed(i, now, transport.CauseClosed)
	case stAnswering:
		w.fail(i, transport.StepEstablish, c.begin, now, transport.CauseClosed, 0)
	}
}

// handleReset sees that the peer, or the way to it, is gone.
func (w *Worker) handleReset(i transport.Conn, c *conn, now int64, cause transport.Cause) {
	switch c.state {
	case stConnecting:
		w.fail(i, transport.StepConnect, c.begin, now, cause, 0)
	case stAnswering:
		w.fail(i, transport.StepEstablish, c.begin, now, cause, 0)
	case stRequested:
		c.broken = true
	case stProbing:
		w.fail(i, transport.StepProbe, c.begin, now, cause, 0)
	case stClosing:
		w.fail(i, transport.StepDisconnect, c.begin, now, cause, 0)
	case stOpen:
		c.state = stPeerClosed
		if c.accepted {
			c.state = stFailed // a target has nothing left to do but destroy
		}
		w.peerClosed(i, now, cause)
	}
	c.peer = ref{} // nothing there to tell
}

func (w *Worker) peerClosed(i transport.Conn, now int64, cause transport.Cause) {
	w.done.push(item{begin: now, end: now, conn: i, step: transport.StepCount, kind: transport.EventPeerClosed, cause: cause})
}

// send lets p leave when the worker's clock reads at.
func (w *Worker) send(p packet, c *conn, now, at int64) {
	f := w.ep.f
	f.send(p, c, f.now()+at-now)
}

// take accepts one request of the backlog, if there is a living one.
func (w *Worker) take(now int64) bool {
	e := w.ep
	w.refuseFull()
	for w.accepting && w.room() > 0 {
		var r ref
		switch {
		case w.pending.len() > 0:
			r = w.pending.pop()
		case e.orphans.len() > 0:
			r = e.orphans.pop()
		default:
			return false
		}
		e.waiting--
		src := r.get()
		if src == nil || src.state != stConnecting && src.state != stAnswering {
			continue // given up while it waited
		}
		src.takenBy, src.takenAt = w, now
		w.mute++
		w.half.push(r)
		if src.helloIn {
			w.announce(r, src, now)
		}
		return true
	}
	return false
}

// refuseFull rejects what no worker of the endpoint has room for, rather than
// let it wait for ever. Before the first Reserve requests wait, and as long as
// one that was taken may still be rejected and give its place back.
func (w *Worker) refuseFull() {
	e := w.ep
	if !w.accepting || e.orphans.len() == 0 {
		return
	}
	places := 0
	for _, x := range e.workers {
		if !x.closed && (x.room() > 0 || x.undecided()) {
			return // it may be turned on again, or reject one
		}
		places += x.in
	}
	for places > 0 && e.orphans.len() > 0 {
		r := e.orphans.pop()
		e.waiting--
		if src := r.get(); src != nil {
			e.foreign++
			at := max(e.f.now()+e.f.delay(src), src.pathAt+1)
			e.f.queue.push(packet{at: at, key: src.id, to: r, kind: pktAnswer, reason: ReasonNoRoom})
		}
	}
}

// undecided says whether a request that takes a place is not answered yet.
func (w *Worker) undecided() bool {
	return w.mute > 0 || w.requested() > 0
}

// announce gives the EventRequest of a taken request whose hello is there.
func (w *Worker) announce(r ref, src *conn, now int64) {
	e := w.ep
	i := transport.Conn(w.out + w.taken)
	if last := len(w.rejected) - 1; last >= 0 {
		i = transport.Conn(w.out + int(w.rejected[last]))
		w.rejected = w.rejected[:last]
	} else {
		w.taken++
	}
	w.gen++
	w.live++
	w.conns[i] = conn{gen: w.gen, state: stRequested, accepted: true, pair: e.f.rdma, id: src.id, begin: src.takenAt, peer: r, hello: src.hello}
	e.conns++
	if e.f.rdma {
		e.pair(1)
	}
	src.takenBy = nil
	w.mute--
	w.shedHalf()
	src.peer = w.me(i)
	w.done.push(item{begin: src.takenAt, end: now, conn: i, step: transport.StepAccept, kind: transport.EventRequest})
}

// shedHalf drops those from the front of half that wait for no hello any more.
func (w *Worker) shedHalf() {
	for w.half.len() > 0 {
		if src := w.half.front().get(); src != nil && src.takenBy == w {
			return
		}
		w.half.pop()
	}
}
