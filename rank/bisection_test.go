package rank

import "testing"

func TestBisection(t *testing.T) {
	checkTopology(t, always(Params{Name: "bisection"}), func(j slowJob, r Rank) ([]slowEdge, int) {
		half := Rank(j.w / 2)
		for low := range half {
			switch {
			case r == low && j.selected(r, low+half):
				return to(low + half), 0
			case r == low+half && j.selected(r, low):
				return to(low), 0
			}
		}
		return nil, 0
	})
}
