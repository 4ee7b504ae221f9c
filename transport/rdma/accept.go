//go:build cgo

package rdma

import (
	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// takeRequests takes a batch of requests from the listener's channel. Any of
// the endpoint's workers may; what one has taken is its own from then on. With
// wait they are kept for the next poll. short says that the listen queue holds
// less than a batch.
func (w *worker) takeRequests(wait bool) (short bool) {
	w.e.mu.Lock()
	l, full := w.e.listener, w.e.full
	if !w.accepting {
		l = nil
	}
	w.e.mu.Unlock()
	if l == nil {
		return false
	}
	w.e.take.Lock()
	n, _ := l.Events(w.events[:acceptBatch]) // an error there leaves the requests to the next poll
	w.e.take.Unlock()
	w.pressed = w.pressed || n >= full || n > 0 && full < acceptBatch
	for i := range n {
		e := &w.events[i]
		if e.Kind != verbs.ConnectRequest {
			continue
		}
		p := pending{id: e.ID, at: e.At}
		switch {
		case !parseHello(e.Data[:e.Len], &p.hello):
			w.turnAway(p.id)
		case !wait && len(w.waiting) == 0 && w.places():
			w.request(&p)
		case len(w.waiting) < cap(w.waiting) && (w.open > 0 || w.places()):
			w.waiting = append(w.waiting, p)
		default:
			w.turnAway(p.id)
		}
	}
	return full < acceptBatch
}

// relieve takes requests between two answers while the listen queue may be
// full: what the kernel drops there comes again only after its REQ timer, seconds
// later, and an answer takes as long as many readings. A queue that holds less
// than a batch fills within one answer: there one request is followed by a
// reading, and what is found by others, as long as one request follows the other.
// Nobody reads ahead more than a worker's share: the others would have nothing to do.
func (w *worker) relieve() {
	if !w.pressed {
		return
	}
	begin := w.clock.Now()
	last := begin
	share := (w.in + w.of - 1) / w.of
	for w.accepted+len(w.waiting) < share {
		had := len(w.waiting)
		short := w.takeRequests(true)
		now := w.clock.Now()
		if len(w.waiting) > had {
			last = now
		}
		if !short || last == begin || now-last > followsWithin || now-begin > longestRead {
			return
		}
	}
}

// pending is a request that waits: it was read ahead, or every place is taken, but some by requests
// that the caller has not answered yet. They may be forged ones, which give
// their places back.
type pending struct {
	id    uint64
	at    int64
	hello transport.Hello
}

// places says whether a request can be taken.
func (w *worker) places() bool { return w.accepted < w.in || len(w.rejected) > 0 }

// admit takes a batch of the requests that waited, or turns them away if there
// is no place after all.
func (w *worker) admit() {
	n, taken, now := 0, 0, w.clock.Now()
	for i := range w.waiting {
		p := &w.waiting[i]
		if taken == acceptBatch || !w.places() && w.open > 0 {
			break
		}
		n++
		if w.places() {
			p.at = now // the accept begins here: the wait, here or in the kernel, is the initiator's connect
			w.request(p)
			taken++
		} else {
			w.turnAway(p.id)
		}
	}
	w.waiting = append(w.waiting[:0], w.waiting[n:]...)
}

// turnAway rejects whoever is no rank, or is one too many.
func (w *worker) turnAway(id uint64) {
	verbs.TurnAway(id, putRefusal(&w.refusal, ReasonNoRoom))
	w.count.foreign.Add(1)
}

// answeredOne notes that a request is no longer open.
func (w *worker) answeredOne(c *conn) {
	if c.state == stRequested {
		w.open--
		c.state = stDead
	}
}

// request hands a request to the caller.
func (w *worker) request(e *pending) {
	i := w.accepted
	last := len(w.rejected) - 1
	if last >= 0 {
		i = int(w.rejected[last])
	}
	slot := int32(w.out + i)
	w.gen++
	if err := w.table.Adopt(slot, w.gen, e.id); err != nil {
		w.one[0] = slot
		w.table.DestroyID(w.one[:], w.stamp[:]) // which rejects it
		w.count.cramped.Add(1)
		return
	}
	if last >= 0 {
		w.rejected = w.rejected[:last]
	} else {
		w.accepted++
	}
	w.conns[slot] = conn{state: stRequested, gen: w.gen, peer: -1, begin: e.at}
	w.count.conns.Add(1)
	w.count.ids.Add(1)
	w.open++
	if w.mimic.On {
		w.table.Number(slot, w.number(slot))
	}
	r := w.ring.Push()
	r.Conn, r.Step, r.Kind, r.Cause, r.Reason, r.Begin, r.End, r.Err = transport.Conn(slot), transport.StepAccept, transport.EventRequest, 0, 0, e.at, e.at, nil
	r.Hello = e.hello
}

// Answer accepts a request with everything that belongs to it, or rejects it.
func (w *worker) Answer(id transport.Conn, accept bool, reason uint16) error {
	if w.closed {
		return errClosed
	}
	if int(id) < w.out || int(id) >= w.out+w.accepted || w.conns[id].state != stRequested {
		if int(id) >= w.out && int(id) < w.out+w.accepted && w.conns[id].state == stDead {
			return nil // given up meanwhile, and told
		}
		return misuse("answer", "connection %d has no open request", id)
	}
	c := &w.conns[id]
	w.answeredOne(c)
	if !accept {
		w.reject(int32(id), c, reason)
		return nil
	}
	w.relieve()
	g := &w.stages[0]
	w.table.Accept(int32(id), g)
	if !w.mimic.On && g[verbs.StageCreateQP].Err == 0 {
		w.count.qps.Add(1)
	}
	if err := w.acceptStages(id, c, g); err != nil {
		if err.Cause != transport.CauseClosed { // or the initiator would wait for an answer until its retries are used up
			_ = w.table.Refuse(int32(id), putRefusal(&w.refusal, ReasonNoResources))
		}
		w.fail(transport.StepAccept, id, c.begin, w.clock.Now(), err.Cause, err)
		return nil
	}
	c.state = stServing
	if w.mimic.On {
		w.tell(transport.StepProbeAnswer, id, 0, 0) // no probe can come
	}
	return nil
}

// acceptStages reports the stages of an accept; the error is that of the one
// that failed, which fails the accept as a whole.
func (w *worker) acceptStages(id transport.Conn, c *conn, g *verbs.Stages) *transport.OpError {
	for _, s := range targetStages {
		st := &g[s.at]
		if st.Err != 0 {
			oe := w.opError(s.call, id, errnoOf(st.Err))
			if st.Err == int32(unix.EINVAL) {
				oe.Cause = transport.CauseClosed // out of state: the initiator has given up
			}
			return oe
		}
		switch {
		case st.Begin == 0: // not a stage here
		case s.step == transport.StepAccept:
			w.tell(s.step, id, c.begin, st.End)
		default:
			w.tell(s.step, id, st.Begin, st.End)
		}
	}
	return nil
}

// reject tells the initiator why it is not taken and forgets the request.
func (w *worker) reject(slot int32, c *conn, reason uint16) {
	_ = w.table.Refuse(slot, putRefusal(&w.refusal, reason)) // fails if the initiator is gone
	w.one[0] = slot
	w.table.DestroyID(w.one[:], w.stamp[:])
	w.count.conns.Add(-1)
	w.count.ids.Add(-1)
	*c = conn{peer: -1}
	w.rejected = append(w.rejected, slot-int32(w.out)) // within its capacity
}
