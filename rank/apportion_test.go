package rank

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLargestRemainder(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		n       int
		want    []int
	}{
		{[]float64{1, 1, 1}, 3, []int{1, 1, 1}},
		{[]float64{1, 1, 1}, 2, []int{1, 1, 0}},
		{[]float64{1, 1, 1}, 4, []int{2, 1, 1}},
		{[]float64{0.15, 0.35, 0.5}, 10, []int{2, 3, 5}}, // 1.5 and 3.5 tie: list order
		{[]float64{0.1, 0.2, 0.7}, 10, []int{1, 2, 7}},
		{[]float64{8, 1, 1}, 4, []int{3, 1, 0}},
		{[]float64{1, 0, 3}, 4, []int{1, 0, 3}},
		{[]float64{1, math.NaN(), -2, math.Inf(1)}, 5, []int{5, 0, 0, 0}},
		{[]float64{0, 0}, 5, []int{0, 0}},
		{[]float64{1, 2}, 0, []int{0, 0}},
		{[]float64{1, 2}, -1, []int{0, 0}},
		{nil, 3, []int{}},
	} {
		if got := LargestRemainder(c.weights, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%v, %d: %v, want %v", c.weights, c.n, got, c.want)
		}
	}
}

// TestLargestRemainderKeepsQuota: parts sum to n and each is its share rounded
// down or up.
func TestLargestRemainderKeepsQuota(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0.001, 1000), 1, 20).Draw(rt, "weights")
		n := rapid.IntRange(0, 10000).Draw(rt, "n")
		parts := LargestRemainder(weights, n)
		sum, total := 0, 0.0
		for _, w := range weights {
			total += w
		}
		for i, p := range parts {
			sum += p
			if share := weights[i] / total * float64(n); math.Abs(float64(p)-share) > 1+1e-6 {
				rt.Fatalf("part %d is %d of a share of %g", i, p, share)
			}
		}
		if sum != n {
			rt.Fatalf("sum %d, want %d", sum, n)
		}
	})
}

func TestLargestRemainderHuge(t *testing.T) {
	for _, weights := range [][]float64{{1, 1, 1}, {1, 1e-300}, {1e300, 1e300}, {0.1, 0.2}} {
		sum := 0
		for _, p := range LargestRemainder(weights, math.MaxInt) {
			if p < 0 {
				t.Errorf("%v: part %d", weights, p)
			}
			sum += p
		}
		if sum != math.MaxInt {
			t.Errorf("%v: sum %d", weights, sum)
		}
	}
}

func picks(s *SWRR, n int) []int {
	got := make([]int, n)
	for i := range got {
		got[i] = s.Next()
	}
	return got
}

func TestSWRR(t *testing.T) {
	for _, c := range []struct {
		weights []float64
		offset  int
		want    []int
	}{
		{[]float64{5, 1, 1}, 0, []int{0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0}}, // as in nginx
		{[]float64{1, 1, 1}, 0, []int{0, 1, 2, 0, 1}},
		{[]float64{1, 1, 1}, 4, []int{1, 2, 0, 1, 2}},
		{[]float64{1, 1, 1}, -1, []int{2, 0, 1}},
		{[]float64{2, 1, 1}, 2, []int{0, 2, 1, 0, 0, 2, 1, 0}},
		{[]float64{0, 1, math.NaN(), 1}, 0, []int{1, 3, 1, 3}},
		{[]float64{0.8, 0.1, 0.1}, 0, []int{0, 0, 0, 1, 0, 0, 2, 0, 0, 0}},
		{[]float64{0}, 0, []int{-1, -1}},
		{nil, 3, []int{-1}},
	} {
		if got := picks(NewSWRR(c.weights, c.offset), len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%v from %d: %v, want %v", c.weights, c.offset, got, c.want)
		}
	}
}

// TestSWRRShares: over a whole period of integer weights every entry is picked
// exactly its weight, again and again.
func TestSWRRShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		whole := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 8).Draw(rt, "weights")
		weights := make([]float64, len(whole))
		sum := 0
		for i, w := range whole {
			sum += w
			weights[i] = float64(w) * 0.1 // not exact in binary
		}
		s := NewSWRR(weights, rapid.IntRange(0, 20).Draw(rt, "offset"))
		for range 3 {
			counts := make([]int, len(whole))
			for _, p := range picks(s, sum) {
				counts[p]++
			}
			if !slices.Equal(counts, whole) {
				rt.Fatalf("picked %v of %v", counts, whole)
			}
		}
	})
}

func TestSWRRDoesNotAllocate(t *testing.T) {
	s := NewSWRR([]float64{3, 2, 1}, 0)
	if n := testing.AllocsPerRun(100, func() { s.Next() }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
