package rank

import (
	"slices"
	"testing"
)

func TestFanout(t *testing.T) {
	checkTopology(t, always(Params{Name: "fanout"}), func(j slowJob, r Rank) ([]slowEdge, int) {
		number := slices.Index(either(j.from, []Rank{0}), r)
		if number < 0 {
			return nil, 0
		}
		return to(either(j.to, j.all())...), number
	})
}
