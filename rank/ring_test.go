package rank

import "testing"

func TestRing(t *testing.T) {
	checkTopology(t, always(Params{Name: "ring"}), func(j slowJob, r Rank) ([]slowEdge, int) {
		next := (r + 1) % Rank(j.w)
		if !j.selected(r, next) {
			return nil, 0
		}
		return to(next), 0
	})
}
