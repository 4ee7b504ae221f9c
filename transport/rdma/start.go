//go:build cgo

package rdma

import (
	"net/netip"
	"time"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// startable are the steps that Start begins; the others follow from them or
// belong to the endpoint or to the target.
var startable = transport.Steps(
	transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute,
	transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP,
	transport.StepConnect, transport.StepProbe, transport.StepDisconnect,
	transport.StepDestroyQP, transport.StepDestroyID,
)

// calls are the library's names of what the steps do.
var calls = map[transport.Step]string{
	transport.StepCreateID: "rdma_create_id", transport.StepBindAddr: "rdma_bind_addr",
	transport.StepResolveAddr: "rdma_resolve_addr", transport.StepResolveRoute: "rdma_resolve_route",
	transport.StepCreateQP: "ibv_create_qp", transport.StepInitQPAttr: "rdma_init_qp_attr", transport.StepInitQP: "ibv_modify_qp",
	transport.StepConnect: "rdma_connect", transport.StepProbe: "ibv_post_send", transport.StepDisconnect: "rdma_disconnect",
	transport.StepDestroyQP: "ibv_destroy_qp", transport.StepDestroyID: "rdma_destroy_id",
}

// longestNap bounds how long one Start sleeps in place of queue pair steps.
const longestNap = 50 * time.Millisecond

// Start begins step s on n connections; see transport.Worker. The library is
// entered once for up to startBatch of them.
func (w *worker) Start(s transport.Step, first transport.Conn, n int, due []int64) (int, error) {
	switch {
	case w.closed:
		return 0, errClosed
	case s >= transport.StepCount || !startable.Has(s):
		return 0, misuse("start", "%v: not a step that is started here", s)
	case due != nil && len(due) < n:
		return 0, misuse("start", "%v: %d due moments for %d connections", s, len(due), n)
	}
	// Half of the ring is for what polls and answers bring.
	room := w.ring.Room() - w.ring.Cap()/2
	if d := w.mimic.Delay; w.mimic.On && d > 0 && (s == transport.StepCreateQP || s == transport.StepInitQP) {
		room = min(room, max(1, int(longestNap/d)))
	}
	for done := 0; done < n; {
		if done >= room {
			return done, transport.ErrAgain
		}
		most := min(n-done, room-done, startBatch)
		var at []int64
		if due != nil {
			at = due[done:]
		}
		k, err := w.startSome(s, first+transport.Conn(done), most, at)
		done += k
		if err != nil {
			return done, err
		}
	}
	return n, nil
}

// startSome begins s on up to n ≤ startBatch connections in one crossing.
func (w *worker) startSome(s transport.Step, first transport.Conn, n int, due []int64) (begun int, err error) {
	slots := w.slots[:0]
	destroys := s == transport.StepDestroyQP || s == transport.StepDestroyID
	for ; begun < n; begun++ {
		id := first + transport.Conn(begun)
		if id < 0 || int(id) >= w.out+w.accepted {
			err = misuse("start", "%v: there is no connection %d", s, id)
			break
		}
		c := &w.conns[id]
		switch {
		case destroys:
			if !w.holds(s, int32(id)) {
				w.nothingToDestroy(s, id)
				continue
			}
		case c.state == stDead:
			continue
		case !w.allowed(s, c, id):
			err = misuse("start", "%v: connection %d is not ready for it (%v)", s, id, c.state)
		case s == transport.StepProbe && c.state == stGone:
			now := w.clock.Now()
			w.fail(s, id, now, now, transport.CauseClosed, nil)
			continue
		case s == transport.StepProbe && w.mimic.On:
			w.tell(s, id, 0, 0) // nothing can be sent without a queue pair
			continue
		case s == transport.StepDisconnect && c.state == stGone:
			// The peer's side was seen closed before, and was answered then.
			now := w.clock.Now()
			c.state = stShut
			w.tell(s, id, now, now)
			continue
		}
		if err != nil {
			break
		}
		if s == transport.StepConnect {
			c.due = 0
			if due != nil {
				c.due = due[begun]
			}
		}
		slots = append(slots, int32(id))
	}
	if len(slots) > 0 {
		w.carryOut(s, slots)
	}
	return begun, err
}

// holds says that there is something left to destroy.
func (w *worker) holds(s transport.Step, slot int32) bool {
	if w.conns[slot].state == stNone {
		return false
	}
	if s == transport.StepDestroyQP {
		return w.table.HasQP(slot)
	}
	return w.table.HasID(slot)
}

func (w *worker) nothingToDestroy(s transport.Step, id transport.Conn) {
	if c := &w.conns[id]; s == transport.StepDestroyID && c.state != stNone {
		w.count.conns.Add(-1) // it never had an identifier, or has none any more
		c.state = stNone
	}
	w.tell(s, id, 0, 0)
}

// allowed keeps a step from meeting a connection that lacks what it stands on.
func (w *worker) allowed(s transport.Step, c *conn, id transport.Conn) bool {
	if int(id) >= w.out {
		return false // its initiator takes the steps
	}
	switch s {
	case transport.StepCreateID:
		return c.state == stNone
	case transport.StepBindAddr:
		return c.state == stCreated
	case transport.StepResolveAddr:
		return c.state == stBound && c.assigned
	case transport.StepResolveRoute:
		return c.state == stResolved
	case transport.StepCreateQP:
		return c.state == stRouted
	case transport.StepInitQPAttr:
		return c.state == stPaired
	case transport.StepInitQP:
		return c.state == stFetched
	case transport.StepConnect:
		return c.state == stReady
	case transport.StepProbe:
		return c.state == stLive || c.state == stGone
	case transport.StepDisconnect:
		return c.state == stLive || c.state == stProbing || c.state == stGone
	}
	return false
}

// after is the state that a step leads to when its call succeeded.
func after(s transport.Step) state {
	switch s {
	case transport.StepCreateID:
		return stCreated
	case transport.StepBindAddr:
		return stBound
	case transport.StepResolveAddr:
		return stAddress
	case transport.StepResolveRoute:
		return stRoute
	case transport.StepCreateQP:
		return stPaired
	case transport.StepInitQPAttr:
		return stFetched
	case transport.StepInitQP:
		return stReady
	case transport.StepConnect:
		return stConnecting
	case transport.StepProbe:
		return stProbing
	case transport.StepDisconnect:
		return stClosing
	}
	return stNone
}

// carryOut crosses into the library for the connections in slots and notes
// what became of each.
func (w *worker) carryOut(s transport.Step, slots []int32) {
	stamps := w.stamps[:len(slots)]
	w.prepare(s, slots)
	t := w.table
	switch s {
	case transport.StepCreateID:
		t.CreateIDs(slots, w.gens[:len(slots)], stamps)
	case transport.StepBindAddr:
		t.Bind(slots, stamps)
	case transport.StepResolveAddr:
		t.ResolveAddr(slots, w.e.resolveMS, stamps)
	case transport.StepResolveRoute:
		t.ResolveRoute(slots, w.e.resolveMS, stamps)
	case transport.StepCreateQP:
		t.CreateQP(slots, stamps)
	case transport.StepInitQPAttr:
		t.InitAttr(slots, stamps)
	case transport.StepInitQP:
		t.InitQP(slots, stamps)
	case transport.StepConnect:
		t.Connect(slots, stamps)
	case transport.StepProbe:
		t.Probe(slots, verbs.Ping, stamps)
	case transport.StepDisconnect:
		t.Disconnect(slots, stamps)
	case transport.StepDestroyQP:
		t.DestroyQP(slots, stamps)
	case transport.StepDestroyID:
		t.DestroyID(slots, stamps)
	}
	for i := range stamps {
		w.began(s, &stamps[i])
	}
}

// prepare puts what the calls need into the table.
func (w *worker) prepare(s transport.Step, slots []int32) {
	for i, slot := range slots {
		c := &w.conns[slot]
		switch s {
		case transport.StepCreateID:
			w.gen++
			c.gen = w.gen
			w.gens[i] = w.gen
		case transport.StepBindAddr:
			w.table.Place(slot, w.localIndex(transport.Conn(slot)))
		case transport.StepResolveAddr:
			putHello(&w.private, &c.hello)
			w.table.Aim(slot, &w.targets[c.peer], &w.private)
			c.tries = 0
		case transport.StepResolveRoute:
			c.tries = 0
		case transport.StepConnect:
			if w.mimic.On {
				w.table.Number(slot, w.number(slot))
			}
		}
	}
}

// number is the queue pair number that a connection without one names.
func (w *worker) number(slot int32) uint32 {
	return w.mimic.First + uint32(slot)*uint32(w.of) + uint32(w.idx)
}

// began notes the outcome of a step's call.
func (w *worker) began(s transport.Step, st *verbs.Stamp) {
	id := transport.Conn(st.Slot)
	c := &w.conns[id]
	if st.Err != 0 {
		if s == transport.StepCreateID {
			w.count.conns.Add(1) // it counts until it is destroyed
		}
		if s == transport.StepBindAddr {
			err := bindError(w.local(id).Addr(), errnoOf(st.Err))
			w.fail(s, id, st.Begin, st.End, err.Cause, err)
			return
		}
		w.failWith(s, id, st.Begin, st.End, calls[s], errnoOf(st.Err))
		w.gone(s, c)
		return
	}
	switch s {
	case transport.StepCreateID:
		w.count.conns.Add(1)
		w.count.ids.Add(1)
	case transport.StepCreateQP:
		if !w.mimic.On {
			w.count.qps.Add(1)
		}
	case transport.StepDestroyQP, transport.StepDestroyID:
		w.gone(s, c)
		w.tell(s, id, st.Begin, st.End)
		return
	}
	c.state = after(s)
	switch s {
	case transport.StepResolveAddr, transport.StepResolveRoute, transport.StepProbe, transport.StepDisconnect:
		c.begin = st.Begin
	case transport.StepConnect:
		c.begin = st.Begin
		if c.due == 0 {
			c.due = st.Begin
		}
	default:
		w.tell(s, id, st.Begin, st.End)
	}
}

// gone notes that a destroy step let go of what it destroys.
func (w *worker) gone(s transport.Step, c *conn) {
	switch s {
	case transport.StepDestroyQP:
		w.count.qps.Add(-1)
		if c.state != stShut {
			c.state = stDead // nothing can be sent any more
		}
	case transport.StepDestroyID:
		w.answeredOne(c)
		w.count.ids.Add(-1)
		w.count.conns.Add(-1)
		c.state = stNone
	}
}

// tell reports a completed step.
func (w *worker) tell(s transport.Step, id transport.Conn, begin, end int64) {
	e := w.ring.Push()
	e.Conn, e.Step, e.Kind, e.Cause, e.Reason, e.Begin, e.End, e.Err = id, s, transport.StepDone, 0, 0, begin, end, nil
}

// fail reports a failed step and ends the connection's life but for destroy.
func (w *worker) fail(s transport.Step, id transport.Conn, begin, end int64, cause transport.Cause, err error) {
	w.conns[id].state = stDead
	w.report(transport.StepFailed, s, id, begin, end, cause, err)
}

func (w *worker) report(k transport.EventKind, s transport.Step, id transport.Conn, begin, end int64, cause transport.Cause, err error) {
	e := w.ring.Push()
	e.Conn, e.Step, e.Kind, e.Cause, e.Reason, e.Begin, e.End, e.Err = id, s, k, cause, 0, begin, end, err
}

// failWith is fail with the error of call op.
func (w *worker) failWith(s transport.Step, id transport.Conn, begin, end int64, op string, err error) {
	oe := w.opError(op, id, err)
	w.fail(s, id, begin, end, oe.Cause, oe)
}

func (w *worker) opError(op string, id transport.Conn, err error) *transport.OpError {
	local, remote := w.e.adv, netip.AddrPort{}
	if int(id) < w.out {
		local = w.local(id)
		if p := w.conns[id].peer; p >= 0 {
			remote = w.peers[p]
		}
	}
	return opError(op, local, remote, err)
}
