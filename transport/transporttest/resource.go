package transporttest

import (
	"runtime"

	"rankstorm/transport"
)

var resourceTests = []subtest{
	{"Counters", "counters tell what is held: they rise with connections and are back at the baseline after destroy", counters},
	{"Allocations", "after Reserve no method allocates on the path of a single connection", allocations},
}

func counters(k *kit) {
	const n = 10
	descriptors := func() int { return 0 }
	if k.h.OpenFDs != nil {
		descriptors = k.h.OpenFDs
	}
	bare := descriptors()
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	same := func(when string) {
		k.t.Helper()
		if k.h.OpenFDs == nil {
			return
		}
		if got, want := int(from.ep.Counters().FDs+to.ep.Counters().FDs), descriptors()-bare; got != want {
			k.broken("%s: %d descriptors are counted, the process has %d more than before", when, got, want)
		}
	}
	if c := to.ep.Counters(); c.Listeners != 1 || c.Conns != 0 {
		k.broken("after Listen %+v is counted, want one listener and no connection", c)
	}
	t.reserve(0, n)
	f.reserve(n, 0)
	same("after Reserve")
	baseFrom, baseTo := held(from.ep), held(to.ep)
	f.connect(0, n, to.addr)
	f.established(0, n)
	k.until("accept", func() bool { return to.count(transport.StepAccept) == n })
	same("while connected")
	if a, b := from.ep.Counters().Conns, to.ep.Counters().Conns; a != n || b != n {
		k.broken("%d initiated and %d accepted connections are counted, want %d each", a, b, n)
	}
	f.run(transport.StepProbe, 0, n)
	f.run(transport.StepDisconnect, 0, n)
	k.until("the peer's disconnect", func() bool { return to.count(transport.StepPeerDisconnect) == n })
	same("after disconnect")
	if a, b := from.ep.Counters().Conns, to.ep.Counters().Conns; a != n || b != n {
		k.broken("%d initiated and %d accepted connections are counted after disconnect, want %d each until destroyed", a, b, n)
	}
	f.destroy(0, n)
	to.destroyAccepted()
	same("after destroy")
	if c := held(from.ep); c != baseFrom {
		k.broken("the initiator holds %+v after destroy, %+v before", c, baseFrom)
	}
	if c := held(to.ep); c != baseTo {
		k.broken("the target holds %+v after destroy, %+v before", c, baseTo)
	}
}

// allocations runs whole lives and counts what the timed part of the best one
// allocates: other goroutines of the process may allocate, too.
func allocations(k *kit) {
	if k.h.Allocates != "" {
		k.t.Skipf("skipped: %s", k.h.Allocates)
	}
	n := min(k.h.Many, 200)
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	due := make([]int64, n)
	var before, after runtime.MemStats
	least := uint64(1) << 63
	for range 4 {
		t.reserve(0, n)
		f.reserve(n, 0)
		f.assign(0, n, to.addr)
		runtime.ReadMemStats(&before)
		for _, st := range setUpSteps {
			if k.h.Steps.Has(st) {
				f.run(st, 0, n)
			}
		}
		for c := range due {
			due[c] = from.clk.Now()
		}
		f.begin(transport.StepConnect, 0, n, due)
		f.await(transport.StepConnect, 0, n)
		f.run(transport.StepProbe, 0, n)
		f.run(transport.StepDisconnect, 0, n)
		k.until("the peer's disconnect", func() bool { return t.done[transport.StepPeerDisconnect] == n })
		f.destroy(0, n)
		t.destroy(0, n)
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	k.t.Logf("%d allocations in the life of %d connections, the kit's own included", least, n)
	// The kit itself allocates a little per step (closures, texts), never per connection.
	if least > uint64(2*transport.StepCount) {
		k.broken("%d allocations for %d connections", least, n)
	}
}
