package runner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

// summarise reduces what the local ranks recorded in the slot and hands it to the machine. All workers stand still.
func (p *process) summarise() {
	p.stage = workIdle
	s, err := p.reduce()
	if err != nil {
		p.impossible(err)
		s = &collect.Summary{Seq: p.slot.Seq, Phase: string(p.slot.Phase), Round: p.slot.Round, Stage: p.slot.Stage}
	}
	var set phases.ProcSet
	set.Add(p.self)
	s.Covers = set
	if w := p.cfg.Witness; w != nil {
		w.Own(s, err == nil && !p.aborting)
	}
	body, err := collect.EncodeSummary(s)
	if err != nil {
		p.note("figures of %s cannot be written: %v", p.slot.Phase, err)
	}
	if len(body) > 0 {
		p.keep(p.slot, body)
	}
	p.summed = true
	p.giveSummary()
}

// giveSummary hands the machine what was asked for: the slot's summary or, to a successor of the root, all at hand.
func (p *process) giveSummary() {
	list := p.allKept()
	if !p.wantAll {
		list = list[max(0, len(list)-1):]
	}
	body, err := packSummaries(list)
	if err != nil {
		p.note("figures of %s cannot be written: %v", p.slot.Phase, err)
	}
	p.step(phases.MemberInput{Kind: phases.MLocalSummary, Seq: p.slot.Seq, Body: body})
}

// reduce builds the process's summary of the slot.
func (p *process) reduce() (*collect.Summary, error) {
	offset, bound := p.group.Offset()
	s := &collect.Summary{
		Seq: p.slot.Seq, Phase: string(p.slot.Phase), Round: p.slot.Round, Stage: p.slot.Stage, BoundNS: bound,
		Clocks: []collect.ProcClock{{Proc: p.self, OffsetNS: offset, BoundNS: bound}},
	}
	entry, _ := phases.Lookup(p.slot.Phase)
	noted := p.pulse.take()
	for _, rk := range p.ranks {
		one := &collect.Summary{Seq: s.Seq, Phase: s.Phase, Round: s.Round, Stage: s.Stage}
		for i, step := range entry.Steps {
			if err := rk.reduceStep(one, step, int32(10*i), offset); err != nil {
				return nil, err
			}
		}
		if err := rk.reduceMimic(one, offset); err != nil {
			return nil, err
		}
		if err := rk.reduceWhole(one, offset); err != nil {
			return nil, err
		}
		rk.count(one, offset, noted)
		if p.slot.Phase == phases.Connect {
			rk.edges(one)
			if collect.SumsTargets(rk.p.topo.Count(), int64(rk.p.table.Size())) {
				one.Targets = collect.SumTargets(one.Edges)
			}
		}
		if err := collect.Merge(s, one); err != nil {
			return nil, err
		}
	}
	if p.slot.Phase == phases.Publish && p.exchange.end != 0 {
		if err := p.reducePublish(s, offset); err != nil {
			return nil, err
		}
	}
	s.Control = p.control
	s.Control.MostMessages, s.Control.MostBytes, s.Control.MostProc = p.control.Messages, p.control.Bytes, p.self
	p.control = collect.Control{}
	p.barrier(s, offset)
	p.pauses(s, offset, noted.stalls)
	p.countPorts(s)
	p.judge(s)
	return s, nil
}

// reduceStep adds the row or rows of one step of this rank.
func (rk *localRank) reduceStep(s *collect.Summary, step transport.Step, order int32, offset int64) error {
	if !rk.p.steps.Has(step) {
		return nil
	}
	in := collect.StepInput{Step: step, Order: order, Rank: rk.rank, OffsetNS: offset, Scratch: rk.p.scratch}
	switch {
	case step == transport.StepListen:
		in.Side = collect.SideEndpoint
		in.Workers = []collect.WorkerStamps{{Stamps: rk.listens, N: 1, Edge: rk.self}}
		return add(s, in)
	case step.TargetSide():
		in.Workers = rk.targetStamps()
		return add(s, in)
	case step == transport.StepDestroyQP || step == transport.StepDestroyID:
		target := in
		target.Side, target.Workers = collect.SideTarget, rk.targetStamps()
		target.Order++
		if err := add(s, target); err != nil {
			return err
		}
	}
	in.Workers = rk.initiatorStamps(func(w *worker) *collect.Stamps { return w.stamps })
	return add(s, in)
}

// reduceMimic adds the rows of --mimic that belong to the slot.
func (rk *localRank) reduceMimic(s *collect.Summary, offset int64) error {
	if !rk.pass.NoQPs || rk.p.plays() {
		return nil
	}
	var steps []transport.Step
	switch rk.p.slot.Phase {
	case phases.QP:
		steps = mimicSteps[:2]
	case phases.Connect:
		steps = mimicSteps[2:]
	}
	for i, step := range steps {
		err := add(s, collect.StepInput{
			Step: step, Name: collect.MimicName(step.String()), Order: int32(500 + i), Rank: rk.rank, OffsetNS: offset, Scratch: rk.p.scratch,
			Workers: rk.initiatorStamps(func(w *worker) *collect.Stamps { return w.mimic }),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// neverCreated marks a connection whose creation did not succeed.
const neverCreated = math.MinInt64

// reduceWhole adds the row of Spec.FromCreate. The stamps of the create phase
// are gone when the connect phase is reduced, so their beginnings are kept. The
// time that the worker waited between the phases counts as if there was none: it is
// the lockstep's, not the connections'.
func (rk *localRank) reduceWhole(s *collect.Summary, offset int64) error {
	if !rk.p.spec.FromCreate {
		return nil
	}
	switch rk.p.slot.Phase {
	case phases.Create:
		for _, w := range rk.workers {
			for c := range w.out {
				w.created[c] = neverCreated
				if begin, _, ok := w.stamps.Get(transport.StepCreateID, c); ok {
					w.created[c] = begin
				}
			}
		}
	case phases.Connect:
		for _, w := range rk.workers {
			w.whole.Reset()
			for c := range w.out {
				if _, end, ok := w.stamps.Get(transport.StepFullConnect, c); ok && w.created[c] != neverCreated {
					w.whole.Set(transport.StepFullConnect, c, w.created[c]+w.idle, end)
				}
			}
		}
		return add(s, collect.StepInput{
			Step: transport.StepFullConnect, Name: collect.FromCreate, Order: 400, Rank: rk.rank, OffsetNS: offset, Scratch: rk.p.scratch,
			Workers: rk.initiatorStamps(func(w *worker) *collect.Stamps { return w.whole }),
		})
	}
	return nil
}

// add reduces one step and keeps it if anything was measured or failed.
func add(s *collect.Summary, in collect.StepInput) error {
	sum, err := collect.ReduceStep(in)
	if err != nil {
		return fmt.Errorf("reduce %s: %w", in.Step, err)
	}
	if sum.Total.Count > 0 || len(sum.Failures) > 0 {
		s.Steps = append(s.Steps, sum)
	}
	return nil
}

// self names a rank's own step.
func (rk *localRank) self(int) (collect.EdgeConn, collect.Class) {
	return collect.EdgeConn{From: rk.rank, To: rank.None}, collect.ClassNone
}

func (rk *localRank) initiatorStamps(of func(*worker) *collect.Stamps) []collect.WorkerStamps {
	list := make([]collect.WorkerStamps, 0, len(rk.workers))
	for _, w := range rk.workers {
		list = append(list, collect.WorkerStamps{Stamps: of(w), N: w.out, Edge: w.classed})
	}
	return list
}

func (rk *localRank) targetStamps() []collect.WorkerStamps {
	list := make([]collect.WorkerStamps, 0, len(rk.workers))
	for _, w := range rk.workers {
		list = append(list, collect.WorkerStamps{Stamps: w.stamps, First: w.out, N: w.nIn, Edge: w.classed})
	}
	return list
}

// classed is the edge of connection c and its class.
func (w *worker) classed(c int) (collect.EdgeConn, collect.Class) {
	e := w.edge(c)
	return e, w.rk.p.class(e)
}

// count adds how the rank went through the slot and what became of its connections.
func (rk *localRank) count(s *collect.Summary, offset int64, noted record) {
	rp := collect.RankPhase{Rank: rk.rank, GapNS: -1, GapWaitNS: -1, GapRunNS: -1}
	for _, w := range rk.workers {
		if w.began != 0 {
			rp.BeganNS = max(rp.BeganNS, w.began+offset)
			rp.EndedNS = max(rp.EndedNS, w.ended+offset)
		}
		if w.gap > rp.GapNS {
			rp.GapNS = w.gap
			rp.GapWaitNS, rp.GapRunNS = noted.spent(w.gap, w.gapEnd, rk.p.pulse.period())
		}
		s.Errors = append(s.Errors, w.errs...)
		switch rk.p.slot.Phase {
		case phases.Connect:
			s.Conns.Started += w.started
			for c := range w.out {
				if _, _, ok := w.stamps.Get(transport.StepFullConnect, c); ok {
					s.Conns.Established++
				}
			}
			for c := w.out; c < w.out+w.nIn; c++ {
				if _, _, ok := w.stamps.Get(transport.StepAccept, c); ok {
					s.Conns.Accepted++
				}
			}
		}
		s.Conns.Dead += w.dead
		s.Conns.Failed += w.lost - w.dead
		s.Conns.Broken += w.broke
	}
	s.Ranks = append(s.Ranks, rp)
}

// edges adds the rank's edges of the stage.
func (rk *localRank) edges(s *collect.Summary) {
	index := make(map[rank.Rank]int)
	deal := rk.p.deal
	span := rk.plan.Stages[rk.p.slot.Stage]
	for i := span.First; i < span.First+span.N; i++ {
		e, _ := rk.plan.Edge(i)
		k, ok := index[e.To]
		if !ok {
			k = len(s.Edges)
			index[e.To] = k
			s.Edges = append(s.Edges, collect.EdgeSum{From: e.From, To: e.To, Stage: e.Stage, Weight: e.Weight})
		}
		sum := &s.Edges[k]
		sum.Planned++
		w, c := rk.workers[i%deal], i/deal
		begin, end, up := w.stamps.Get(transport.StepFullConnect, c)
		if up {
			sum.Established++
			sum.SumNS += end - begin
			sum.MaxNS = max(sum.MaxNS, end-begin)
		}
		switch {
		case w.state[c] != connFailed:
		case up:
			sum.Broken++
		default:
			sum.Failed++
		}
	}
	slices.SortFunc(s.Edges, func(a, b collect.EdgeSum) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// reducePublish adds the row of the address exchange: one sample per process.
func (p *process) reducePublish(s *collect.Summary, offset int64) error {
	st := collect.NewStamps([]transport.Step{transport.StepListen}, 1)
	st.Set(transport.StepListen, 0, p.exchange.begin, p.exchange.end)
	first, _ := p.table.RanksOf(p.self)
	return add(s, collect.StepInput{
		Step: transport.StepListen, Name: "publish addresses", Side: collect.SideEndpoint, Rank: first, OffsetNS: offset, Scratch: p.scratch,
		Workers: []collect.WorkerStamps{{Stamps: st, N: 1, Edge: func(int) (collect.EdgeConn, collect.Class) {
			return collect.EdgeConn{From: first, To: rank.None}, collect.ClassNone
		}}},
	})
}

// barrier adds what this process saw of the barrier before the slot.
func (p *process) barrier(s *collect.Summary, offset int64) {
	if p.goAt == 0 {
		return
	}
	b := &s.Barrier
	b.FirstInNS, b.LastInNS, b.LastInProc = p.readyAt+offset, p.readyAt+offset, p.self
	b.FirstOutNS, b.LastOutNS = p.goAt+offset, p.goAt+offset
	b.AtNS = p.at
	for _, rk := range p.ranks {
		for _, w := range rk.workers {
			if w.released == 0 {
				continue
			}
			at := w.released + offset
			if b.FirstReleaseNS == 0 || at < b.FirstReleaseNS {
				b.FirstReleaseNS = at
			}
			b.LastReleaseNS = max(b.LastReleaseNS, at)
		}
	}
}
