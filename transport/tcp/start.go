package tcp

import (
	"errors"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/internal/epoll"
)

// Start begins step s on n connections; see transport.Worker. The steps that
// the kernel completes within the call report at once.
func (w *worker) Start(s transport.Step, first transport.Conn, n int, due []int64) (int, error) {
	if w.closed {
		return 0, errClosed
	}
	if due != nil && len(due) < n {
		return 0, misuse("start", "%v: %d due moments for %d connections", s, len(due), n)
	}
	// Half of the ring is for what polls and answers bring.
	room := w.ring.Room() - w.ring.Cap()/2
	var now int64
	if s != transport.StepConnect { // which reads the clock for each connection anyway
		now = w.clock.Now()
	}
	for i := range n {
		if i >= room {
			return i, transport.ErrAgain
		}
		id := first + transport.Conn(i)
		slot, ok := w.slot(id)
		if !ok {
			// A target's connection that is destroyed already has nothing left to do.
			if k := int(id) - w.out; k >= 0 && k < w.accepted && (s == transport.StepDestroyQP || s == transport.StepDestroyID) {
				w.done(s, id, 0, 0)
				continue
			}
			return i, misuse("start", "%v: there is no connection %d", s, id)
		}
		c := &w.conns[slot]
		switch s {
		case transport.StepDestroyQP, transport.StepDestroyID:
			now = w.destroy(s, slot, c, now)
			continue
		}
		if c.state == stDead {
			continue
		}
		if !allowed(s, c) {
			return i, misuse("start", "%v: connection %d is not ready for it", s, id)
		}
		switch s {
		case transport.StepConnect:
			at := int64(0)
			if due != nil {
				at = due[i]
			}
			w.connect(slot, c, at)
		case transport.StepProbe:
			w.probe(c)
		case transport.StepDisconnect:
			w.disconnect(c)
		default:
			now = w.prepare(s, slot, c, now)
		}
	}
	return n, nil
}

// allowed keeps a step from meeting a connection that lacks what it stands on.
func allowed(s transport.Step, c *conn) bool {
	switch s {
	case transport.StepCreateID:
		return c.state == stNone
	case transport.StepBindAddr:
		return c.state == stCreated
	case transport.StepResolveAddr, transport.StepResolveRoute:
		return c.state == stCreated && c.peer >= 0
	case transport.StepCreateQP:
		return c.state == stCreated && c.peer >= 0 && !c.watched
	case transport.StepConnect:
		return c.state == stCreated && c.peer >= 0 && c.watched
	case transport.StepProbe:
		return c.state == stLive || c.state == stGone
	case transport.StepDisconnect:
		return c.state == stLive || c.state == stProbe || c.state == stGone
	}
	return false
}

// done reports a completed step.
func (w *worker) done(s transport.Step, id transport.Conn, begin, end int64) {
	e := w.ring.Push()
	e.Conn, e.Step, e.Kind, e.Cause, e.Reason, e.Begin, e.End, e.Err = id, s, transport.StepDone, 0, 0, begin, end, nil
}

// fail reports a failed step and ends the connection's life but for destroy.
func (w *worker) fail(s transport.Step, c *conn, begin, end int64, cause transport.Cause, err error) {
	c.state = stDead
	w.report(transport.StepFailed, s, c, begin, end, cause, err)
}

func (w *worker) report(k transport.EventKind, s transport.Step, c *conn, begin, end int64, cause transport.Cause, err error) {
	e := w.ring.Push()
	e.Conn, e.Step, e.Kind, e.Cause, e.Reason, e.Begin, e.End, e.Err = c.id, s, k, cause, 0, begin, end, err
}

// failWith is fail with the system's error of call op.
func (w *worker) failWith(s transport.Step, c *conn, begin, end int64, op string, err error) {
	oe := opError(op, nil, nil, err)
	if sa, err := unix.Getsockname(int(c.fd)); err == nil {
		oe.Local = sockaddrString(sa)
	}
	if c.peer >= 0 {
		oe.Remote = w.peers[c.peer].addr.String()
	} else if sa, err := unix.Getpeername(int(c.fd)); err == nil {
		oe.Remote = sockaddrString(sa)
	}
	w.fail(s, c, begin, end, oe.Cause, oe)
}

// prepare carries out the steps before connect. The end of one is the begin
// of the next: one clock read for both.
func (w *worker) prepare(s transport.Step, slot int32, c *conn, begin int64) int64 {
	var op string
	var err error
	idle := false // an earlier connection did the work for this one
	switch s {
	case transport.StepCreateID:
		op = "socket"
		var fd int
		fd, err = unix.Socket(w.e.adv.domain(), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err == nil {
			c.fd, c.state = int32(fd), stCreated
			w.count.fds.Add(1)
			w.count.conns.Add(1)
		}
	case transport.StepBindAddr:
		op, err = w.bind(c)
	case transport.StepResolveAddr:
		op = "resolve"
		p := &w.peers[c.peer]
		if idle = p.resolved; !idle {
			p.resolved = true
			p.err = p.resolve(w.e.own())
			p.local = p.err == nil && (p.addr.ip.IsLoopback() || p.addr.ip == w.e.adv.ip)
		}
		err = p.err
	case transport.StepResolveRoute:
		op = "route"
		p := &w.peers[c.peer]
		if idle = p.routed || w.router == nil || !p.resolved; !idle {
			p.routed = true
			var local bool
			local, p.routeErr = w.router.lookup(&p.addr)
			p.local = p.local || local
			if p.routeErr != nil && causeOf(p.routeErr) != transport.CauseUnreachable {
				p.routeErr = nil // not knowing the route is no reason not to connect
			}
		}
		err = p.routeErr
	case transport.StepCreateQP:
		op, err = w.createQP(slot, c)
	}
	end := w.clock.Now()
	switch {
	case err != nil:
		w.failPrepare(s, c, begin, end, op, err)
	case idle:
		w.done(s, c.id, 0, 0)
	default:
		w.done(s, c.id, begin, end)
	}
	return end
}

// failPrepare is apart from prepare because looking into an error allocates.
func (w *worker) failPrepare(s transport.Step, c *conn, begin, end int64, op string, err error) {
	var known *transport.OpError
	switch {
	case errors.As(err, &known):
		w.fail(s, c, begin, end, known.Cause, err)
	case s == transport.StepResolveAddr:
		w.fail(s, c, begin, end, transport.CauseOther, opError(op, nil, nil, err))
	default:
		w.failWith(s, c, begin, end, op, err)
	}
}

// bind takes the next local address in turn over all workers. The port is left
// to connect (IP_BIND_ADDRESS_NO_PORT): chosen there it must be free only
// towards that one peer, so every peer has the whole port range.
func (w *worker) bind(c *conn) (op string, err error) {
	if err = unix.SetsockoptInt(int(c.fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return "setsockopt", err
	}
	if r := w.e.portRange; r != 0 {
		if err = unix.SetsockoptInt(int(c.fd), unix.IPPROTO_IP, ipLocalPortRange, int(r)); err != nil {
			return "setsockopt", err
		}
	}
	l := &w.e.local[(int(c.id)*w.of+w.idx)%len(w.e.local)]
	return "bind", unix.Bind(int(c.fd), l.sockaddr())
}

const ipLocalPortRange = 51 // IP_LOCAL_PORT_RANGE

// createQP sets the options and puts the socket into the worker's set.
func (w *worker) createQP(slot int32, c *conn) (op string, err error) {
	if err = unix.SetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return "setsockopt", err
	}
	bits := uint32(epoll.In | epoll.PeerShut | epoll.Edge)
	if !w.peers[c.peer].local {
		bits |= epoll.Out
	}
	if err = w.set.Add(int(c.fd), slot, c.gen, bits); err != nil {
		return "epoll_ctl", err
	}
	c.watched = true
	return "", nil
}

// connect begins with connect(2). Within a host the path has answered by the
// time that the call returns, so the hello goes out at once instead of after
// one more round through epoll; to another host the answer is waited for.
func (w *worker) connect(slot int32, c *conn, due int64) {
	p := &w.peers[c.peer]
	c.begin = w.clock.Now()
	c.due = c.begin
	if due != 0 {
		c.due = due
	}
	err := unix.Connect(int(c.fd), p.addr.sockaddr())
	if err != nil && err != unix.EINPROGRESS {
		w.failWith(transport.StepConnect, c, c.begin, w.clock.Now(), "connect", err)
		return
	}
	c.state = stConnecting
	if p.local || err == nil {
		w.sayHello(slot, c)
	}
}

// sayHello ends the connect step if the path has answered: the kernel then
// takes the hello, and says EAGAIN otherwise.
func (w *worker) sayHello(slot int32, c *conn) {
	mark := w.clock.Now()
	n, err := unix.Write(int(c.fd), c.buf[:])
	switch {
	case err == unix.EAGAIN:
		bits := uint32(epoll.In | epoll.Out | epoll.PeerShut | epoll.Edge)
		if err := w.set.Modify(int(c.fd), slot, c.gen, bits); err != nil {
			w.failWith(transport.StepConnect, c, c.begin, mark, "epoll_ctl", err)
		}
		return
	case err != nil:
		w.askRetransmits(c, mark)
		w.failWith(transport.StepConnect, c, c.begin, mark, "connect", err)
		return
	}
	w.done(transport.StepConnect, c.id, c.begin, mark)
	c.mark, c.got = mark, 0
	c.state = stAnswer
	if n != len(c.buf) {
		// The first 56 bytes fit into every send buffer.
		w.fail(transport.StepEstablish, c, mark, w.clock.Now(), transport.CauseNoMemory,
			opError("write", nil, &w.peers[c.peer].addr, unix.ENOBUFS))
	}
}

// probe sends the ping of the first round trip.
func (w *worker) probe(c *conn) {
	w.askSlow(c)
	begin := w.clock.Now()
	if c.state == stGone {
		w.fail(transport.StepProbe, c, begin, begin, transport.CauseClosed, nil)
		return
	}
	putShort(&w.short, kindPing, 0, 0)
	n, err := unix.Write(int(c.fd), w.short[:])
	if err == nil && n != len(w.short) {
		err = unix.ENOBUFS
	}
	if err != nil {
		w.failWith(transport.StepProbe, c, begin, w.clock.Now(), "write", err)
		return
	}
	c.begin, c.got, c.state = begin, 0, stProbe
}

// disconnect closes our direction; the step ends when the peer's FIN is read.
// The initiator is always the first to close, so TIME_WAIT stays with it.
func (w *worker) disconnect(c *conn) {
	w.askSlow(c)
	begin := w.clock.Now()
	err := unix.Shutdown(int(c.fd), unix.SHUT_WR)
	switch {
	case c.state == stGone:
		// The peer's side was seen closed before; what shutdown says then adds nothing.
		c.state = stShut
		w.done(transport.StepDisconnect, c.id, begin, w.clock.Now())
	case err != nil:
		w.failWith(transport.StepDisconnect, c, begin, w.clock.Now(), "shutdown", err)
	default:
		c.begin, c.state = begin, stClosing
	}
}

// destroy takes the socket out of the set (DestroyQP) and closes it
// (DestroyID). Without lingering: what was written still arrives.
func (w *worker) destroy(s transport.Step, slot int32, c *conn, begin int64) int64 {
	id := c.id
	switch {
	case s == transport.StepDestroyQP && c.watched:
		w.askRetransmits(c, begin)
		w.askSlow(c)
		_ = w.set.Remove(int(c.fd))
		c.watched = false
	case s == transport.StepDestroyID && c.fd >= 0:
		w.release(slot, c)
		w.count.conns.Add(-1)
	default:
		if s == transport.StepDestroyID {
			c.state = stNone
		}
		w.done(s, id, 0, 0)
		return begin
	}
	end := w.clock.Now()
	w.done(s, id, begin, end)
	return end
}

// release closes a slot's socket and makes the slot empty; an accepted one's
// goes back to the free slots.
func (w *worker) release(slot int32, c *conn) {
	unix.Close(int(c.fd))
	w.count.fds.Add(-1)
	if c.state == stRequest {
		w.open--
	}
	id, peer := c.id, c.peer
	*c = conn{fd: -1, id: id, gen: c.gen + 1, peer: peer, prev: -1, next: -1}
	if int(slot) >= w.out {
		if int(id) >= w.out && int(id) < w.out+w.accepted && w.slotOf[int(id)-w.out] == slot {
			w.slotOf[int(id)-w.out] = -1
		}
		c.id = -1
		w.free = append(w.free, slot) // within its capacity
	}
}

// askRetransmits counts the set-up packets that were sent again, for a
// connection that did not come up and had time for that.
func (w *worker) askRetransmits(c *conn, now int64) {
	if c.state == stConnecting || c.state == stAnswer {
		c.slow = now-c.begin >= int64(slowSetUp)
		w.askSlow(c)
	}
}

// askSlow does the same for a connection that came up slowly. It is called
// ahead of the first step after the storm, so that it costs the storm nothing.
func (w *worker) askSlow(c *conn) {
	if c.slow && !c.asked {
		c.asked = true
		w.count.retries.Add(retransmits(int(c.fd), &w.info))
	}
}
