package rank

// m2nKind: the first M ranks → the last N ranks, every pair; M = N = ⌊W/2⌋
// unless given, and M+N ≤ W so that the sides do not overlap. A selection
// replaces a side (then it may overlap the other: ranks on both are peers).
//
// M·N edges; ideal total min(M, N) line rates.
var m2nKind = kind{
	name:    "m2n",
	summary: "the first M ranks to the last N ranks",
	takes:   takesSelection | takesMN,
	build:   newM2N,
}

func newM2N(v View, p Params, sel selected) (Topology, error) {
	w := v.Size()
	if p.M < 0 || p.N < 0 {
		return nil, Errorf(KindUsage, "topology m2n: M=%d, N=%d: give counts of at least 1", p.M, p.N)
	}
	if p.M > 0 && sel.from != nil {
		return nil, Errorf(KindUsage, "topology m2n: M=%d and initiators %s both say who initiates: give one", p.M, p.Initiators)
	}
	if p.N > 0 && sel.to != nil {
		return nil, Errorf(KindUsage, "topology m2n: N=%d and targets %s both say who is reached: give one", p.N, p.Targets)
	}
	m, n := p.M, p.N
	if m == 0 {
		m = w / 2
	}
	if n == 0 {
		n = w / 2
	}
	switch {
	case sel.from != nil && sel.to != nil:
		m, n = 0, 0 // both sides are selected, the counts are not used
	case sel.from != nil:
		m = 0
	case sel.to != nil:
		n = 0
	}
	// Not m+n > w: the sum of two counts may overflow.
	if m > w || n > w-m {
		return nil, Errorf(KindUsage, "topology m2n: M=%d and N=%d need %s ranks, the job has %d: lower M or N", m, n, sumText(m, n), w)
	}
	from, to := sel.from, sel.to
	if from == nil {
		from = rangeSet(0, m)
	}
	if to == nil {
		to = rangeSet(w-n, n)
	}
	return newCross("m2n", v, p, sel, from, to), nil
}

// sumText prints a+b for counts, which may be too big to add.
func sumText(a, b int) string {
	if a > int(^uint(0)>>1)-b {
		return "too many"
	}
	return itoa(a + b)
}
