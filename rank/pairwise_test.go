package rank

import "testing"

func TestPairwise(t *testing.T) {
	checkTopology(t, always(Params{Name: "pairwise"}), func(j slowJob, r Rank) ([]slowEdge, int) {
		for i := Rank(0); int(2*i+1) < j.w; i++ {
			switch {
			case r == 2*i && j.selected(r, r+1):
				return to(r + 1), 0
			case r == 2*i+1 && j.selected(r, r-1):
				return to(r - 1), 0
			}
		}
		return nil, 0
	})
}
