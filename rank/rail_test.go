package rank

import (
	"slices"
	"testing"
)

func TestRail(t *testing.T) {
	checkTopology(t, always(Params{Name: "rail"}), func(j slowJob, r Rank) ([]slowEdge, int) {
		var edges []slowEdge
		number := 0
		for other := range Rank(j.w) {
			if j.LocalRank(other) != j.LocalRank(r) {
				continue
			}
			if j.selected(r, other) {
				edges = append(edges, slowEdge{to: other})
			}
			if other < r && (j.from == nil || slices.Contains(j.from, other)) {
				number++
			}
		}
		return edges, number
	})
}

// TestRailCounts: four hosts at sizes with and without a full last host, and a
// size that nobody could list.
func TestRailCounts(t *testing.T) {
	for _, c := range []struct {
		ranks, perHost int
		want           int64
	}{
		{1, 4, 0},
		{4, 1, 12},
		{16, 4, 4 * 12},
		{7, 2, 12 + 6},
		{8, 8, 0},
		{1_000_000, 8, 8 * 125_000 * 124_999},
	} {
		if got := mustTopology(t, NewLayout(c.ranks, c.perHost), Params{Name: "rail"}).Count(); got != c.want {
			t.Errorf("%d ranks, %d a host: %d edges, want %d", c.ranks, c.perHost, got, c.want)
		}
	}
}
