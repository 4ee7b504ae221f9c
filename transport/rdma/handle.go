//go:build cgo

package rdma

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// read takes a batch of events from the worker's channel.
func (w *worker) read() error {
	n, err := w.table.Events(w.events[:w.readBatch])
	for i := range n {
		e := &w.events[i]
		if e.Slot < 0 || int(e.Slot) >= len(w.conns) || w.conns[e.Slot].gen != e.Gen || w.conns[e.Slot].state == stNone {
			continue // of a connection that is destroyed
		}
		if w.conns[e.Slot].state == stResponded {
			w.establish() // what was answered before comes first
		}
		w.handle(e)
	}
	w.establish()
	w.answerEnds()
	if err != nil {
		return fmt.Errorf("rdma_get_cm_event: %w", err)
	}
	return nil
}

// handle acts on one event as decide says.
func (w *worker) handle(e *verbs.Event) {
	id := transport.Conn(e.Slot)
	c := &w.conns[id]
	switch decide(c.state, e.Kind, e.Status) {
	case addressKnown:
		c.state = stResolved
		w.tell(transport.StepResolveAddr, id, c.begin, e.At)
	case addressFailed:
		w.again(transport.StepResolveAddr, id, c, e)
	case routeKnown:
		c.state = stRouted
		w.tell(transport.StepResolveRoute, id, c.begin, e.At)
	case routeFailed:
		w.again(transport.StepResolveRoute, id, c, e)
	case answered:
		c.state = stResponded
		w.tell(transport.StepConnect, id, c.begin, e.At)
		w.moved = append(w.moved, e.Slot)
	case up:
		c.state = stLive
		w.tell(transport.StepConnect, id, c.begin, e.At)
		w.tell(transport.StepFullConnect, id, c.due, e.At)
	case refused:
		cause, reason, err := refusalOf(e.Kind, e.Status, e.Data[:e.Len])
		if err != nil {
			oe := w.opError("rdma_connect", id, err)
			oe.Cause = cause
			err = oe
		}
		w.fail(transport.StepConnect, id, c.begin, e.At, cause, err)
		w.ring.Last().Reason = reason
	case closedHere:
		c.state = stShut
		w.tell(transport.StepDisconnect, id, c.begin, e.At)
	case closeLost:
		err := error(unix.ETIMEDOUT)
		if e.Status < 0 {
			err = unix.Errno(-e.Status)
		}
		w.failWith(transport.StepDisconnect, id, c.begin, e.At, "rdma_disconnect", err)
	case peerCloses:
		c.state = stShut
		w.ends, w.endAt = append(w.ends, e.Slot), append(w.endAt, e.At)
	case peerGone:
		c.state = stGone
		if int(id) >= w.out {
			c.state = stDead
		}
		w.report(transport.EventPeerClosed, transport.StepCount, id, e.At, e.At, transport.CauseClosed, nil)
		w.replyEnd(e)
	case failsProbe:
		w.fail(transport.StepProbe, id, c.begin, e.At, transport.CauseClosed, nil)
		w.replyEnd(e)
	case missed:
		w.answeredOne(c)
		w.report(transport.StepFailed, transport.StepAccept, id, c.begin, e.At, transport.CauseClosed, nil)
	case ignore:
	}
}

// again tries to resolve once more, if there are tries left and time was the trouble.
func (w *worker) again(s transport.Step, id transport.Conn, c *conn, e *verbs.Event) {
	no := unix.Errno(-e.Status)
	if e.Status >= 0 {
		no = unix.EHOSTUNREACH // an SA status: the path is not known
	}
	if int(c.tries) < w.e.retries && (e.Status >= 0 || no == unix.ETIMEDOUT || no == unix.EAGAIN) && e.Kind != verbs.DeviceRemoval {
		c.tries++
		w.one[0] = e.Slot
		if s == transport.StepResolveAddr {
			w.table.ResolveAddr(w.one[:], w.e.resolveMS, w.stamp[:])
		} else {
			w.table.ResolveRoute(w.one[:], w.e.resolveMS, w.stamp[:])
		}
		if w.stamp[0].Err == 0 {
			return
		}
		no = unix.Errno(w.stamp[0].Err)
	}
	err := error(no)
	if c.tries > 0 {
		err = fmt.Errorf("%w after %d tries of %d ms", no, c.tries+1, w.e.resolveMS)
	}
	w.failWith(s, id, c.begin, e.At, calls[s], err)
}

// establish moves the queue pairs of those that were answered, and tells their targets.
func (w *worker) establish() {
	if len(w.moved) == 0 {
		return
	}
	stages := w.stages[:len(w.moved)]
	w.table.Establish(w.moved, stages)
	w.moved = w.moved[:0]
	for i := range stages {
		g := &stages[i]
		id := transport.Conn(g[verbs.StageLast].Slot)
		c := &w.conns[id]
		if c.state != stResponded {
			continue // abandoned meanwhile
		}
		if w.stagesTold(id, g, initiatorStages[:]) {
			last := &g[verbs.StageLast]
			c.state = stLive
			w.tell(transport.StepFullConnect, id, c.due, last.End)
		}
	}
}

// stage of a crossing, the step that it is and the call that it makes.
type stage struct {
	at   int
	step transport.Step
	call string
}

var initiatorStages = [...]stage{
	{verbs.StageRTRAttr, transport.StepRTRAttr, "rdma_init_qp_attr RTR"},
	{verbs.StageRTR, transport.StepRTR, "ibv_modify_qp RTR"},
	{verbs.StageRTSAttr, transport.StepRTSAttr, "rdma_init_qp_attr RTS"},
	{verbs.StageRTS, transport.StepRTS, "ibv_modify_qp RTS"},
	{verbs.StageLast, transport.StepEstablish, "rdma_establish"},
}

var targetStages = [...]stage{
	{verbs.StageCreateQP, transport.StepAcceptCreateQP, "ibv_create_qp"},
	{verbs.StageInitAttr, transport.StepAcceptInitQPAttr, "rdma_init_qp_attr INIT"},
	{verbs.StageInitQP, transport.StepAcceptInitQP, "ibv_modify_qp INIT"},
	{verbs.StageRTRAttr, transport.StepAcceptRTRAttr, "rdma_init_qp_attr RTR"},
	{verbs.StageRTR, transport.StepAcceptRTR, "ibv_modify_qp RTR"},
	{verbs.StageRTSAttr, transport.StepAcceptRTSAttr, "rdma_init_qp_attr RTS"},
	{verbs.StageRTS, transport.StepAcceptRTS, "ibv_modify_qp RTS"},
	{verbs.StageLast, transport.StepAccept, "rdma_accept"},
}

// stagesTold reports an initiator's stages up to the first that failed; false if one did.
func (w *worker) stagesTold(id transport.Conn, g *verbs.Stages, list []stage) bool {
	for _, s := range list {
		st := &g[s.at]
		if st.Err != 0 {
			// Out of state: the connection manager has learnt of the peer's end before we have.
			err := errnoOf(st.Err)
			oe := w.opError(s.call, id, err)
			if errors.Is(err, unix.EINVAL) {
				oe.Cause = transport.CauseClosed
			}
			w.fail(s.step, id, st.Begin, st.End, oe.Cause, oe)
			return false
		}
		if st.Begin != 0 {
			w.tell(s.step, id, st.Begin, st.End)
		}
	}
	return true
}

// answerEnds answers the initiators that disconnect: only that lets them go.
func (w *worker) answerEnds() {
	if len(w.ends) == 0 {
		return
	}
	stamps := w.stamps[:len(w.ends)]
	w.table.Disconnect(w.ends, stamps)
	for i := range stamps {
		st := &stamps[i]
		id := transport.Conn(st.Slot)
		if w.conns[id].state != stShut {
			continue // abandoned meanwhile
		}
		if st.Err != 0 {
			w.failWith(transport.StepPeerDisconnect, id, w.endAt[i], st.End, "rdma_disconnect", errnoOf(st.Err))
			continue
		}
		w.tell(transport.StepPeerDisconnect, id, w.endAt[i], st.End)
	}
	w.ends, w.endAt = w.ends[:0], w.endAt[:0]
}

// replyEnd answers a peer that disconnected on its own, so that its side need not repeat itself.
func (w *worker) replyEnd(e *verbs.Event) {
	if e.Kind == verbs.Disconnected {
		w.one[0] = e.Slot
		w.table.Disconnect(w.one[:], w.stamp[:]) // fails if there is nobody to answer
	}
}

// completions takes what the queue pairs have done.
func (w *worker) completions() error {
	if w.count.qps.Load() == 0 {
		return nil
	}
	for {
		n, err := w.table.Completions(w.done)
		if err != nil {
			return fmt.Errorf("ibv_poll_cq: %w", err)
		}
		for i := range n {
			w.completed(&w.done[i])
		}
		w.pong()
		if n < len(w.done) || w.ring.Room() < w.ring.Cap()/4 {
			return nil
		}
	}
}

func (w *worker) completed(d *verbs.Done) {
	id := transport.Conn(d.Slot)
	c := &w.conns[id]
	if c.gen != d.Gen {
		return
	}
	var cause transport.Cause
	var err error
	if d.Status != 0 {
		e := completionError(d.Status)
		cause = e.cause()
		oe := w.opError("ibv_poll_cq", id, e)
		oe.Cause, err = cause, oe
	} else if d.Kind == verbs.Strange {
		cause = transport.CauseBadHello
	}
	switch {
	case c.state == stProbing && cause != 0:
		w.fail(transport.StepProbe, id, c.begin, d.At, cause, err)
	case c.state == stProbing && d.Kind == verbs.Pong:
		c.state = stLive
		w.tell(transport.StepProbe, id, c.begin, d.At)
	case c.state == stServing && cause != 0:
		c.state = stDead
		w.report(transport.EventPeerClosed, transport.StepCount, id, d.At, d.At, cause, err)
	case c.state == stServing && d.Kind == verbs.Ping:
		w.pings, w.pingAt = append(w.pings, d.Slot), append(w.pingAt, d.At)
	case c.state == stLive && cause != 0:
		c.state = stGone
		w.report(transport.EventPeerClosed, transport.StepCount, id, d.At, d.At, cause, err)
	}
}

// pong answers probes.
func (w *worker) pong() {
	if len(w.pings) == 0 {
		return
	}
	stamps := w.stamps[:len(w.pings)]
	w.table.Probe(w.pings, verbs.Pong, stamps)
	for i := range stamps {
		st := &stamps[i]
		if st.Err != 0 {
			w.failWith(transport.StepProbeAnswer, transport.Conn(st.Slot), w.pingAt[i], st.End, "ibv_post_send", errnoOf(st.Err))
			continue
		}
		w.tell(transport.StepProbeAnswer, transport.Conn(st.Slot), w.pingAt[i], st.End)
	}
	w.pings, w.pingAt = w.pings[:0], w.pingAt[:0]
}
