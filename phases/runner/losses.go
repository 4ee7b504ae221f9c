package runner

import (
	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
)

// losses keeps, at the root, when each process was first thought dead by gossip and when its control link was lost.
// Gossip is a hint that nobody acts on: a storm starves failure detectors.
type losses struct {
	order []rank.Proc
	by    map[rank.Proc]*collect.Loss
}

// seen notes a sign that a process is gone, ns since the start of the run; only the first of a kind counts.
func (l *losses) seen(p *process, proc rank.Proc, at int64, gossip bool) {
	if l.by == nil {
		l.by = make(map[rank.Proc]*collect.Loss)
	}
	one, ok := l.by[proc]
	if !ok {
		host, _ := p.describe(proc)
		one = &collect.Loss{Proc: proc, Host: host, Phase: string(p.phase())}
		l.by[proc] = one
		l.order = append(l.order, proc)
	}
	switch {
	case gossip && one.GossipNS == nil:
		one.GossipNS = &at
	case !gossip && one.LinkNS == nil:
		one.LinkNS = &at
	}
}

// parting is how this process lost its parent.
type parting struct {
	proc rank.Proc
	at   int64 // ns since the start of the run
}

// inherit notes who was gone when this process became the root: its parent when the link broke, the others now, as it was
// looking for them.
func (l *losses) inherit(p *process, gone phases.ProcSet) {
	now := p.clock.Now() - p.startNS
	for proc := range gone.All() {
		at := now
		if proc == p.parting.proc {
			at = p.parting.at
		}
		l.seen(p, proc, at, false)
	}
}

// list is what the document says, in the order of the first signs.
func (l *losses) list() []collect.Loss {
	out := []collect.Loss{}
	for _, proc := range l.order {
		out = append(out, *l.by[proc])
	}
	return out
}
