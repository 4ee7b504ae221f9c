package collect

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"rankstorm/rank"
)

// rowSums are the means of full connect of the initiators over all their edges.
func rowSums(d *Document) (out []rankValue) {
	p := d.phase("connect")
	if p == nil {
		return nil
	}
	for _, s := range p.Steps {
		if s.Step != "full connect" || s.Side != SideInitiator {
			continue
		}
		for _, r := range s.PerRank {
			if r.Count > 0 && r.SumNS != nil {
				out = append(out, rankValue{r.Rank, *r.SumNS / r.Count})
			}
		}
	}
	return out
}

// columnSums are those of the targets.
func columnSums(d *Document) (out []rankValue) {
	for _, t := range d.TargetSums {
		if t.Established > 0 {
			out = append(out, rankValue{t.Rank, t.SumNS / t.Established})
		}
	}
	return out
}

// slowSums are the ranks that stand out by the means of all their edges as initiators,
// or as targets, which the document has of every rank however many edges it leaves
// out. Such sums compare only where all ranks connect to all others, and only among
// ranks with equally many neighbours on their host, whose connections are quicker; ok is
// false if the topology is another, or nothing is known.
func (m *connectMatrix) slowSums(d *Document, sums []rankValue, isRow bool) (out []slowLine, ok bool) {
	if d.Size < slowLines || !allToAll(d.Edges, d.Size) {
		return nil, false
	}
	onHost := map[string]int64{}
	for _, h := range d.Hosts {
		onHost[h.Host] = h.Ranks
	}
	groups := map[int64][]rankValue{} // by ranks on the host
	for _, v := range sums {
		n := onHost[m.hosts[v.rank]]
		groups[n] = append(groups[n], v)
	}
	if len(groups) == 0 {
		return nil, false
	}
	for _, group := range groups {
		if len(group) < slowLines {
			continue
		}
		logs, ns := make([]float64, len(group)), make([]int64, len(group))
		for i, v := range group {
			logs[i], ns[i] = math.Log(float64(max(1, v.ns))), v.ns
		}
		mid, mad := robust(logs, slowMAD)
		slices.Sort(ns)
		typical := medianOf(ns)
		for i, v := range group {
			excess, times := v.ns-typical, float64(v.ns)/float64(max(1, typical))
			if times < slowTimes || 0.6745*(logs[i]-mid)/mad < stragglerZ || excess < m.floorNS(v.rank) || m.told(excess, v.rank) {
				continue
			}
			from, to := v.rank, rank.None
			if !isRow {
				from, to = to, from
			}
			out = append(out, slowLine{
				from: from, to: to, valueNS: v.ns, typicalNS: typical, times: times,
				edges: d.Size - 1, of: "all its %s edges", compared: len(group),
			})
		}
	}
	// Groups come in no order.
	slices.SortFunc(out, func(x, y slowLine) int { return cmp.Or(int(x.from)-int(y.from), int(x.to)-int(y.to)) })
	return out, true
}

// basis says which edges a line's mean is over.
func (l slowLine) basis() string {
	if l.of == "" {
		return plural(l.edges, "edge", "edges")
	}
	return fmt.Sprintf(l.of, FormatCount(l.edges))
}

func allToAll(edges, size int64) bool { return edges == size*(size-1) }

// SumsTargets says whether summaries of a job with so many edges and ranks carry
// sums by target: those that compare, and that the edges kept do not give.
func SumsTargets(edges, size int64) bool {
	return edges > EdgesFirst+EdgesSampled && allToAll(edges, size)
}

// SumTargets adds up edges by target.
func SumTargets(edges []EdgeSum) []TargetSum {
	sums := map[rank.Rank]TargetSum{}
	for _, e := range edges {
		t := sums[e.To]
		t.Established += e.Established
		t.SumNS += e.SumNS
		sums[e.To] = t
	}
	out := make([]TargetSum, 0, len(sums))
	for _, r := range slices.Sorted(maps.Keys(sums)) {
		t := sums[r]
		t.Rank = r
		out = append(out, t)
	}
	return out
}

// mergeTargets adds two ascending lists target by target.
func mergeTargets(a, b []TargetSum) ([]TargetSum, error) {
	if len(a)+len(b) == 0 {
		return nil, nil
	}
	out := make([]TargetSum, 0, max(len(a), len(b)))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Rank < b[0].Rank:
			out, a = append(out, a[0]), a[1:]
		case len(a) == 0 || b[0].Rank < a[0].Rank:
			out, b = append(out, b[0]), b[1:]
		default:
			t, more := a[0], b[0]
			var ok, okSum bool
			t.Established, ok = addCount(t.Established, more.Established)
			t.SumNS, okSum = addCount(t.SumNS, more.SumNS)
			if !ok || !okSum {
				return nil, fmt.Errorf("the sum of target %d overflows", t.Rank)
			}
			out, a, b = append(out, t), a[1:], b[1:]
		}
	}
	return out, nil
}
