package collect

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"rankstorm/rank"
	"rankstorm/transport"
)

// story is a made-up job that goes the whole way of a sample: stamps, one
// summary per process, merge, document.
type story struct {
	procs, k, hosts, conns, rounds int
	seed                           uint64
	lateRank                       rank.Rank // began connect 300 ms late; None = nobody
	failTo                         rank.Rank // one connection in four to this rank times out; None = none
	deadConns, brokenConns         int64     // in probe
	leakProc                       rank.Proc // keeps two fds; NoProc = none
	drops                          int64     // listen drops at process 0
	boundNS                        int64
	exit                           Exit
	poll                           string
	warnings                       []string
}

func (st story) size() int { return st.procs * st.k }

func (st story) host(p int) string {
	if st.hosts == 1 {
		return "n0"
	}
	return fmt.Sprintf("n%d", p*st.hosts/st.procs)
}

const storyStart = 5_000_000_000

// storySlots are the slots of one round, with their steps.
var storySlots = []struct {
	phase string
	steps []transport.Step
	micro float64 // typical duration, µs
}{
	{"create", []transport.Step{transport.StepCreateID}, 7},
	{"bind", []transport.Step{transport.StepBindAddr}, 3},
	{"listen", []transport.Step{transport.StepListen}, 20},
	{"publish", nil, 0},
	{"resolve", []transport.Step{transport.StepResolveAddr, transport.StepResolveRoute}, 2},
	{"qp", []transport.Step{transport.StepCreateQP}, 5},
	{"connect", []transport.Step{transport.StepConnect, transport.StepEstablish, transport.StepFullConnect, transport.StepAccept}, 4000},
	{"probe", []transport.Step{transport.StepProbe, transport.StepProbeAnswer}, 300},
	{"disconnect", []transport.Step{transport.StepDisconnect, transport.StepPeerDisconnect}, 150},
	{"destroy", []transport.Step{transport.StepDestroyID}, 9},
}

// summaries returns one encoded and decoded summary per process and slot.
func (st story) summaries(t testing.TB) [][]*Summary {
	t.Helper()
	rng := rand.New(rand.NewPCG(st.seed, 7))
	var slots [][]*Summary
	seq := int32(0)
	at := int64(storyStart)
	for round := range st.rounds {
		for _, slot := range storySlots {
			if round > 0 && (slot.phase == "listen" || slot.phase == "publish") {
				continue
			}
			at += 10_000_000
			var all []*Summary
			for p := range st.procs {
				all = append(all, st.summary(t, rng, seq, int32(round), at, p, slot.phase, slot.steps, slot.micro))
			}
			slots = append(slots, all)
			seq++
			at += 400_000_000
		}
	}
	return slots
}

func (st story) summary(t testing.TB, rng *rand.Rand, seq, round int32, at int64, p int, phase string, steps []transport.Step, micro float64) *Summary {
	s := &Summary{Seq: seq, Phase: phase, Round: round, Covers: make([]uint64, (st.procs+63)/64), BoundNS: st.boundNS}
	s.Covers[p/64] |= 1 << (p % 64)
	in := at - 8_000_000 + rng.Int64N(500_000)
	s.Barrier = Barrier{
		FirstInNS: in, LastInNS: in, LastInProc: rank.Proc(p), FirstOutNS: in + 1_500_000, LastOutNS: in + 1_500_000 + rng.Int64N(400_000),
		AtNS: at, FirstReleaseNS: at + 1000, LastReleaseNS: at + 2000 + rng.Int64N(90_000),
	}
	s.Clocks = []ProcClock{{Proc: rank.Proc(p), OffsetNS: int64(p) * 1000, BoundNS: st.boundNS}}
	for i := range st.k {
		r := rank.Rank(p*st.k + i)
		began := at + 2000 + rng.Int64N(40_000)
		if phase == "connect" && r == st.lateRank {
			began += 300_000_000
		}
		s.Ranks = append(s.Ranks, RankPhase{Rank: r, BeganNS: began, EndedNS: began + 2_000_000, GapNS: rng.Int64N(80_000), GapWaitNS: -1, GapRunNS: -1})
		last := began
		for order, step := range steps {
			sum, conns, edges := st.step(t, rng, r, int32(order), step, began, micro)
			s.Steps = mustMerge(t, s.Steps, []StepSum{sum})
			last = max(last, sum.LastEnd)
			if step == transport.StepFullConnect {
				s.Edges = append(s.Edges, edges...)
				s.Conns.Started += conns.Started
				s.Conns.Established += conns.Established
				s.Conns.Failed += conns.Failed
			}
			if step == transport.StepAccept {
				s.Conns.Accepted += sum.Total.Count
			}
		}
		s.Ranks[i].EndedNS = last + 5000
	}
	if phase == "probe" && p == 0 {
		s.Conns.Dead, s.Conns.Broken = st.deadConns, st.brokenConns
	}
	held := ProcResources{Proc: rank.Proc(p), FDs: 3, ProcFDs: 9, Goroutines: 4, RSSBytes: 11 << 20, Listeners: 1}
	switch phase {
	case "create":
		held.Moment = "before"
		s.Resources = []ProcResources{held}
	case "probe":
		held.Moment = "peak"
		held.FDs += int64(2 * st.conns * st.size())
		held.Conns = held.FDs - 3
		held.RSSBytes += 3 << 20
		if p == 0 {
			held.ListenDrops = st.drops
		}
		s.Resources = []ProcResources{held}
	case "destroy":
		held.Moment = "after"
		if rank.Proc(p) == st.leakProc {
			held.FDs += 2
		}
		if p == 0 {
			held.ListenDrops = st.drops
		}
		s.Resources = []ProcResources{held}
	}
	if err := s.Normalize(); err != nil {
		t.Fatal(err)
	}
	b, err := EncodeSummary(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeSummary(b)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// step invents one rank's stamps of one step and reduces them.
func (st story) step(t testing.TB, rng *rand.Rand, r rank.Rank, order int32, step transport.Step, began int64, micro float64) (StepSum, Conns, []EdgeSum) {
	side := ""
	n := st.conns * (st.size() - 1)
	if step == transport.StepListen {
		side, n = SideEndpoint, 1
	}
	peer := func(i int) rank.Rank {
		o := rank.Rank(i / st.conns)
		if o >= r {
			o++
		}
		return o
	}
	edge := func(i int) (EdgeConn, Class) {
		if side == SideEndpoint {
			return EdgeConn{From: r, To: rank.None}, ClassNone
		}
		e := EdgeConn{From: r, To: peer(i), Conn: int32(i % st.conns)}
		class := ClassOtherHost
		if st.host(int(r)/st.k) == st.host(int(e.To)/st.k) {
			class = ClassSameHost
		}
		if step.TargetSide() {
			e.From, e.To = e.To, e.From
		}
		return e, class
	}
	stamps := NewStamps([]transport.Step{step}, n)
	var conns Conns
	edges := map[rank.Rank]*EdgeSum{}
	for i := range n {
		e, _ := edge(i)
		to := e.To
		if edges[to] == nil {
			edges[to] = &EdgeSum{From: r, To: to, Weight: 1 / float64(max(1, st.size()-1))}
		}
		edges[to].Planned++
		conns.Planned++
		conns.Started++
		failedPeer := to == st.failTo && e.Conn%4 == 3
		if failedPeer {
			switch step {
			case transport.StepConnect:
				stamps.Fail(i, step, transport.CauseTimeout)
			case transport.StepFullConnect:
				edges[to].Failed++
				conns.Failed++
			}
			if step >= transport.StepConnect && step <= transport.StepPeerDisconnect {
				continue
			}
		}
		begin := began + rng.Int64N(200_000)
		took := int64(micro * 1000 * rng.ExpFloat64())
		stamps.Set(step, i, begin-17, begin+took-17)
		conns.Established++
		edges[to].Established++
		edges[to].SumNS += took
		edges[to].MaxNS = max(edges[to].MaxNS, took)
	}
	sum, err := ReduceStep(StepInput{
		Step: step, Side: side, Order: order, Rank: r, OffsetNS: 17,
		Workers: []WorkerStamps{{Stamps: stamps, N: n / 2, Edge: edge}, {Stamps: stamps, First: n / 2, N: n - n/2, Edge: edge}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var list []EdgeSum
	for _, e := range edges {
		list = append(list, *e)
	}
	return sum, conns, list
}

func mustMerge(t testing.TB, a, b []StepSum) []StepSum {
	t.Helper()
	out, err := mergeSteps(a, b, false)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// document runs the story to the end.
func (st story) document(t testing.TB) *Document {
	t.Helper()
	meta := Meta{
		RunID: "20260901T101500Z-4f2a1c", JobKey: "slurm.4711.0.0", StartedUTC: "2026-09-01T10:15:00Z", StartNS: storyStart,
		Version: "v0.1.0", BuildID: "b1d", Args: []string{"run", "--topology", "all_to_all"},
		Settings:  []rank.KV{{Key: "topology", Value: "all_to_all"}, {Key: "connections", Value: fmt.Sprint(st.conns)}},
		Limits:    []Limit{{"open_files", 1024}, {"somaxconn", 4096}},
		Transport: "tcp", Connect: "burst", Poll: st.poll, Topology: rank.Params{Name: "all_to_all"}, Stages: 1,
		Edges: int64(st.size() * (st.size() - 1)), Connections: st.conns, Rounds: st.rounds, Procs: st.procs, RanksPerProc: st.k,
	}
	for r := range st.size() {
		p := r / st.k
		meta.Ranks = append(meta.Ranks, RankMeta{Rank: rank.Rank(r), Proc: rank.Proc(p), Host: st.host(p), PID: 4000 + p, LocalRank: r % st.k})
		if r%st.k == 0 {
			meta.Addresses = append(meta.Addresses, AddressDoc{Proc: rank.Proc(p), Control: "10.0.0.1:4000", Data: []string{"10.0.0.1"}, DataFrom: "control"})
		}
	}
	d := NewDocument(meta)
	d.Gossip = &Gossip{Controller: "n0:7471", Members: int64(st.procs), GatherNS: 180_000_000, SealNS: 9_400_000}
	for _, slot := range st.summaries(t) {
		merged := &Summary{}
		for _, s := range slot {
			if err := Merge(merged, s); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.AddSlot(merged); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range st.warnings {
		d.Warn(w)
	}
	d.Finish(st.exit)
	return d
}

var (
	finishedMu sync.Mutex
	finished   = map[string][]byte{}
)

// finishedStory is a fresh copy of the document of a golden story, made once.
func finishedStory(t testing.TB, name string) *Document {
	t.Helper()
	finishedMu.Lock()
	defer finishedMu.Unlock()
	if finished[name] == nil {
		finished[name] = encode(t, stories()[name].document(t))
	}
	d, err := Decode(bytes.NewReader(finished[name]))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stories are the golden documents.
func stories() map[string]story {
	clean := story{procs: 16, k: 1, hosts: 8, conns: 16, rounds: 1, seed: 1, lateRank: rank.None, failTo: rank.None, leakProc: rank.NoProc, boundNS: 42_000, poll: "auto"}
	one := clean
	one.procs, one.hosts, one.conns, one.boundNS, one.poll = 1, 1, 4, 0, ""
	one.warnings = []string{"one rank has no peer: nothing was connected"}
	late := clean
	late.lateRank, late.seed = 3, 2
	failed := clean
	failed.procs, failed.hosts, failed.failTo, failed.leakProc, failed.deadConns, failed.brokenConns, failed.drops, failed.seed = 6, 3, 4, 5, 2, 3, 37, 3
	failed.exit = NewExit(1, &rank.Error{Kind: rank.KindFailed, Ranks: []rank.Rank{1}, Proc: 1, Host: "n0", Phase: "connect", Step: "connect", Peer: 4, Text: "timeout"}, false)
	virtual := clean
	virtual.procs, virtual.k, virtual.hosts, virtual.conns, virtual.rounds, virtual.boundNS, virtual.seed = 4, 4, 1, 2, 5, 0, 4
	return map[string]story{"clean": clean, "one-rank": one, "late": late, "failed": failed, "virtual": virtual}
}
