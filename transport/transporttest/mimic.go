package transporttest

import (
	"time"

	"rankstorm/transport"
)

var mimicTests = []subtest{
	{"Mimic", "a provider that moves queue pairs can play them: no queue pair exists, their steps take the asked time, and the round after has real ones again", mimic},
}

// mimicked are the steps of which Mimic makes sleeps.
var mimicked = []transport.Step{
	transport.StepCreateQP, transport.StepInitQP, transport.StepRTR, transport.StepRTS,
	transport.StepAcceptCreateQP, transport.StepAcceptInitQP, transport.StepAcceptRTR, transport.StepAcceptRTS,
}

func mimic(k *kit) {
	if !k.h.Steps.Has(transport.StepRTR) {
		return // the steps of others are slept by whoever drives them
	}
	const n, delay = 5, 2 * time.Millisecond
	from, to := k.open("from", 1), k.open("to", 1)
	set := func(m transport.Mimic) {
		for i, r := range k.ranks {
			ep, ok := r.ep.(transport.Mimicker)
			if !ok {
				k.fatal("%T is no transport.Mimicker", r.ep)
			}
			m.First = uint32(1000 + i*n)
			k.ok(ep.Mimic(m))
		}
	}
	set(transport.Mimic{On: true, Delay: delay, Count: n})
	before := held(from.ep)
	k.life(from, to, n)
	if c := held(from.ep); c != before {
		k.broken("%+v is held after a round without queue pairs, %+v before", c, before)
	}
	for _, s := range []*side{from.sides[0], to.sides[0]} {
		for _, st := range mimicked {
			for _, e := range s.log {
				if e.Kind == transport.StepDone && e.Step == st && time.Duration(e.End-e.Begin) < delay {
					k.broken("%s: connection %d: %v took %d ns, %v were asked for", s.r.name, e.Conn, st, e.End-e.Begin, delay)
				}
			}
		}
	}
	// A round whose connections stand shows whether there are queue pairs.
	pairs := func() int64 {
		to.sides[0].reserve(0, n)
		from.sides[0].reserve(n, 0)
		from.sides[0].connect(0, n, to.addr)
		from.sides[0].established(0, n)
		k.until("accept", func() bool { return to.count(transport.StepAccept) == n })
		held := from.ep.Counters().QPs + to.ep.Counters().QPs
		from.sides[0].run(transport.StepDisconnect, 0, n)
		k.until("the peer's disconnect", func() bool { return to.count(transport.StepPeerDisconnect) == n })
		from.sides[0].destroy(0, n)
		to.destroyAccepted()
		return held
	}
	set(transport.Mimic{On: true, First: 1000, Count: n})
	if got := pairs(); got != 0 {
		k.broken("%d queue pairs are counted while they are played", got)
	}
	set(transport.Mimic{})
	if got := pairs(); got != 2*n {
		k.broken("%d queue pairs are counted once Mimic is off again, want %d", got, 2*n)
	}
}
