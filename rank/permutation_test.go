package rank

import (
	"slices"
	"testing"
)

func TestPermutation(t *testing.T) {
	for seed := range uint64(4) {
		drawn := map[int][]Rank{}
		for w := 2; w <= 17; w++ {
			d := newDerangement(w, seed)
			drawn[w] = d.to
			sorted := slices.Sorted(slices.Values(d.to))
			if !slices.Equal(sorted, ranksUpTo(w)) {
				t.Fatalf("seed %d, %d ranks: %v is no permutation", seed, w, d.to)
			}
		}
		checkTopology(t, always(Params{Name: "permutation", Seed: seed}), func(j slowJob, r Rank) ([]slowEdge, int) {
			if j.w == 1 {
				return nil, 0
			}
			next := drawn[j.w][r]
			if !j.selected(r, next) {
				return nil, 0
			}
			return to(next), 0
		})
	}
}

// TestPermutationSeeds: all nine derangements of four are drawn, about equally
// often, and a seed always draws the same.
func TestPermutationSeeds(t *testing.T) {
	seen := map[[4]Rank]int{}
	for seed := range uint64(9000) {
		to := newDerangement(4, seed).to
		if !slices.Equal(to, newDerangement(4, seed).to) {
			t.Fatalf("seed %d draws two permutations", seed)
		}
		seen[[4]Rank(to)]++
	}
	if len(seen) != 9 {
		t.Errorf("%d derangements of 4, want 9", len(seen))
	}
	for p, n := range seen {
		if n < 800 || n > 1200 { // six deviations of 1000
			t.Errorf("%v drawn %d times of 9000, want about 1000", p, n)
		}
	}
}
