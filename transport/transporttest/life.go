package transporttest

import (
	"fmt"
	"slices"
	"time"

	"rankstorm/transport"
)

var lifeTests = []subtest{
	{"Life1", "every step of Provider.Steps yields one event per connection, in the documented order", func(k *kit) { k.lives(1, 1) }},
	{"Life2", "every step of Provider.Steps yields one event per connection, in the documented order", func(k *kit) { k.lives(2, 1) }},
	{"LifeMany", "every step of Provider.Steps yields one event per connection, in the documented order", func(k *kit) { k.lives(k.h.Many, 1) }},
	{"LifeManyWorkers", "workers of one endpoint carry connections side by side", func(k *kit) { k.lives(50, 3) }},
	{"BothWays", "a worker initiates and accepts at the same time; accepted connections follow the initiated ones", bothWays},
	{"ManyToOne", "a listener takes the requests of many initiators", manyToOne},
	{"SharedListener", "requests reach the workers of a listener exactly once", sharedListener},
	{"Hello", "the hello arrives as it was given, all bytes of it", helloIntact},
	{"Rounds", "after everything is destroyed Reserve begins another round at the same listener", rounds},
	{"RoundsWithoutAnswer", "requests that nobody answered end with their round: Reserve drops them", unanswered},
}

// initiatorOrder and targetOrder are the steps of a connection's two sides in
// the order of their events. The target's accept steps come in any order.
var (
	initiatorOrder = []transport.Step{
		transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute,
		transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP, transport.StepConnect,
		transport.StepRTRAttr, transport.StepRTR, transport.StepRTSAttr, transport.StepRTS,
		transport.StepEstablish, transport.StepFullConnect, transport.StepProbe, transport.StepDisconnect,
		transport.StepDestroyQP, transport.StepDestroyID,
	}
	acceptSteps = []transport.Step{
		transport.StepAcceptCreateQP, transport.StepAcceptInitQPAttr, transport.StepAcceptInitQP,
		transport.StepAcceptRTRAttr, transport.StepAcceptRTR, transport.StepAcceptRTSAttr, transport.StepAcceptRTS, transport.StepAccept,
	}
	targetOrder = []transport.Step{
		transport.StepProbeAnswer, transport.StepPeerDisconnect, transport.StepDestroyQP, transport.StepDestroyID,
	}
)

func (k *kit) has(steps []transport.Step) []transport.Step {
	var have []transport.Step
	for _, st := range steps {
		if k.h.Steps.Has(st) {
			have = append(have, st)
		}
	}
	return have
}

// lives runs n whole connections on each of some workers between two ranks.
func (k *kit) lives(n, workers int) {
	from, to := k.open("from", workers), k.open("to", workers)
	k.life(from, to, n)
}

// life takes n connections per worker of from through everything and checks
// the events of both sides.
func (k *kit) life(from, to *rank, n int) {
	k.t.Helper()
	total := n * len(from.sides)
	for _, s := range to.sides {
		s.reserve(0, total)
	}
	for _, s := range from.sides {
		s.reserve(n, 0)
	}
	for _, s := range from.sides {
		s.connect(0, n, to.addr)
		s.established(0, n)
	}
	k.until("accept", func() bool { return to.count(transport.StepAccept) == total })
	for _, st := range k.has([]transport.Step{transport.StepProbe, transport.StepDisconnect}) {
		for _, s := range from.sides {
			s.run(st, 0, n)
		}
	}
	if k.h.Steps.Has(transport.StepPeerDisconnect) {
		k.until("the peer's disconnect", func() bool { return to.count(transport.StepPeerDisconnect) == total })
	}
	for _, s := range from.sides {
		s.destroy(0, n)
	}
	to.destroyAccepted()
	for _, s := range from.sides {
		k.checkInitiated(s)
	}
	for _, s := range to.sides {
		k.checkAccepted(s)
	}
	if got := to.requests(); got != total {
		k.broken("%d requests for %d connections", got, total)
	}
}

// perConn sorts a side's log by connection.
func (s *side) perConn() [][]transport.Event {
	by := make([][]transport.Event, s.out+s.in)
	for _, e := range s.log {
		by[e.Conn] = append(by[e.Conn], e)
	}
	return by
}

// idle is the event of a step that had nothing to do.
func idle(e transport.Event) bool { return e.Begin == 0 && e.End == 0 }

func stepsOf(events []transport.Event) []transport.Step {
	var steps []transport.Step
	for _, e := range events {
		if e.Kind == transport.StepDone {
			steps = append(steps, e.Step)
		}
	}
	return steps
}

// checkInitiated compares whole lives with the documented order.
func (k *kit) checkInitiated(s *side) {
	k.t.Helper()
	want := k.has(initiatorOrder)
	for c, events := range s.perConn()[:s.out] {
		if got := stepsOf(events); !slices.Equal(got, want) {
			k.fatal("%s: connection %d took the steps %v,\n\twant %v", s.r.name, c, got, want)
		}
		var last, connect, establish int64
		for _, e := range events {
			if e.Kind != transport.StepDone {
				k.broken("%s: connection %d: unexpected event %+v", s.r.name, c, e)
			}
			if idle(e) {
				continue
			}
			switch e.Step {
			case transport.StepConnect:
				connect = e.Begin
			case transport.StepEstablish:
				establish = e.End
			case transport.StepFullConnect:
				if e.Begin != connect {
					k.broken("%s: connection %d: full connect counts from %d, connect began at %d", s.r.name, c, e.Begin, connect)
				}
				if e.End < establish {
					k.broken("%s: connection %d: full connect ended at %d, before establish at %d", s.r.name, c, e.End, establish)
				}
			default:
				if e.Begin < last {
					k.broken("%s: connection %d: %v began at %d, before the step before it ended at %d", s.r.name, c, e.Step, e.Begin, last)
				}
			}
			if e.End < last {
				k.broken("%s: connection %d: %v ended at %d, the step before it at %d", s.r.name, c, e.Step, e.End, last)
			}
			last = e.End
		}
	}
}

func (k *kit) checkAccepted(s *side) {
	k.t.Helper()
	order, accept := k.has(targetOrder), k.has(acceptSteps)
	next := transport.Conn(s.out)
	for _, c := range s.requests {
		if c != next {
			k.broken("%s: request on connection %d, the next of %d accepted ones is %d", s.r.name, c, len(s.requests), next)
		}
		next++
	}
	for c, events := range s.perConn() {
		if c < s.out || len(events) == 0 {
			continue
		}
		if events[0].Kind != transport.EventRequest {
			k.broken("%s: connection %d begins with %+v, want the request", s.r.name, c, events[0])
		}
		got := stepsOf(events)
		if len(got) < len(accept) {
			k.fatal("%s: connection %d took only the steps %v", s.r.name, c, got)
		}
		head := slices.Sorted(slices.Values(got[:len(accept)]))
		if !slices.Equal(head, slices.Sorted(slices.Values(accept))) || !slices.Equal(got[len(accept):], order) {
			k.fatal("%s: connection %d took the steps %v,\n\twant %v in any order, then %v", s.r.name, c, got, accept, order)
		}
		last := events[0].Begin
		for _, e := range events[1:] {
			if idle(e) {
				continue
			}
			if e.Begin < events[0].Begin || e.End < last {
				k.broken("%s: connection %d: %v from %d to %d, after an event that ended at %d", s.r.name, c, e.Step, e.Begin, e.End, last)
			}
			last = e.End
		}
	}
}

func bothWays(k *kit) {
	const n = 10
	a, b := k.open("a", 1), k.open("b", 1)
	for _, r := range k.ranks {
		r.sides[0].reserve(n, n)
	}
	a.sides[0].prepare(0, n, b.addr)
	b.sides[0].prepare(0, n, a.addr)
	a.sides[0].begin(transport.StepConnect, 0, n, nil)
	b.sides[0].begin(transport.StepConnect, 0, n, nil)
	for _, r := range k.ranks {
		r.sides[0].await(transport.StepConnect, 0, n)
		r.sides[0].established(0, n)
	}
	k.until("accept on both sides", func() bool {
		return a.count(transport.StepAccept) == n && b.count(transport.StepAccept) == n
	})
	for _, st := range k.has([]transport.Step{transport.StepProbe, transport.StepDisconnect}) {
		for _, r := range k.ranks {
			r.sides[0].begin(st, 0, n, nil)
		}
		for _, r := range k.ranks {
			r.sides[0].await(st, 0, n)
		}
	}
	if k.h.Steps.Has(transport.StepPeerDisconnect) {
		k.until("the peers' disconnects", func() bool {
			return a.count(transport.StepPeerDisconnect) == n && b.count(transport.StepPeerDisconnect) == n
		})
	}
	for _, r := range k.ranks {
		r.sides[0].destroy(0, n)
		r.destroyAccepted()
		k.checkInitiated(r.sides[0])
		k.checkAccepted(r.sides[0])
	}
}

func manyToOne(k *kit) {
	const ranks, n = 20, 10
	to := k.open("target", 1)
	to.sides[0].reserve(0, ranks*n)
	for i := range ranks {
		r := k.open(fmt.Sprint("rank ", i), 1)
		r.sides[0].reserve(n, 0)
		r.sides[0].prepare(0, n, to.addr)
	}
	for _, r := range k.ranks[1:] {
		r.sides[0].begin(transport.StepConnect, 0, n, nil)
	}
	for _, r := range k.ranks[1:] {
		r.sides[0].await(transport.StepConnect, 0, n)
		r.sides[0].established(0, n)
	}
	k.until("accept", func() bool { return to.count(transport.StepAccept) == ranks*n })
	k.hellos(to, k.ranks[1:])
}

func sharedListener(k *kit) {
	n := min(k.h.Many, 200)
	to, from := k.open("target", 4), k.open("from", 2)
	for _, s := range to.sides {
		s.reserve(0, 2*n)
	}
	for _, s := range from.sides {
		s.reserve(n, 0)
		s.prepare(0, n, to.addr)
	}
	for _, s := range from.sides {
		s.begin(transport.StepConnect, 0, n, nil)
	}
	for _, s := range from.sides {
		s.await(transport.StepConnect, 0, n)
		s.established(0, n)
	}
	k.until("accept", func() bool { return to.count(transport.StepAccept) == 2*n })
	k.hellos(to, []*rank{from})
}

func helloIntact(k *kit) {
	const n = 20
	from, to := k.open("from", 1), k.open("to", 1)
	to.sides[0].reserve(0, n)
	from.sides[0].reserve(n, 0)
	from.sides[0].connect(0, n, to.addr)
	k.until("accept", func() bool { return to.count(transport.StepAccept) == n })
	k.hellos(to, []*rank{from})
}

// hellos requires that the target saw each initiator's hello once.
func (k *kit) hellos(to *rank, from []*rank) {
	k.t.Helper()
	want := map[transport.Hello]bool{}
	for _, r := range from {
		for _, s := range r.sides {
			for c := range s.out {
				want[hello(r.name, s.index, c)] = true
			}
		}
	}
	for _, s := range to.sides {
		for _, e := range s.log {
			if e.Kind != transport.EventRequest {
				continue
			}
			if !want[e.Hello] {
				k.broken("%s: connection %d: hello %x was never sent, or came twice", to.name, e.Conn, e.Hello)
			}
			delete(want, e.Hello)
		}
	}
	if len(want) > 0 {
		k.broken("%d hellos never arrived", len(want))
	}
}

func rounds(k *kit) {
	from, to := k.open("from", 1), k.open("to", 1)
	listening := held(to.ep)
	for _, n := range []int{10, 30, 5} {
		k.life(from, to, n)
		if c := held(to.ep); c != listening {
			k.broken("the target holds %+v after a round of %d, %+v before it", c, n, listening)
		}
	}
}

// unanswered leaves requests without an answer, some of them events that nobody took, and begins the next round.
func unanswered(k *kit) {
	const n = 4
	from, to := k.open("from", 1), k.open("to", 1)
	listening := held(to.ep)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, 2*n)
	to.hold = true
	f.reserve(2*n, 0)
	f.prepare(0, 2*n, to.addr)
	f.begin(transport.StepConnect, 0, n, nil)
	k.until("requests", func() bool { return to.requests() == n })
	f.begin(transport.StepConnect, n, n, nil)
	to.dead = true // the kit takes no more of its events
	for range 100 {
		k.poll()
		t.w.Poll(nil) // which may see them now, but tells nobody
		from.clk.SleepUntil(from.clk.Now()+int64(100*time.Microsecond), 0)
	}
	for c := range 2 * n {
		f.w.Abandon(transport.Conn(c))
		f.gaveUp[c] = true
	}
	f.destroy(0, 2*n)
	to.dead = false
	t.reserve(0, 2*n)
	if c := held(to.ep); c != listening {
		k.broken("the target holds %+v after requests that nobody answered and another Reserve, %+v before", c, listening)
	}
	k.quiet(5 * time.Millisecond)
	for len(t.requests) > 0 { // what came only now is rejected
		t.rejects = map[int]uint16{t.turn[t.requests[0]]: 1}
		t.answer(t.requests[0])
	}
	t.rejects = nil
	to.hold = false
	k.life(from, to, n)
}
