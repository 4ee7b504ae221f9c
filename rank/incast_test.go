package rank

import (
	"slices"
	"testing"
)

func TestIncast(t *testing.T) {
	checkTopology(t, always(Params{Name: "incast"}), func(j slowJob, r Rank) ([]slowEdge, int) {
		sinks := either(j.to, []Rank{0})
		others := slices.DeleteFunc(j.all(), func(r Rank) bool { return slices.Contains(sinks, r) })
		number := slices.Index(either(j.from, others), r)
		if number < 0 {
			return nil, 0
		}
		return to(sinks[number%len(sinks)]), 0
	})
}
