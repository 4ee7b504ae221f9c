package rank

// pairwiseKind: neighbours in pairs, 2i → 2i+1 and back; the last of an odd
// size is idle. A selection keeps the edges between selected ranks.
//
// 2⌊W/2⌋ edges; ideal total as many line rates.
var pairwiseKind = kind{
	name:    "pairwise",
	summary: "ranks 2i and 2i+1 to each other",
	takes:   takesSelection,
	build: func(v View, _ Params, sel selected) (Topology, error) {
		return newRelative("pairwise", v, sel, 1, pairing{mate: func(r Rank) Rank { return r ^ 1 }, paired: v.Size() &^ 1}), nil
	},
}

// pairing is a rule in which the ranks below paired have exactly one mate,
// mutual, and the rest are idle.
type pairing struct {
	mate   func(r Rank) Rank
	paired int
}

func (p pairing) outs(r Rank, yield func(Rank, int32) bool) {
	if int(r) < p.paired {
		yield(p.mate(r), 0)
	}
}

func (p pairing) ins(t Rank, yield func(Rank, int32) bool) { p.outs(t, yield) }

func (p pairing) degrees(r Rank) (out, in int64) {
	if int(r) < p.paired {
		return 1, 1
	}
	return 0, 0
}

func (p pairing) edges() int64 { return int64(p.paired) }
