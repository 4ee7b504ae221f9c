package rank

// bisectionKind: r → r+⌊W/2⌋ and back, so that every edge crosses the middle;
// the last of an odd size is idle. A selection keeps the edges between
// selected ranks: initiators 0-⌊W/2⌋−1 give one direction only.
//
// 2⌊W/2⌋ edges; ideal total as many line rates.
var bisectionKind = kind{
	name:    "bisection",
	summary: "ranks of the lower and the upper half to each other",
	takes:   takesSelection,
	build: func(v View, _ Params, sel selected) (Topology, error) {
		half := Rank(v.Size() / 2)
		mate := func(r Rank) Rank {
			if r < half {
				return r + half
			}
			return r - half
		}
		return newRelative("bisection", v, sel, 1, pairing{mate: mate, paired: 2 * int(half)}), nil
	},
}
