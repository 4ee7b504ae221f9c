package tcp

import (
	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/internal/epoll"
)

// accept takes a batch of requests from the listener.
func (w *worker) accept() {
	listener := int(w.e.listener.Load())
	if listener < 0 {
		return
	}
	for range acceptBatch {
		if len(w.free) == 0 && w.oldest < 0 && len(w.waiting) > 0 {
			return // all slots are of peers, some of which may turn out to be none
		}
		fd, no := accept4(listener)
		switch no {
		case 0:
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE:
			w.count.starved.Add(1)
			w.rest(listener)
			return
		case unix.ENOBUFS, unix.ENOMEM:
			w.count.cramped.Add(1)
			w.rest(listener)
			return
		default:
			continue // that one request is gone again
		}
		w.count.fds.Add(1)
		now := w.clock.Now()
		if len(w.free) == 0 {
			if w.oldest < 0 {
				unix.Close(fd) // every slot is a connection of this round
				w.count.fds.Add(-1)
				w.count.foreign.Add(1)
				continue
			}
			// Who has been silent for longest makes room.
			w.turnAway(w.oldest)
		}
		slot := w.free[len(w.free)-1]
		w.free = w.free[:len(w.free)-1]
		c := &w.conns[slot]
		c.fd, c.state, c.got, c.peer, c.begin, c.mark = int32(fd), stHello, 0, -1, now, now
		w.readHello(slot, c)
	}
}

// rest stops taking requests for a moment: a level-triggered listener whose
// requests cannot be taken would keep the worker busy for nothing.
func (w *worker) rest(listener int) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.accepting {
		w.unwatch(listener)
		w.resting = w.clock.Now() + int64(acceptRest)
	}
}

// readHello reads on in the hello of an accepted socket. Mostly all of it is
// there when the request is taken; else the socket waits among the half-open.
func (w *worker) readHello(slot int32, c *conn) {
	n, err := w.fill(c)
	switch {
	case err == unix.EAGAIN:
	case err != nil || n == 0 || int(c.got)+n > helloFrame:
		w.turnAway(slot)
		return
	default:
		copy(c.buf[c.got:], w.scratch[:n])
		c.got += uint8(n)
		if !helloSoFar(c.buf[:c.got]) || c.got >= headerSize && (c.buf[6] != 0 || c.buf[7] != 0) {
			w.turnAway(slot)
			return
		}
		if c.got == helloFrame {
			if c.watched {
				w.dropHalfOpen(slot)
			}
			w.whole(slot, c)
			return
		}
	}
	if !c.watched {
		if w.set.Add(int(c.fd), slot, c.gen, epoll.In|epoll.PeerShut|epoll.Edge) != nil {
			w.turnAway(slot)
			return
		}
		c.watched = true
		w.pushHalfOpen(slot)
	}
}

// whole deals with a complete hello. If every place is taken, but some by requests
// that the caller has not answered yet, it waits: they may be forged ones, which
// give their places back.
func (w *worker) whole(slot int32, c *conn) {
	switch {
	case len(w.waiting) == 0 && w.places():
		w.request(slot, c)
	case w.open > 0 || len(w.waiting) > 0 && w.places():
		c.state = stWaiting
		w.waiting = append(w.waiting, slot) // within its capacity
	default:
		w.noRoom(slot, c)
	}
}

// places says whether a request can be taken.
func (w *worker) places() bool { return w.accepted < w.in || len(w.rejected) > 0 }

// admit takes the hellos that waited for a place, or tells them that there is
// none after all.
func (w *worker) admit() {
	n := 0
	for _, slot := range w.waiting {
		if !w.places() && w.open > 0 {
			break
		}
		n++
		if c := &w.conns[slot]; w.places() {
			w.request(slot, c)
		} else {
			w.noRoom(slot, c)
		}
	}
	w.waiting = append(w.waiting[:0], w.waiting[n:]...)
}

// noRoom rejects a request because all places are those of accepted ones.
func (w *worker) noRoom(slot int32, c *conn) {
	putShort(&w.short, kindAnswer, statusRejected, ReasonNoRoom)
	_, _ = unix.Write(int(c.fd), w.short[:])
	w.count.foreign.Add(1)
	w.release(slot, c)
}

// request hands a complete hello to the caller.
func (w *worker) request(slot int32, c *conn) {
	i := w.accepted
	if last := len(w.rejected) - 1; last >= 0 {
		i = int(w.rejected[last])
		w.rejected = w.rejected[:last]
	} else {
		w.accepted++
	}
	c.id = transport.Conn(w.out + i)
	w.slotOf[i] = slot
	w.count.conns.Add(1)
	c.state, c.got = stRequest, 0
	w.open++
	e := w.ring.Push()
	e.Conn, e.Step, e.Kind, e.Cause, e.Reason, e.Begin, e.End, e.Err = c.id, transport.StepAccept, transport.EventRequest, 0, 0, c.begin, c.begin, nil
	copy(e.Hello[:], c.buf[headerSize:])
}

// reject tells the initiator why it is not taken, as far as it listens, and
// forgets the request.
func (w *worker) reject(slot int32, c *conn, reason uint16) {
	putShort(&w.short, kindAnswer, statusRejected, reason)
	_, _ = unix.Write(int(c.fd), w.short[:])
	i := int32(int(c.id) - w.out)
	w.count.conns.Add(-1)
	w.release(slot, c)
	w.rejected = append(w.rejected, i) // within its capacity
}

// Answer tells the initiator that it is taken, or why not.
func (w *worker) Answer(id transport.Conn, accept bool, reason uint16) error {
	slot, ok := w.slot(id)
	if !ok || w.conns[slot].state != stRequest {
		if ok && w.conns[slot].state == stDead {
			return nil // abandoned meanwhile
		}
		return misuse("answer", "connection %d has no open request", id)
	}
	c := &w.conns[slot]
	if !accept {
		w.reject(slot, c, reason)
		return nil
	}
	w.open--
	putShort(&w.short, kindAnswer, statusAccepted, 0)
	n, err := unix.Write(int(c.fd), w.short[:])
	end := w.clock.Now()
	if err == nil && n != len(w.short) {
		err = unix.ENOBUFS
	}
	if err != nil {
		w.failWith(transport.StepAccept, c, c.begin, end, "write", err)
		return nil
	}
	c.state = stServing
	w.done(transport.StepAccept, c.id, c.begin, end)
	// Only now into the set: nothing is missed, because epoll reports what is
	// there already, and the initiator need not wait for the call.
	bits := uint32(epoll.In | epoll.PeerShut | epoll.Edge)
	switch {
	case !c.watched:
		err = w.set.Add(int(c.fd), slot, c.gen, bits)
		c.watched = err == nil
	case c.missed:
		c.missed = false
		err = w.set.Modify(int(c.fd), slot, c.gen, bits)
	}
	if err != nil {
		c.state = stDead
		w.report(transport.EventPeerClosed, transport.StepCount, c, end, end, causeOf(err), opError("epoll_ctl", nil, nil, err))
	}
	return nil
}

// turnAway closes an accepted socket that never became a connection.
func (w *worker) turnAway(slot int32) {
	c := &w.conns[slot]
	if c.state == stHello && c.watched {
		w.dropHalfOpen(slot)
	}
	w.count.foreign.Add(1)
	w.release(slot, c)
}

// The half-open sockets are a list through the slots, oldest first.

func (w *worker) pushHalfOpen(slot int32) {
	c := &w.conns[slot]
	c.prev, c.next = w.newest, -1
	if w.newest >= 0 {
		w.conns[w.newest].next = slot
	} else {
		w.oldest = slot
	}
	w.newest = slot
}

func (w *worker) dropHalfOpen(slot int32) {
	c := &w.conns[slot]
	if c.prev >= 0 {
		w.conns[c.prev].next = c.next
	} else {
		w.oldest = c.next
	}
	if c.next >= 0 {
		w.conns[c.next].prev = c.prev
	} else {
		w.newest = c.prev
	}
	c.prev, c.next = -1, -1
}
