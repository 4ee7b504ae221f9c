package transporttest

import (
	"time"

	"rankstorm/transport"
)

var failureTests = []subtest{
	{"GivenUpInBacklog", "a request given up before it was taken disturbs nobody", func(k *kit) { givenUp(k, false) }},
	{"GivenUpBeforeAnswer", "a request given up before its Answer is told as StepFailed of accept or as the peer's close, never as an error of Answer", func(k *kit) { givenUp(k, true) }},
	{"ListenerClosedWhilePending", "requests that nobody answers any more fail at the initiator when the target's endpoint closes", func(k *kit) { targetGone(k, beforeAccept, false) }},
	{"KilledBeforeAccept", "requests fail at the initiator when the target dies before it answers", func(k *kit) { targetGone(k, beforeAccept, true) }},
	{"KilledBeforeProbe", "a probe to a target that died since fails, with one event", func(k *kit) { targetGone(k, beforeProbe, true) }},
	{"KilledWhileIdle", "the death of an idle connection's peer is told once, as EventPeerClosed", func(k *kit) { targetGone(k, whileIdle, true) }},
	{"KilledInDisconnect", "disconnect from a target that dies meanwhile ends with one event", func(k *kit) { targetGone(k, inDisconnect, true) }},
	{"TargetDestroys", "a target that destroys its side first is told to the initiator as EventPeerClosed; a probe then fails, and disconnect yields one event", targetDestroys},
	{"InitiatorKilled", "the target is told of an initiator's death once, as peer disconnect or EventPeerClosed", initiatorKilled},
	{"Abandon", "after Abandon nothing is reported but destroy, and the connection is counted until then", abandon},
	{"CloseWithOpenConnections", "Close aborts what is open and releases it; Close again does nothing", closeOpen},
}

// givenUp abandons and destroys initiated connections while the target has not
// taken them, or has not answered them.
func givenUp(k *kit, taken bool) {
	const n = 4
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, 3*n)
	to.hold = true
	t.w.Accepting(taken)
	f.reserve(n+1, 0)
	f.prepare(0, n+1, to.addr)
	f.begin(transport.StepConnect, 0, n, nil)
	if taken {
		k.until("requests", func() bool { return to.requests() == n })
	} else {
		k.quiet(5 * time.Millisecond)
	}
	for c := range n {
		f.w.Abandon(transport.Conn(c))
		f.gaveUp[c] = true
	}
	f.destroy(0, n)
	k.quiet(10 * time.Millisecond)
	t.w.Accepting(true)
	to.hold = false
	for _, c := range t.requests {
		t.answer(c)
	}
	k.until("the end of every request", func() bool {
		for _, c := range t.requests {
			if t.failed[c].Kind == 0 && t.closed[c] == 0 && !t.steps[c].Has(transport.StepPeerDisconnect) {
				return false
			}
		}
		return true
	})
	f.run(transport.StepConnect, n, 1)
	f.established(n, 1)
	f.run(transport.StepProbe, n, 1)
	if f.failed[n].Kind != 0 {
		k.broken("a connection after the given-up ones fails: %+v", f.failed[n])
	}
}

// moments at which a target goes away.
type moment uint8

const (
	beforeAccept moment = iota
	beforeProbe
	whileIdle
	inDisconnect
)

// targetGone ends the target at a moment and requires the events that follow
// at the initiator.
func targetGone(k *kit, at moment, killed bool) {
	const n = 5
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	end := func() {
		if killed {
			to.kill()
			return
		}
		k.ok(to.ep.Close())
		to.dead = true
	}
	t.reserve(0, n)
	to.hold = at == beforeAccept
	f.reserve(n, 0)
	f.prepare(0, n, to.addr)
	f.begin(transport.StepConnect, 0, n, nil)
	if at == beforeAccept {
		k.until("requests", func() bool { return to.requests() == n })
		end()
		f.await(transport.StepConnect, 0, n)
		for c := range n {
			f.wantFailed(c, connecting, gone...)
		}
		f.destroy(0, n)
		return
	}
	f.await(transport.StepConnect, 0, n)
	f.established(0, n)
	k.until("accept", func() bool { return to.count(transport.StepAccept) == n })
	switch at {
	case beforeProbe:
		end()
		f.run(transport.StepProbe, 0, n)
		for c := range n {
			f.wantFailed(c, []transport.Step{transport.StepProbe}, gone...)
		}
	case whileIdle:
		end()
		k.until("EventPeerClosed on every connection", func() bool { return f.closedAll(n) })
	case inDisconnect:
		f.begin(transport.StepDisconnect, 0, n, nil)
		end()
		f.await(transport.StepDisconnect, 0, n)
	}
	if at == whileIdle {
		f.run(transport.StepDisconnect, 0, n)
	}
	k.quiet(5 * time.Millisecond)
	f.destroy(0, n)
	if c := from.ep.Counters().Conns; c != 0 {
		k.broken("%d connections are counted after all were destroyed", c)
	}
}

func (s *side) closedAll(n int) bool {
	for c := range n {
		if s.closed[c] == 0 {
			return false
		}
	}
	return true
}

func targetDestroys(k *kit) {
	const n, probed = 4, 2
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, n)
	f.reserve(n, 0)
	f.connect(0, n, to.addr)
	f.established(0, n)
	k.until("accept", func() bool { return to.count(transport.StepAccept) == n })
	t.destroy(0, n)
	k.until("EventPeerClosed on every connection", func() bool { return f.closedAll(n) })
	f.run(transport.StepProbe, 0, probed)
	for c := range probed {
		f.wantFailed(c, []transport.Step{transport.StepProbe}, gone...)
	}
	f.run(transport.StepDisconnect, 0, n)
	k.quiet(5 * time.Millisecond)
	f.destroy(0, n)
}

func initiatorKilled(k *kit) {
	const n = 5
	to, from := k.open("to", 1), k.open("from", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, n)
	f.reserve(n, 0)
	f.connect(0, n, to.addr)
	f.established(0, n)
	k.until("accept", func() bool { return to.count(transport.StepAccept) == n })
	from.kill()
	k.until("the end of every connection", func() bool {
		for c := range n {
			if t.closed[c] == 0 && !t.steps[c].Has(transport.StepPeerDisconnect) && t.failed[c].Kind == 0 {
				return false
			}
		}
		return true
	})
	k.quiet(5 * time.Millisecond)
	for c := range n {
		if t.closed[c] > 0 && t.steps[c].Has(transport.StepPeerDisconnect) {
			k.broken("connection %d: told both as peer disconnect and as EventPeerClosed", c)
		}
	}
	t.destroy(0, n)
	if c := to.ep.Counters().Conns; c != 0 {
		k.broken("%d connections are counted after all were destroyed", c)
	}
}

func abandon(k *kit) {
	const n = 4
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, n+1)
	to.hold = true
	f.reserve(n+1, 0)
	f.prepare(0, n+1, to.addr)
	f.begin(transport.StepConnect, 0, n, nil)
	k.until("requests", func() bool { return to.requests() == n })
	for c := range n {
		f.w.Abandon(transport.Conn(c))
		f.gaveUp[c] = true
	}
	to.hold = false
	for _, c := range t.requests {
		t.answer(c)
	}
	k.quiet(10 * time.Millisecond)
	if got := from.ep.Counters().Conns; got != n+1 {
		k.broken("%d connections are counted after Abandon, want %d until they are destroyed", got, n+1)
	}
	f.begin(transport.StepProbe, 0, n, nil) // passed over, like failed ones
	f.begin(transport.StepDisconnect, 0, n, nil)
	k.quiet(5 * time.Millisecond)
	f.run(transport.StepConnect, n, 1)
	f.established(n, 1)
	f.destroy(0, n)
	if got := from.ep.Counters().Conns; got != 1 {
		k.broken("%d connections are counted after the abandoned ones were destroyed, want 1", got)
	}
}

func closeOpen(k *kit) {
	const n = 3
	a, b, c := k.open("a", 1), k.open("b", 1), k.open("c", 1)
	x := a.sides[0]
	for _, r := range k.ranks {
		r.sides[0].reserve(n, n)
	}
	b.sides[0].connect(0, n, a.addr) // a accepts
	b.sides[0].established(0, n)
	x.connect(0, n, c.addr) // a initiates
	x.established(0, n)
	k.until("accept", func() bool { return a.count(transport.StepAccept)+c.count(transport.StepAccept) == 2*n })
	for range 3 {
		k.ok(a.ep.Close())
	}
	a.dead = true
	if h := held(a.ep); h != (transport.Counters{}) {
		k.broken("%+v is held after Close with open connections", h)
	}
	k.until("EventPeerClosed at the initiator", func() bool { return b.sides[0].closedAll(n) })
	h := hello("a", 0, 0)
	k.refusedAfterClose(x, &h, c.addr)
}

// refusedAfterClose requires that a closed endpoint's worker refuses work.
func (k *kit) refusedAfterClose(s *side, h *transport.Hello, to transport.Address) {
	k.t.Helper()
	if n, err := s.w.Start(transport.StepCreateID, 0, 1, nil); n != 0 || err == nil {
		k.broken("after Close, Start began %d connections, error %v", n, err)
	}
	if err := s.w.Reserve(1, 1); err == nil {
		k.broken("after Close, Reserve succeeded")
	}
	if n := s.w.Poll(k.ev); n != 0 {
		k.broken("after Close, Poll gave %d events", n)
	}
	if n, err := s.w.Wait(s.r.clk.Now()+int64(time.Hour), k.ev); n != 0 || err == nil {
		k.broken("after Close, Wait gave %d events, error %v, want an error at once", n, err)
	}
	if err := s.w.Close(); err != nil {
		k.broken("closing a worker of a closed endpoint: %v", err)
	}
}
