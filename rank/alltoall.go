package rank

// allToAllKind: every ordered pair of different ranks. With a selection:
// every initiator → every target.
//
// W(W−1) edges; ideal total W line rates.
var allToAllKind = kind{
	name:    "all_to_all",
	summary: "every initiator to every target, all ranks by default",
	takes:   takesSelection,
	build: func(v View, p Params, sel selected) (Topology, error) {
		all := rangeSet(0, v.Size())
		return newCross("all_to_all", v, p, sel, orDefault(sel.from, all), orDefault(sel.to, all)), nil
	},
}
