package rank

import (
	"math/bits"
	"slices"
)

// hypercubeKind: r → r xor 2^b for every b, if that rank exists; any size. A
// selection keeps the edges between selected ranks.
//
// Per bit b with 2^b < W: 2·(⌊W/2^(b+1)⌋·2^b + max(0, W mod 2^(b+1) − 2^b))
// edges; W·log2 W for a power of two. Ideal total W line rates.
var hypercubeKind = kind{
	name:    "hypercube",
	summary: "every rank to the ranks whose number differs in one bit",
	takes:   takesSelection,
	build: func(v View, _ Params, sel selected) (Topology, error) {
		return newRelative("hypercube", v, sel, 1, cube(v.Size())), nil
	},
}

// cube is the rule for that many ranks.
type cube int

// dimensions is the number of bits b with 2^b < size.
func (c cube) dimensions() int { return bits.Len(uint(c - 1)) }

func (c cube) outs(r Rank, yield func(Rank, int32) bool) {
	for b := range c.dimensions() {
		if to := r ^ 1<<b; int(to) < int(c) && !yield(to, 0) {
			return
		}
	}
}

func (c cube) ins(t Rank, yield func(Rank, int32) bool) {
	var store [32]Rank
	from := store[:0]
	c.outs(t, func(r Rank, _ int32) bool {
		from = append(from, r)
		return true
	})
	slices.Sort(from)
	for _, r := range from {
		if !yield(r, 0) {
			return
		}
	}
}

func (c cube) degrees(r Rank) (out, in int64) {
	for b := range c.dimensions() {
		if int(r^1<<b) < int(c) {
			out++
		}
	}
	return out, out
}

func (c cube) edges() int64 {
	w, n := int64(c), int64(0)
	for b := range c.dimensions() {
		half := int64(1) << b
		n += 2 * (w/(2*half)*half + max(0, w%(2*half)-half))
	}
	return n
}
