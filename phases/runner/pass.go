package runner

import (
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

// Of the numbers that stand in for those of queue pairs (--mimic).
const (
	defaultFirstQPN = 1000    // where nobody says
	endOfQPNs       = 1 << 24 // the wire has 24 bits for them
)

// load is what one rank has to do in a round of so many connections per edge.
type load struct {
	plan   rank.Plan
	in     int
	expect *expected
}

// enter shapes a rank for a round, while its workers are idle.
func (rk *localRank) enter(round int32) error {
	pass := rk.p.spec.Pass(round)
	l := rk.loads[pass.Connections]
	if l == nil {
		l = &load{
			plan:   rank.PlanOf(rk.p.topo, rk.rank, pass.Connections),
			in:     int(rank.Incoming(rk.p.topo, rk.rank, pass.Connections)),
			expect: newExpected(rk.p.topo, rk.rank, pass.Connections),
		}
		rk.loads[pass.Connections] = l
	}
	rk.load, rk.pass = *l, pass
	for _, w := range rk.workers {
		w.out, w.in = w.share(rk.plan.Len()), rk.in
	}
	ep, ok := rk.ep.(transport.Mimicker)
	if !ok || !rk.p.plays() {
		return nil
	}
	m := transport.Mimic{On: pass.NoQPs, Delay: pass.Delay}
	if pass.NoQPs {
		m.First, m.Count = rk.p.numbers.of(rk.rank, round)
	}
	if err := ep.Mimic(m); err != nil {
		return rk.wrap(phases.Create, "mimic", rank.None, err)
	}
	return nil
}

// plays says that the provider itself plays queue pairs in some rounds; else
// the workers sleep in their place.
func (p *process) plays() bool { return p.spec.Plays() && p.steps.Has(transport.StepRTR) }

// numbers are the ranges that ranks take in place of queue pair numbers: the
// same number at two ranks of one host would look like one queue pair that
// connects twice. Rounds take turns with a second range, if there is room, so
// that a number rests for a round.
type numbers struct {
	first, each int64 // of rank 0; per rank
	size        int64
	turns       int32
}

// newNumbers gives every rank of t as many as it has connections at most,
// either side. The error is of KindUsage: they do not fit.
func newNumbers(t rank.Topology, size, connections int, first uint32) (numbers, error) {
	n := numbers{first: int64(first), size: int64(size), turns: 2}
	for r := range rank.Rank(size) {
		n.each = max(n.each, (t.Out(r)+t.In(r))*int64(connections))
	}
	// size and each are below 2^27 and 2^58: divide, do not multiply.
	room := (endOfQPNs - n.first) / max(n.each, 1)
	if room < n.size {
		return n, rank.Errorf(rank.KindUsage, "%d ranks with up to %d connections each need more queue pair numbers than there are from %d to %d: use fewer connections or a lower first number (-q)",
			size, n.each, first, endOfQPNs-1)
	}
	if room < 2*n.size {
		n.turns = 1
	}
	return n, nil
}

// of a rank in a round.
func (n numbers) of(r rank.Rank, round int32) (first, count uint32) {
	turn := int64(round % n.turns)
	return uint32(n.first + (turn*n.size+int64(r))*n.each), uint32(n.each)
}
