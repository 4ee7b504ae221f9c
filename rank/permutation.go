package rank

import "math/rand/v2"

// permutationKind: every rank → one other, nobody reached twice: a derangement
// drawn from the seed, the same on every process. A selection keeps the edges
// between selected ranks, nothing is drawn again.
//
// W edges (none for one rank); ideal total W line rates.
var permutationKind = kind{
	name:    "permutation",
	summary: "every rank to one other at random, from the seed",
	takes:   takesSelection,
	build: func(v View, p Params, sel selected) (Topology, error) {
		return newRelative("permutation", v, sel, 1, newDerangement(v.Size(), p.Seed)), nil
	},
}

// derangement is a rule from a permutation without fixed point.
type derangement struct {
	to, from []Rank // empty for one rank
}

// newDerangement draws uniformly among all derangements: Fisher–Yates, begun
// anew as soon as a rank keeps its place. About e tries on average, fewer
// steps than that times size since most tries end early.
func newDerangement(size int, seed uint64) derangement {
	if size < 2 {
		return derangement{}
	}
	const stream = 0x72616e6b // the second word of the generator, fixed
	rng := rand.New(rand.NewPCG(seed, stream))
	to := make([]Rank, size)
	for !derange(to, rng) {
	}
	from := make([]Rank, size)
	for r, t := range to {
		from[t] = Rank(r)
	}
	return derangement{to: to, from: from}
}

// derange shuffles to and tells whether no rank stayed in place.
func derange(to []Rank, rng *rand.Rand) bool {
	for r := range to {
		to[r] = Rank(r)
	}
	for i := len(to) - 1; i >= 0; i-- {
		j := rng.IntN(i + 1)
		to[i], to[j] = to[j], to[i]
		if to[i] == Rank(i) {
			return false
		}
	}
	return true
}

func (d derangement) outs(r Rank, yield func(Rank, int32) bool) {
	if len(d.to) > 0 {
		yield(d.to[r], 0)
	}
}

func (d derangement) ins(t Rank, yield func(Rank, int32) bool) {
	if len(d.from) > 0 {
		yield(d.from[t], 0)
	}
}

func (d derangement) degrees(Rank) (out, in int64) {
	if len(d.to) == 0 {
		return 0, 0
	}
	return 1, 1
}

func (d derangement) edges() int64 { return int64(len(d.to)) }
