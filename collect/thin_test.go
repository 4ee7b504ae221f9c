package collect

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A thinned series is bounded, whole while it is short, and holds its ends and what was worst.
func TestThinned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type one struct {
			kind  string
			n     int
			worth int64
		}
		most := rapid.IntRange(4, 40).Draw(t, "most")
		kinds := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "kinds")]
		series := make([]one, rapid.IntRange(0, 2000).Draw(t, "length"))
		to := thinned[one]{most: most}
		last := map[string]one{}
		for i := range series {
			series[i] = one{rapid.SampledFrom(kinds).Draw(t, "kind"), i, rapid.Int64Range(0, 1000).Draw(t, "worth")}
			to.add(series[i].kind, series[i])
			to.measured("worth", series[i].worth, series[i])
			last[series[i].kind] = series[i]
		}
		kept, left := to.list()
		if len(kept)+int(left) != len(series) || len(kept) > most+len(kinds)+worstKept || len(to.kept) > most {
			t.Fatalf("%d kept and %d left out of %d", len(kept), left, len(series))
		}
		if len(series) <= most && left != 0 {
			t.Fatalf("%d of a short series are left out", left)
		}
		if !slices.IsSortedFunc(kept, func(x, y one) int { return x.n - y.n }) {
			t.Fatal("out of order")
		}
		for _, e := range last {
			if !slices.Contains(kept, e) {
				t.Fatalf("the last %v is missing", e)
			}
		}
		slices.SortStableFunc(series, func(x, y one) int { return int(y.worth - x.worth) })
		for _, e := range series[:min(len(series), worstKept)] {
			if !slices.Contains(kept, e) {
				t.Fatalf("%v, one of the worst, is missing", e)
			}
		}
	})
}
