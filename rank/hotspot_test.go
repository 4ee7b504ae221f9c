package rank

import (
	"slices"
	"testing"
)

func TestHotspot(t *testing.T) {
	for _, params := range []func(w int) (Params, bool){
		always(Params{Name: "hotspot"}),
		func(w int) (Params, bool) { return Params{Name: "hotspot", HotShare: 0.99}, w > 2 },
	} {
		checkTopology(t, params, slowHotspot)
	}
}

// TestHotspotSets checks hot sets that the common variants do not reach.
func TestHotspotSets(t *testing.T) {
	for _, p := range []Params{
		{Hot: "0-1"}, {Hot: "1,3,7", HotShare: 0.5}, {Hot: "*"}, {Hot: "n1"}, {Hot: "5", Targets: "4-7"}, {Hot: "0", Initiators: "0"},
	} {
		p.Name = "hotspot"
		for _, perHost := range []int{1, 2, 4, 8} {
			if perHost > 4 && p.Hot == "n1" {
				continue
			}
			for _, p.ExcludeSameHost = range []bool{false, true} {
				checkOne(t, p.Hot, NewLayout(8, perHost), p, slowHotspot)
			}
		}
	}
}

func slowHotspot(j slowJob, r Rank) ([]slowEdge, int) {
	edges, number := slowCross(j, r)
	hot := either(j.to, j.all())[:1]
	if j.p.Hot != "" {
		hot, _ = ParseSelection(j.p.Hot, j.View)
	}
	share := 0.8
	if j.p.HotShare > 0 {
		share = j.p.HotShare
	}
	edges = slices.DeleteFunc(edges, func(e slowEdge) bool { return !j.keeps(r, e.to) })
	hots := 0
	for _, e := range edges {
		if slices.Contains(hot, e.to) {
			hots++
		}
	}
	for i, e := range edges {
		switch {
		case hots == 0 || hots == len(edges):
			edges[i].weight = 1
		case slices.Contains(hot, e.to):
			edges[i].weight = share / float64(hots)
		default:
			edges[i].weight = (1 - share) / float64(len(edges)-hots)
		}
	}
	return edges, number
}
