package rank

import (
	"math/bits"
	"testing"
)

func TestHypercube(t *testing.T) {
	checkTopology(t, always(Params{Name: "hypercube"}), func(j slowJob, r Rank) ([]slowEdge, int) {
		var edges []slowEdge
		for b := range 31 {
			for other := range Rank(j.w) {
				if uint32(r^other) == 1<<b && bits.OnesCount32(uint32(r^other)) == 1 && j.selected(r, other) {
					edges = append(edges, slowEdge{to: other})
				}
			}
		}
		return edges, 0
	})
}
