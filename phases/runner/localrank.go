package runner

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

// localRank is one rank that this process hosts.
type localRank struct {
	p       *process
	rank    rank.Rank
	host    string
	bind    string
	ep      transport.Endpoint
	load                  // of the running round
	loads   map[int]*load // by connections per edge
	pass    phases.Pass
	workers []*worker

	addr    transport.Address
	listens *collect.Stamps // of the listen step, index 0
	err     error           // of listen
}

// open opens the endpoints of all local ranks and starts their workers.
func (p *process) open() error {
	p.before = p.resources("before") // first: what ends here is reported as well
	if err := p.preflight(); err != nil {
		return err
	}
	first, n := p.table.RanksOf(p.self)
	p.results = make(chan result, 3*n*p.spec.Threads)
	ranks, configs := make([]*localRank, n), make([]transport.Config, n)
	for i := range n {
		rk := &localRank{p: p, rank: first + rank.Rank(i), host: p.table.HostOf(first), loads: map[int]*load{}}
		rk.bind = dataAddress(p.table, rk.rank, p.cfg.Bind)
		configs[i] = transport.Config{
			Clock: p.clock, Name: fmt.Sprintf("rank %d", rk.rank),
			Bind: []string{rk.bind}, Advertise: rk.bind, Workers: p.spec.Threads, Options: p.cfg.Options, Park: p.crowded,
		}
		if err := p.cfg.Provider.Probe(configs[i]); err != nil {
			return rk.wrap(phases.Create, "probe", rank.None, err)
		}
		ranks[i] = rk
	}
	p.watchPorts()
	// Again: a provider's libraries may keep what they opened for the first use of a device.
	p.before = p.resources("before")
	for i, rk := range ranks {
		ep, err := p.cfg.Provider.Open(configs[i])
		if err != nil {
			return rk.wrap(phases.Create, "open endpoint", rank.None, err)
		}
		rk.ep = ep
		rk.listens = collect.NewStamps([]transport.Step{transport.StepListen}, 1)
		p.ranks = append(p.ranks, rk)
		// Room for the largest round; enter says what a round has of it.
		most, in := rank.PlanOf(p.topo, rk.rank, p.spec.Connections), int(rank.Incoming(p.topo, rk.rank, p.spec.Connections))
		for j := range p.spec.Threads {
			w := &worker{rk: rk, idx: j, tw: ep.Worker(j), cmds: make(chan command, 1), vouch: newVouch(p.group.DataKey())}
			out := w.share(most.Len())
			w.state = make([]connState, out+in)
			w.passed = make([]bool, out+in)
			w.peers = make([]incoming, in)
			w.stamps = collect.NewStamps(p.stampSteps(), out+in)
			w.ev = make([]transport.Event, 2*chunk)
			w.due = make([]int64, chunk)
			w.errs = make([]rank.Error, 0, maxErrors)
			if p.spec.Plays() && !p.plays() {
				w.mimic = collect.NewStamps(mimicSteps, out)
			}
			if p.spec.FromCreate {
				w.created = make([]int64, out)
				w.whole = collect.NewStamps([]transport.Step{transport.StepFullConnect}, out)
			}
			rk.workers = append(rk.workers, w)
			p.workers.Add(1)
			go w.loop()
		}
	}
	p.opened = true
	return nil
}

// stampSteps are the per-connection steps of the provider.
func (p *process) stampSteps() []transport.Step {
	var list []transport.Step
	for s := range transport.StepCount {
		if p.steps.Has(s) && s != transport.StepListen && s != transport.StepRegister {
			list = append(list, s)
		}
	}
	return list
}

// mimicSteps are the rows of --mimic.
var mimicSteps = []transport.Step{transport.StepCreateQP, transport.StepInitQP, transport.StepRTR, transport.StepRTS}

// shut ends the workers and closes the endpoints; idempotent. The counters of closed endpoints can still be read.
func (p *process) shut() {
	if p.closed {
		return
	}
	p.closed = true
	for _, rk := range p.ranks {
		for _, w := range rk.workers {
			w.stop.Store(true)
			w.tw.Wake()
			close(w.cmds)
		}
	}
	p.workers.Wait()
	for _, rk := range p.ranks {
		if err := rk.ep.Close(); err != nil {
			p.note("%v", rk.wrap(phases.Destroy, "close endpoint", rank.None, err))
		}
	}
}

// pacing is a worker's share of the storm of the running stage.
func (rk *localRank) pacing(w *worker) phases.Share {
	p := rk.p
	span := rk.plan.Stages[p.slot.Stage]
	s := phases.Share{
		Initiators: 1, OfRank: int64(span.N), OfJob: int64(span.N),
		Worker: int64(((w.idx-span.First)%p.deal + p.deal) % p.deal), Workers: int64(p.deal),
	}
	if w.idx >= p.deal {
		s.OfRank = 0
	}
	if st := p.storms; st != nil {
		s.Initiator, s.Initiators, s.OfJob = st.place(p.slot.Stage, rk.rank)
		s.OfJob *= int64(rk.plan.Connections)
	}
	return s
}

// listen starts to take requests; the worker of index 0 does it.
func (rk *localRank) listen() {
	addr, begin, end, err := rk.ep.Listen(rk.p.spec.Backlog)
	rk.addr, rk.err = addr, err
	if err == nil {
		rk.listens.Set(transport.StepListen, 0, begin, end)
	}
}

// delay that --delay asks of this rank in a phase.
func (rk *localRank) delay(ph phases.Token) time.Duration {
	for _, d := range rk.p.spec.Delays {
		if d.Rank == rk.rank && d.Phase == ph {
			return d.For
		}
	}
	return 0
}

// wrap names rank, host, phase, step and peer of a provider's error.
func (rk *localRank) wrap(ph phases.Token, step string, peer rank.Rank, err error) *rank.Error {
	return &rank.Error{
		Kind: kindOf(err), Ranks: []rank.Rank{rk.rank}, Proc: rk.p.self, Host: rk.host,
		Phase: string(ph), Step: step, Peer: peer, Err: err, Text: strings.TrimSpace(err.Error()),
	}
}

// kindOf classifies a provider's failure.
func kindOf(err error) rank.Kind {
	var op *transport.OpError
	if !errors.As(err, &op) {
		return rank.KindFailed
	}
	switch op.Cause {
	case transport.CauseRefused, transport.CauseUnreachable, transport.CauseReset, transport.CauseClosed:
		return rank.KindUnreachable
	case transport.CauseTimeout:
		return rank.KindTimeout
	case transport.CauseRejected, transport.CauseBadHello:
		return rank.KindRejected
	case transport.CauseNoPorts, transport.CauseNoFDs, transport.CauseNoMemory, transport.CausePermission:
		return rank.KindResource
	}
	return rank.KindFailed
}

// class of the edge between two ranks.
func (p *process) class(e collect.EdgeConn) collect.Class {
	if p.table.HostOf(e.From) == p.table.HostOf(e.To) {
		return collect.ClassSameHost
	}
	return collect.ClassOtherHost
}
