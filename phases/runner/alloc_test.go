package runner

import (
	"testing"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// deaf is a transport worker that takes everything and says nothing.
type deaf struct{ transport.Worker }

func (deaf) Answer(transport.Conn, bool, uint16) error { return nil }

// What the runner does for one connection in the timed phases, at both sides, allocates nothing.
func TestNoAllocationPerConnection(t *testing.T) {
	const n = 64
	table, err := rank.Build([]rank.Record{{Nonce: [16]byte{1}, Host: "a", LauncherProc: 0}, {Nonce: [16]byte{2}, Host: "a", LauncherProc: 1}}, 1, "run")
	if err != nil {
		t.Fatal(err)
	}
	topo, err := rank.NewTopology(table, rank.Params{Name: "all_to_all"})
	if err != nil {
		t.Fatal(err)
	}
	spec := phases.DefaultSpec()
	spec.Procs, spec.Connections = 2, n
	p := &process{spec: spec, clock: sim.NewClock(0), table: table, topo: topo, deal: 1, steps: sim.StepsTCP}
	rk := &localRank{p: p, rank: 0, host: "a", load: load{plan: rank.PlanOf(topo, 0, n), in: n, expect: newExpected(topo, 0, n)}}
	initiator := &worker{rk: &localRank{p: p, rank: 1}, vouch: newVouch(make([]byte, 32))}
	w := &worker{
		rk: rk, tw: deaf{}, out: n, in: n, state: make([]connState, 2*n), passed: make([]bool, 2*n), peers: make([]incoming, n),
		stamps: collect.NewStamps(p.stampSteps(), 2*n), slot: phases.Slot{Phase: phases.Connect}, vouch: newVouch(make([]byte, 32)),
	}
	events := make([]transport.Event, 0, 5*n)
	for c := range transport.Conn(n) {
		for _, s := range []transport.Step{transport.StepConnect, transport.StepEstablish, transport.StepFullConnect} {
			events = append(events, transport.Event{Kind: transport.StepDone, Conn: c, Step: s, Begin: 10, End: 20})
		}
		request := transport.Event{Kind: transport.EventRequest, Conn: n + c}
		initiator.hello(&request.Hello, 1, 0, int32(c))
		events = append(events, request, transport.Event{Kind: transport.StepDone, Conn: n + c, Step: transport.StepAccept, Begin: 10, End: 20})
	}
	round := func() {
		for i := range w.state {
			w.state[i] = connLive
		}
		w.nIn = 0
		rk.expect.reset()
		total := w.enter(transport.StepConnect, 0, n)
		w.next, w.inflight = n, n
		for i := range events {
			w.handle(&events[i])
		}
		if w.finished != total || w.nIn != n || w.failed != 0 {
			t.Fatalf("%d of %d finished, %d of %d accepted, %d failed", w.finished, total, w.nIn, n, w.failed)
		}
	}
	if allocs := testing.AllocsPerRun(100, round); allocs != 0 {
		t.Errorf("%g allocations for %d connections", allocs, n)
	}
}
