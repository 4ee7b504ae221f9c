package rank

import "testing"

func TestM2N(t *testing.T) {
	for _, params := range []func(w int) (Params, bool){
		always(Params{Name: "m2n"}),
		func(w int) (Params, bool) { return Params{Name: "m2n", M: 1, N: w - 1}, w > 1 },
		func(w int) (Params, bool) { return Params{Name: "m2n", M: w - w/2}, true },
		func(w int) (Params, bool) { return Params{Name: "m2n", N: 1}, w > 1 },
	} {
		checkTopology(t, params, func(j slowJob, r Rank) ([]slowEdge, int) {
			m, n := j.w/2, j.w/2
			if j.p.M > 0 {
				m = j.p.M
			}
			if j.p.N > 0 {
				n = j.p.N
			}
			first, last := j.all()[:m], j.all()[j.w-n:]
			j.from, j.to = either(j.from, first), either(j.to, last)
			return slowCross(j, r)
		})
	}
}
