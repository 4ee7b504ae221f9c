package collect

import (
	"fmt"
	"math"
	"slices"

	"rankstorm/rank"
)

// slowRows are the initiators that stand out by their own sums of full connect,
// which the document has of every rank however many edges it leaves out. Such sums
// compare only where all ranks connect to all others, and only among ranks with
// equally many neighbours on their host, whose connections are quicker; ok is
// false if the topology is another.
func (m *connectMatrix) slowRows(d *Document) (out []slowLine, ok bool) {
	if d.Size < slowLines || d.Edges != d.Size*(d.Size-1) {
		return nil, false
	}
	onHost := map[string]int64{}
	for _, h := range d.Hosts {
		onHost[h.Host] = h.Ranks
	}
	groups := map[int64][]rankValue{} // by ranks on the host
	if p := d.phase("connect"); p != nil {
		for _, s := range p.Steps {
			if s.Step != "full connect" || s.Side != SideInitiator {
				continue
			}
			for _, r := range s.PerRank {
				if r.Count > 0 && r.SumNS != nil {
					n := onHost[m.hosts[r.Rank]]
					groups[n] = append(groups[n], rankValue{r.Rank, *r.SumNS / r.Count})
				}
			}
		}
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
			out = append(out, slowLine{
				from: v.rank, to: rank.None, valueNS: v.ns, typicalNS: typical, times: times,
				edges: d.Size - 1, of: "all its %s edges", compared: len(group),
			})
		}
	}
	// Groups come in no order.
	slices.SortFunc(out, func(x, y slowLine) int { return int(x.from) - int(y.from) })
	return out, true
}

// basis says which edges a line's mean is over.
func (l slowLine) basis() string {
	if l.of == "" {
		return plural(l.edges, "edge", "edges")
	}
	return fmt.Sprintf(l.of, FormatCount(l.edges))
}
