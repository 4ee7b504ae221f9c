package rank

import "iter"

// rule names the few peers of a rank by arithmetic: it is the core of the
// topologies whose edges depend on where the initiator stands. It yields no
// self edge and no pair twice.
type rule interface {
	// outs yields the targets of r in plan order with their stages.
	outs(r Rank, yield func(to Rank, stage int32) bool)
	// ins yields the initiators of t, ascending, with the stages.
	ins(t Rank, yield func(from Rank, stage int32) bool)
	// degrees of r without selection; O(log size) at most.
	degrees(r Rank) (out, in int64)
	edges() int64
}

// relative makes a rule a topology: with a selection or --exclude-same-host an
// edge stays if its initiator and its target are selected and on different
// hosts; what is dropped is not replaced. Plans are not rotated: no two
// initiators with the same list exist. All edges of an initiator weigh the
// same.
type relative struct {
	name   string
	ranks  int
	stages int
	rule   rule

	// Only with a filter:
	filtered bool
	from, to *set // nil: everybody
	host     []int32
	out, in  []int32 // degrees, precomputed
	count    int64
}

func newRelative(name string, v View, sel selected, stages int, r rule) *relative {
	t := &relative{name: name, ranks: v.Size(), stages: stages, rule: r, from: sel.from, to: sel.to, host: sel.host}
	t.filtered = t.from != nil || t.to != nil || t.host != nil
	t.count = r.edges()
	if t.filtered {
		t.tally()
	}
	return t
}

// complete is implemented by a rule that reaches every ordered pair, so that
// its filtered degrees have a closed form.
type complete interface{ complete() bool }

// tally counts the edges that the filter leaves.
func (t *relative) tally() {
	t.out, t.in = make([]int32, t.ranks), make([]int32, t.ranks)
	t.count = 0
	if r, ok := t.rule.(complete); ok && r.complete() {
		all := rangeSet(0, t.ranks)
		c := newCross(t.name, t.view(), Params{}, selected{host: t.host}, orDefault(t.from, all), orDefault(t.to, all))
		t.count = c.count
		for i := range t.ranks {
			t.out[i], t.in[i] = int32(c.Out(Rank(i))), int32(c.In(Rank(i)))
		}
		return
	}
	from := orDefault(t.from, rangeSet(0, t.ranks))
	for i := range from.n {
		r := from.at(i)
		t.rule.outs(r, func(to Rank, _ int32) bool {
			if t.keeps(r, to) {
				t.out[r]++
				t.in[to]++
				t.count++
			}
			return true
		})
	}
}

// view is just enough of a View for newCross, which asks for the size only.
func (t *relative) view() View { return NewLayout(t.ranks, 1) }

func orDefault(s, other *set) *set {
	if s != nil {
		return s
	}
	return other
}

func (t *relative) keeps(from, to Rank) bool {
	return (t.from == nil || t.from.has(from)) && (t.to == nil || t.to.has(to)) &&
		(t.host == nil || t.host[from] != t.host[to])
}

func (t *relative) size() int    { return t.ranks }
func (t *relative) Name() string { return t.name }
func (t *relative) Stages() int  { return t.stages }
func (t *relative) Count() int64 { return t.count }

func (t *relative) Out(r Rank) int64 {
	if t.filtered {
		return int64(t.out[r])
	}
	out, _ := t.rule.degrees(r)
	return out
}

func (t *relative) In(r Rank) int64 {
	if t.filtered {
		return int64(t.in[r])
	}
	_, in := t.rule.degrees(r)
	return in
}

func (t *relative) Edges(r Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		n := t.Out(r)
		if n == 0 {
			return
		}
		t.rule.outs(r, func(to Rank, stage int32) bool {
			if t.filtered && !t.keeps(r, to) {
				return true
			}
			return yield(Edge{From: r, To: to, Stage: stage, Weight: 1 / float64(n)})
		})
	}
}

func (t *relative) Sources(to Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		if t.In(to) == 0 {
			return
		}
		t.rule.ins(to, func(from Rank, stage int32) bool {
			if t.filtered && !t.keeps(from, to) {
				return true
			}
			return yield(Edge{From: from, To: to, Stage: stage, Weight: 1 / float64(t.Out(from))})
		})
	}
}
