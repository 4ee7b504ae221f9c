package tcp

import (
	"math"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/internal/epoll"
)

// handle carries on with a socket that epoll reported.
func (w *worker) handle(slot int32, c *conn, bits uint32) {
	gen := c.gen
	if c.state == stConnecting {
		if bits&(epoll.Err|epoll.HangUp) != 0 {
			w.refused(c)
			return
		}
		if bits&epoll.Out != 0 {
			w.sayHello(slot, c)
		}
		if c.state == stConnecting {
			return
		}
	}
	if bits&(epoll.In|epoll.PeerShut|epoll.HangUp|epoll.Err) == 0 {
		return
	}
	// Short of its room a read has emptied the socket; only an end that was
	// announced with it is still to be read.
	ended := bits&(epoll.PeerShut|epoll.HangUp|epoll.Err) != 0
	switch c.state {
	case stAnswer, stLive, stProbe, stClosing, stServing:
		for w.read(c) && ended {
		}
	case stHello:
		w.readHello(slot, c)
		if ended && c.gen == gen {
			switch c.state {
			case stHello:
				w.turnAway(slot) // it can never become whole
			case stRequest, stWaiting:
				c.missed = true
			}
		}
	case stRequest, stWaiting:
		c.missed = true
	}
}

// refused reports why connect failed.
func (w *worker) refused(c *conn) {
	now := w.clock.Now()
	w.askRetransmits(c, now)
	no, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil {
		err = unix.Errno(no)
		if no == 0 {
			err = unix.ECONNRESET // hung up without a reason
		}
	}
	w.failWith(transport.StepConnect, c, c.begin, now, "connect", err)
}

// read takes what came on an answered connection, or on one that waits for its
// answer. It returns true if more may be there.
func (w *worker) read(c *conn) bool {
	n, err := w.fill(c)
	if err == unix.EAGAIN {
		return false
	}
	now := w.clock.Now()
	switch {
	case err != nil:
		w.broken(c, now, err)
		return false
	case n == 0:
		w.ended(c, now)
		return false
	}
	if c.state == stClosing || c.state == stDead {
		return true // nobody wants it any more
	}
	if int(c.got)+n > shortFrame || c.state == stLive {
		w.foreign(c, now)
		return false
	}
	copy(c.buf[c.got:], w.scratch[:n])
	if c.got += uint8(n); c.got == shortFrame {
		c.got = 0
		w.frame(c, now)
	}
	return c.state != stDead
}

// fill reads what is there into the scratch buffer.
func (w *worker) fill(c *conn) (int, error) {
	for {
		n, err := unix.Read(int(c.fd), w.scratch[:])
		if err != unix.EINTR {
			return n, err
		}
	}
}

// frame acts on a whole short frame.
func (w *worker) frame(c *conn, now int64) {
	kind, status, reason, ok := parseShort((*[shortFrame]byte)(c.buf[:shortFrame]))
	switch {
	case !ok:
		w.foreign(c, now)
	case c.state == stAnswer && kind == kindAnswer && status == statusAccepted:
		c.slow = now-c.begin >= int64(slowSetUp)
		c.state = stLive
		w.done(transport.StepEstablish, c.id, c.mark, now)
		w.done(transport.StepFullConnect, c.id, c.due, now)
	case c.state == stAnswer && kind == kindAnswer:
		w.fail(transport.StepEstablish, c, c.mark, now, transport.CauseRejected, nil)
		w.ring.Last().Reason = reason
	case c.state == stProbe && kind == kindPong:
		c.state = stLive
		w.done(transport.StepProbe, c.id, c.begin, now)
	case c.state == stServing && kind == kindPing:
		w.pong(c, now)
	default:
		w.foreign(c, now)
	}
}

// pong answers a probe.
func (w *worker) pong(c *conn, begin int64) {
	putShort(&w.short, kindPong, 0, 0)
	n, err := unix.Write(int(c.fd), w.short[:])
	if err == nil && n != len(w.short) {
		err = unix.ENOBUFS
	}
	if err != nil {
		w.failWith(transport.StepProbeAnswer, c, begin, w.clock.Now(), "write", err)
		return
	}
	w.done(transport.StepProbeAnswer, c.id, begin, w.clock.Now())
}

// foreign ends a connection whose peer does not speak as a rank does.
func (w *worker) foreign(c *conn, now int64) {
	switch c.state {
	case stAnswer:
		w.fail(transport.StepEstablish, c, c.mark, now, transport.CauseBadHello, nil)
	case stProbe:
		w.fail(transport.StepProbe, c, c.begin, now, transport.CauseBadHello, nil)
	default:
		c.state = stDead
		w.report(transport.EventPeerClosed, transport.StepCount, c, now, now, transport.CauseBadHello, nil)
	}
}

// ended handles the peer's orderly close.
func (w *worker) ended(c *conn, now int64) {
	switch c.state {
	case stAnswer:
		w.askRetransmits(c, now)
		w.fail(transport.StepEstablish, c, c.mark, now, transport.CauseClosed, nil)
	case stProbe:
		w.fail(transport.StepProbe, c, c.begin, now, transport.CauseClosed, nil)
	case stLive:
		c.state = stGone
		w.report(transport.EventPeerClosed, transport.StepCount, c, now, now, transport.CauseClosed, nil)
	case stClosing:
		c.state = stShut
		w.done(transport.StepDisconnect, c.id, c.begin, now)
	case stServing:
		if err := unix.Shutdown(int(c.fd), unix.SHUT_WR); err != nil {
			w.failWith(transport.StepPeerDisconnect, c, now, w.clock.Now(), "shutdown", err)
			return
		}
		c.state = stShut
		w.done(transport.StepPeerDisconnect, c.id, now, w.clock.Now())
	}
}

// broken handles a reset and its like.
func (w *worker) broken(c *conn, now int64, err error) {
	switch c.state {
	case stAnswer:
		w.askRetransmits(c, now)
		w.failWith(transport.StepEstablish, c, c.mark, now, "read", err)
	case stProbe:
		w.failWith(transport.StepProbe, c, c.begin, now, "read", err)
	case stClosing:
		w.failWith(transport.StepDisconnect, c, c.begin, now, "read", err)
	case stLive:
		c.state = stGone
		w.report(transport.EventPeerClosed, transport.StepCount, c, now, now, causeOf(err), nil)
	case stServing:
		c.state = stDead
		w.report(transport.EventPeerClosed, transport.StepCount, c, now, now, causeOf(err), nil)
	}
}

// nextDeadline is when Wait has to look again by itself.
func (w *worker) nextDeadline() int64 {
	t := int64(math.MaxInt64)
	if w.oldest >= 0 {
		t = w.conns[w.oldest].mark + int64(helloDeadline)
	}
	if w.resting > 0 {
		t = min(t, w.resting)
	}
	return t
}

// overdue turns away who said nothing for too long and takes requests again
// after a rest.
func (w *worker) overdue() {
	now := w.clock.Now()
	for w.oldest >= 0 && now >= w.conns[w.oldest].mark+int64(helloDeadline) {
		w.turnAway(w.oldest)
	}
	if w.resting > 0 && now >= w.resting {
		w.resting = 0
		w.e.mu.Lock()
		if fd := int(w.e.listener.Load()); fd >= 0 && w.accepting && w.watch(fd) != nil {
			w.resting = now + int64(acceptRest)
		}
		w.e.mu.Unlock()
	}
}
