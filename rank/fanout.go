package rank

// fanoutKind: the root → everybody else. Initiators are the roots (default
// rank 0), targets whom they reach (default all); several roots make a full
// fan-out each.
//
// W−1 edges per root; ideal total one line rate per root: what it can send.
var fanoutKind = kind{
	name:    "fanout",
	summary: "rank 0 (or the initiators) to all others",
	takes:   takesSelection,
	build: func(v View, p Params, sel selected) (Topology, error) {
		return newCross("fanout", v, p, sel, orDefault(sel.from, rangeSet(0, 1)), orDefault(sel.to, rangeSet(0, v.Size()))), nil
	},
}
