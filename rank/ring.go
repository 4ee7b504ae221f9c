package rank

// ringKind: r → r+1, the last → 0. A selection keeps the edges between
// selected ranks, it does not close the gaps.
//
// W edges (none for one rank); ideal total W line rates.
var ringKind = kind{
	name:    "ring",
	summary: "every rank to the next",
	takes:   takesSelection,
	build: func(v View, _ Params, sel selected) (Topology, error) {
		return newRelative("ring", v, sel, 1, newShifts(v.Size(), []int{1}, false)), nil
	},
}
