package runner

import (
	"rankstorm/collect"
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

// list is what the document says, in the order of the first signs.
func (l *losses) list() []collect.Loss {
	out := []collect.Loss{}
	for _, proc := range l.order {
		out = append(out, *l.by[proc])
	}
	return out
}
