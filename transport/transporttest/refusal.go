package transporttest

import (
	"slices"
	"time"

	"rankstorm/transport"
)

var refusalTests = []subtest{
	{"AbsentSteps", "a step that Provider.Steps does not have is refused with a typed error", absentSteps},
	{"Misuse", "misuse is refused with a typed error and changes nothing", misuse},
	{"PassiveTarget", "a target is passive: only the destroy steps are started on an accepted connection", passiveTarget},
	{"ClosedWorker", "a closed worker has let go of its connections and refuses work, the others go on", closedWorker},
	{"Reject", "a reject fails the connection at the initiator with its reason, and only that one", func(k *kit) { reject(k, 0) }},
	{"LateReject", "a reject may come late, after others were accepted", func(k *kit) { reject(k, 50*time.Millisecond) }},
	{"RejectTakesNoPlace", "any number of rejected requests leaves room for all that were reserved", rejectTakesNoPlace},
	{"RejectedBurstTakesNoPlace", "a burst of requests that are rejected leaves room for those that come with it", rejectedBurst},
	{"NobodyThere", "where nobody listens connect fails as refused, and only there", nobodyThere},
	{"Unreachable", "an address without a host behind it fails in resolve or connect", unreachable},
	{"MalformedAddress", "Assign refuses what is no address of the provider", malformed},
	{"NotAccepting", "requests wait while Accepting is off and are taken once it is on", notAccepting},
	{"OneWorkerAccepts", "while Accepting is off at one worker the endpoint's others take the requests", oneAccepts},
}

func absentSteps(k *kit) {
	s := k.open("rank", 1).sides[0]
	s.reserve(1, 0)
	for st := range transport.StepCount + 1 {
		if st < transport.StepCount && k.h.Steps.Has(st) {
			continue
		}
		n, err := s.w.Start(st, 0, 1, nil)
		if n != 0 {
			k.broken("Start(%v) began %d connections", st, n)
		}
		k.typed("Start("+st.String()+")", err)
	}
}

func misuse(k *kit) {
	r := k.open("rank", 1)
	s := r.sides[0]
	s.reserve(2, 1)
	refused := func(what string, n int, err error) {
		if n != 0 {
			k.broken("%s began %d connections", what, n)
		}
		k.typed(what, err)
	}
	n, err := s.w.Start(transport.StepCreateID, -1, 1, nil)
	refused("Start on connection -1", n, err)
	n, err = s.w.Start(transport.StepCreateID, 3, 1, nil)
	refused("Start beyond the reserved connections", n, err)
	n, err = s.w.Start(transport.StepConnect, 0, 1, nil)
	refused("connect before create id", n, err)
	k.typed("Answer without a request", s.w.Answer(2, true, 0))
	k.typed("Answer on an initiated connection", s.w.Answer(0, true, 0))
	h := hello("x", 0, 0)
	k.typed("Assign beyond the initiated connections", s.w.Assign(2, r.addr, &h))
	_, _, _, err = r.ep.Listen(0)
	k.typed("a second Listen", err)
	s.run(transport.StepCreateID, 0, 2)
	k.typed("Reserve while connections are not destroyed", s.w.Reserve(1, 0))
	n, err = s.w.Start(transport.StepProbe, 0, 1, nil)
	refused("probe before connect", n, err)
	s.destroy(0, 2)
	if c := r.ep.Counters().Conns; c != 0 {
		k.broken("%d connections are counted after all were destroyed", c)
	}
}

func passiveTarget(k *kit) {
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, 1)
	f.reserve(1, 0)
	f.connect(0, 1, to.addr)
	k.until("accept", func() bool { return to.count(transport.StepAccept) == 1 })
	for st := range transport.StepDestroyQP {
		n, err := t.w.Start(st, 0, 1, nil)
		if n != 0 {
			k.broken("Start(%v) began %d accepted connections", st, n)
		}
		k.typed("Start("+st.String()+") on an accepted connection", err)
	}
	f.run(transport.StepProbe, 0, 1)
	if f.failed[0].Kind != 0 {
		k.broken("the connection suffered from what was refused: %+v", f.failed[0])
	}
}

func closedWorker(k *kit) {
	from, to := k.open("from", 2), k.open("to", 1)
	a, b, t := from.sides[0], from.sides[1], to.sides[0]
	t.reserve(0, 2)
	a.reserve(1, 0)
	b.reserve(1, 0)
	a.connect(0, 1, to.addr)
	a.established(0, 1)
	k.until("accept", func() bool { return to.count(transport.StepAccept) == 1 })
	for range 2 {
		k.ok(a.w.Close())
	}
	from.sides = from.sides[1:]
	if c := from.ep.Counters().Conns; c != 0 {
		k.broken("%d connections are counted after their worker was closed", c)
	}
	h := hello("x", 0, 0)
	k.refusedAfterClose(a, &h, to.addr)
	b.connect(0, 1, to.addr)
	b.established(0, 1)
}

// wantFailed requires that connection c failed in one of the steps, for one of the causes.
func (s *side) wantFailed(c int, steps []transport.Step, causes ...transport.Cause) {
	k := s.r.k
	k.t.Helper()
	f := s.failed[c]
	switch {
	case f.Kind == 0:
		k.broken("%s: connection %d did not fail", s.r.name, c)
	case !slices.Contains(steps, f.Step):
		k.broken("%s: connection %d failed in %v, want one of %v", s.r.name, c, f.Step, steps)
	case !slices.Contains(causes, f.Cause):
		k.broken("%s: connection %d failed as %q (%v), want one of %q", s.r.name, c, f.Cause, f.Err, causes)
	}
}

var (
	connecting = []transport.Step{transport.StepConnect, transport.StepEstablish}
	resolving  = []transport.Step{transport.StepResolveAddr, transport.StepResolveRoute, transport.StepConnect}
	gone       = []transport.Cause{transport.CauseReset, transport.CauseClosed, transport.CauseRefused, transport.CauseUnreachable}
)

// reject refuses every third connection of twelve, at once or later.
func reject(k *kit, later time.Duration) {
	const n = 12
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, n)
	t.rejects = map[int]uint16{}
	for c := 0; c < n; c += 3 {
		t.rejects[c] = uint16(1000 + c)
	}
	to.hold = later > 0
	f.reserve(n, 0)
	f.prepare(0, n, to.addr)
	f.begin(transport.StepConnect, 0, n, nil)
	if to.hold {
		k.until("requests", func() bool { return to.requests() == n })
		var refused []transport.Conn
		for _, c := range t.requests {
			if t.rejects[t.turn[c]] == 0 {
				t.answer(c)
			} else {
				refused = append(refused, c)
			}
		}
		k.quiet(later)
		for _, c := range refused {
			t.answer(c)
		}
	}
	f.await(transport.StepConnect, 0, n)
	reasons := map[uint16]int{}
	rejected := 0
	for c := range n {
		if f.failed[c].Kind == 0 {
			continue
		}
		rejected++
		f.wantFailed(c, connecting, transport.CauseRejected)
		reasons[f.failed[c].Reason]++
	}
	if rejected != len(t.rejects) {
		k.broken("%d connections were rejected, want %d", rejected, len(t.rejects))
	}
	for _, reason := range t.rejects {
		if reasons[reason] != 1 {
			k.broken("reason %d arrived %d times", reason, reasons[reason])
		}
	}
	// A range may hold failed ones: they are passed over.
	f.run(transport.StepProbe, 0, n)
	f.run(transport.StepDisconnect, 0, n)
	k.until("the target's disconnects", func() bool { return t.done[transport.StepPeerDisconnect] == n-rejected })
	k.quiet(5 * time.Millisecond)
	if got := t.done[transport.StepAccept]; got != n-rejected {
		k.broken("%d connections were accepted, want %d", got, n-rejected)
	}
	f.destroy(0, n)
	to.destroyAccepted()
	if c := to.ep.Counters().Conns + from.ep.Counters().Conns; c != 0 {
		k.broken("%d connections are counted after all were destroyed", c)
	}
}

// rejectTakesNoPlace turns away more than three times what is reserved.
func rejectTakesNoPlace(k *kit) {
	const places, n = 4, 16
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, places)
	t.rejects = map[int]uint16{}
	for i := range n - places {
		t.rejects[i+2] = 7 // all but the first two and the last two
	}
	f.reserve(n, 0)
	f.prepare(0, n, to.addr)
	for c := range n {
		f.run(transport.StepConnect, c, 1)
		if _, rejected := t.rejects[c]; !rejected {
			f.established(c, 1)
			continue
		}
		f.wantFailed(c, connecting, transport.CauseRejected)
		if f.failed[c].Reason != 7 {
			k.broken("connection %d was rejected with reason %d, want 7", c, f.failed[c].Reason)
		}
	}
	f.run(transport.StepProbe, 0, n)
	f.run(transport.StepDisconnect, 0, n)
	f.destroy(0, n)
	to.destroyAccepted()
	if c := to.ep.Counters().Conns + from.ep.Counters().Conns; c != 0 {
		k.broken("%d connections are counted after all were destroyed", c)
	}
	t.reserve(0, 1)
}

// rejectedBurst begins eight times as many connections at once as are reserved, of which only the last are accepted. The
// target looks when all have come, and answers late.
func rejectedBurst(k *kit) {
	const places, n = 4, 32
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, places)
	t.w.Accepting(false)
	t.rejects = map[int]uint16{}
	for i := range n - places {
		t.rejects[i] = 7
	}
	f.reserve(n, 0)
	f.prepare(0, n, to.addr)
	f.begin(transport.StepConnect, 0, n, nil)
	k.quiet(20 * time.Millisecond)
	to.hold = true
	t.w.Accepting(true)
	k.until("all places being asked for", func() bool { return to.requests() == places })
	k.quiet(20 * time.Millisecond)
	for c := range n {
		if f.failed[c].Kind != 0 {
			k.broken("connection %d failed before any request was answered: %+v", c, f.failed[c])
		}
	}
	to.hold = false
	for _, c := range slices.Clone(t.requests) {
		t.answer(c)
	}
	f.await(transport.StepConnect, 0, n)
	up := 0
	for c := range n {
		if f.failed[c].Kind == 0 {
			up++
			continue
		}
		f.wantFailed(c, connecting, transport.CauseRejected)
		if f.failed[c].Reason != 7 {
			k.broken("connection %d was rejected with reason %d, want 7", c, f.failed[c].Reason)
		}
	}
	if up != places {
		k.broken("%d connections were accepted, want %d", up, places)
	}
	f.run(transport.StepDisconnect, 0, n)
	f.destroy(0, n)
	to.destroyAccepted()
	t.reserve(0, 1)
}

func nobodyThere(k *kit) {
	from, to, left := k.open("from", 1), k.open("to", 1), k.open("left", 1)
	k.ok(left.ep.Close())
	left.dead = true
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, 2)
	f.reserve(4, 0)
	f.assign(0, 1, to.addr)
	f.assign(1, 2, left.addr)
	f.assign(3, 1, to.addr)
	for _, st := range k.has(setUpSteps) {
		f.run(st, 0, 4)
	}
	f.run(transport.StepConnect, 0, 4)
	f.established(0, 1)
	f.established(3, 1)
	f.wantFailed(1, connecting[:1], transport.CauseRefused)
	f.wantFailed(2, connecting[:1], transport.CauseRefused)
	f.run(transport.StepProbe, 0, 4)
	f.run(transport.StepDisconnect, 0, 4)
	f.destroy(0, 4)
}

func unreachable(k *kit) {
	if k.h.Unreachable == nil {
		k.t.Skip("skipped: the harness knows no address that fails quickly (Harness.Unreachable)")
	}
	f := k.open("from", 1).sides[0]
	f.reserve(2, 0)
	f.assign(0, 2, k.h.Unreachable)
	for _, st := range k.has(append(slices.Clone(setUpSteps), transport.StepConnect)) {
		f.run(st, 0, 2)
	}
	for c := range 2 {
		f.wantFailed(c, resolving, transport.CauseUnreachable, transport.CauseTimeout)
	}
	f.destroy(0, 2)
}

func malformed(k *kit) {
	f := k.open("from", 1).sides[0]
	f.reserve(1, 0)
	h := hello("from", 0, 0)
	k.typed("Assign of a malformed address", f.w.Assign(0, k.h.Malformed, &h))
	k.typed("Assign of an empty address", f.w.Assign(0, nil, &h))
	k.typed("Assign of an address of 257 bytes", f.w.Assign(0, make(transport.Address, 257), &h))
}

func notAccepting(k *kit) {
	const n = 5
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, n)
	t.w.Accepting(false)
	f.reserve(n, 0)
	f.prepare(0, n, to.addr)
	f.begin(transport.StepConnect, 0, n, nil)
	k.quiet(20 * time.Millisecond)
	if got := to.requests(); got != 0 {
		k.broken("%d requests were taken while Accepting was off", got)
	}
	if got := f.done[transport.StepFullConnect]; got != 0 {
		k.broken("%d connections were established while Accepting was off", got)
	}
	t.w.Accepting(true)
	f.await(transport.StepConnect, 0, n)
	f.established(0, n)
}

func oneAccepts(k *kit) {
	const n = 20
	from, to := k.open("from", 1), k.open("to", 2)
	f := from.sides[0]
	for _, t := range to.sides {
		t.reserve(0, n)
	}
	to.sides[0].w.Accepting(false)
	f.reserve(n, 0)
	f.connect(0, n, to.addr)
	f.established(0, n)
	if got := len(to.sides[0].requests); got != 0 {
		k.broken("%d requests were taken by the worker whose Accepting is off", got)
	}
	k.hellos(to, []*rank{from})
}
