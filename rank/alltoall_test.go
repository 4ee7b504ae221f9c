package rank

import (
	"slices"
	"testing"
)

func TestAllToAll(t *testing.T) {
	checkTopology(t, always(Params{Name: "all_to_all"}), slowCross)
}

// slowCross: every selected initiator to every selected target.
func slowCross(j slowJob, r Rank) ([]slowEdge, int) {
	number := slices.Index(either(j.from, j.all()), r)
	if number < 0 {
		return nil, 0
	}
	return to(either(j.to, j.all())...), number
}

// TestAllToAllRotation: initiator r begins with r+1, so that nobody is hit by
// all at once.
func TestAllToAllRotation(t *testing.T) {
	top := mustTopology(t, NewLayout(5, 1), Params{Name: "all_to_all"})
	for r := range Rank(5) {
		for e := range top.Edges(r) {
			if want := (r + 1) % 5; e.To != want {
				t.Errorf("rank %d begins with %d, want %d", r, e.To, want)
			}
			break
		}
	}
}
