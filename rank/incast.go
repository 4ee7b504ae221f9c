package rank

import "iter"

// incastKind: everybody else → the sink. Targets are the sinks (default rank
// 0), initiators who sends (default everybody but the sinks). With k sinks
// there are k separate incasts: initiator number a sends to sink number a
// modulo k. An initiator whose sink is itself, or on its host with
// --exclude-same-host, has no edge.
//
// One edge per initiator; ideal total one line rate per sink: what it can
// receive.
var incastKind = kind{
	name:    "incast",
	summary: "all others (or the initiators) to rank 0 (or in turn to the targets)",
	takes:   takesSelection,
	build: func(v View, _ Params, sel selected) (Topology, error) {
		t := &incast{ranks: v.Size(), host: sel.host, sinks: orDefault(sel.to, rangeSet(0, 1)), from: sel.from}
		if t.from == nil {
			t.from = t.sinks.without(t.ranks)
		}
		t.in = make([]int64, t.sinks.n)
		for a := range t.from.n {
			if t.keeps(a) {
				t.in[a%t.sinks.n]++
				t.count++
			}
		}
		return t, nil
	},
}

type incast struct {
	ranks       int
	from, sinks *set
	host        []int32
	in          []int64 // by sink number
	count       int64
}

// keeps tells whether initiator number a has its edge.
func (t *incast) keeps(a int) bool {
	from, to := t.from.at(a), t.sinks.at(a%t.sinks.n)
	return from != to && (t.host == nil || t.host[from] != t.host[to])
}

func (t *incast) size() int    { return t.ranks }
func (t *incast) Name() string { return "incast" }
func (t *incast) Stages() int  { return 1 }
func (t *incast) Count() int64 { return t.count }

func (t *incast) Out(r Rank) int64 {
	if a, ok := t.from.find(r); ok && t.keeps(a) {
		return 1
	}
	return 0
}

func (t *incast) In(r Rank) int64 {
	if k, ok := t.sinks.find(r); ok {
		return t.in[k]
	}
	return 0
}

func (t *incast) edge(a int) Edge {
	return Edge{From: t.from.at(a), To: t.sinks.at(a % t.sinks.n), Weight: 1}
}

func (t *incast) Edges(r Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		if a, ok := t.from.find(r); ok && t.keeps(a) {
			yield(t.edge(a))
		}
	}
}

func (t *incast) Sources(to Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		k, ok := t.sinks.find(to)
		if !ok {
			return
		}
		for a := k; a < t.from.n; a += t.sinks.n {
			if t.keeps(a) && !yield(t.edge(a)) {
				return
			}
		}
	}
}
