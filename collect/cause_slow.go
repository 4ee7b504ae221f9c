package collect

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"rankstorm/rank"
)

// Thresholds of slow ranks and edges; all must be passed.
const (
	slowTimes     = 3.0  // × what is typical of such a line of the matrix
	slowEdgeTimes = 5.0  // × what its row and column let expect: there are many edges
	slowEdgeZ     = 6.0  // robust z of an edge; of a line stragglerZ
	slowEdgeConns = 3    // connections that an edge must have: of one nothing follows
	slowLines     = 4    // rows or columns that are compared, at least
	slowMAD       = 0.05 // a smaller deviation of logarithms is finer than they mean anything
)

// slowLine is a rank that is slow in a role, an edge if both are set.
type slowLine struct {
	from, to  rank.Rank // rank.None: any
	valueNS   int64     // mean full connect
	typicalNS int64
	times     float64
	edges     int64  // that the mean is over
	of        string // format of which edges these are, if not plainly its edges
	compared  int
}

// connectMatrix are the edges of the document with their figures.
type connectMatrix struct {
	cells    []cell
	edges    []EdgeDoc // of the cells
	rows     []rank.Rank
	cols     []rank.Rank
	hosts    map[rank.Rank]string
	crowds   map[string]int64
	busyNS   map[rank.Rank]int64 // larger of late_ns and gap_ns in connect
	starved  []starvedHost
	overflow map[rank.Rank]bool // its listener dropped requests
	cut      bool               // the document does not list all edges
}

// slowPaths finds what made full connect slow, by median polish over the edges
// listed, and for ranks by the sums of all edges if some are not listed: targets (columns), initiators (rows), ranks that are both, hosts all of
// whose ranks are, and single edges. What a straggler, a starved host or a full
// listen queue explains is left out.
func slowPaths(d *Document, starved []starvedHost) []Cause {
	m := newMatrix(d, starved)
	if len(m.cells) < slowLines {
		return nil
	}
	p := medianPolish(m.cells, len(m.rows), len(m.cols))
	initiators, targets := m.slowLines(p.rows, true), m.slowLines(p.cols, false)
	if m.cut {
		// Lines beyond the list are known only as sums, so all are judged by theirs if these are alike.
		if all, ok := m.slowSums(d, rowSums(d), true); ok {
			initiators = all
		}
		if all, ok := m.slowSums(d, columnSums(d), false); ok {
			targets = all
		}
	}
	lines := slices.Concat(initiators, targets)
	slow := map[[2]rank.Rank]bool{}
	for _, l := range lines {
		slow[[2]rank.Rank{l.from, l.to}] = true
	}
	out := m.hostCauses(&lines, d)
	out = append(out, m.rankCauses(lines, d)...)
	return append(out, m.edgeCauses(m.slowEdges(p, slow), d)...)
}

func newMatrix(d *Document, starved []starvedHost) *connectMatrix {
	m := &connectMatrix{
		hosts: d.hostNames(), crowds: d.crowds(), busyNS: map[rank.Rank]int64{}, starved: starved, overflow: d.overflowed(),
		cut: d.EdgesMore > 0,
	}
	if p := d.phase("connect"); p != nil {
		for _, r := range p.Ranks {
			for _, ns := range []*int64{r.LateNS, r.GapNS} {
				if ns != nil {
					m.busyNS[r.Rank] = max(m.busyNS[r.Rank], *ns)
				}
			}
		}
	}
	rows, cols := map[rank.Rank]int{}, map[rank.Rank]int{}
	index := func(of map[rank.Rank]int, list *[]rank.Rank, r rank.Rank) int {
		i, ok := of[r]
		if !ok {
			i = len(*list)
			of[r] = i
			*list = append(*list, r)
		}
		return i
	}
	classes := map[bool][]float64{}
	list := d.EdgeList
	if d.EdgesMore > 0 {
		// What follows holds the slowest of the rest: its ranks would look slow.
		list = list[:min(EdgesFirst, len(list))]
	}
	for _, e := range list {
		if e.Established == 0 || e.SumNS == nil || e.MaxNS == nil {
			continue
		}
		c := cell{row: index(rows, &m.rows, e.From), col: index(cols, &m.cols, e.To), value: math.Log(float64(max(1, usual(e))))}
		m.cells = append(m.cells, c)
		m.edges = append(m.edges, e)
		same := m.sameHost(e)
		classes[same] = append(classes[same], c.value)
	}
	// Connections within a host are quicker: that is no property of its ranks.
	mid := map[bool]float64{}
	for same, values := range classes {
		mid[same], _ = robust(values, 0)
	}
	for i, e := range m.edges {
		m.cells[i].value -= mid[m.sameHost(e)]
	}
	return m
}

// usual is the mean full connect of an edge, ns; of three connections or more
// the slowest is left out, so that one hiccup is no property of the edge.
func usual(e EdgeDoc) int64 {
	if e.Established < slowEdgeConns {
		return *e.SumNS / e.Established
	}
	return (*e.SumNS - *e.MaxNS) / (e.Established - 1)
}

func (m *connectMatrix) sameHost(e EdgeDoc) bool { return m.hosts[e.From] == m.hosts[e.To] }

// floorNS is how much longer than usual it must take between these ranks.
func (m *connectMatrix) floorNS(ranks ...rank.Rank) int64 {
	crowd := int64(1)
	for _, r := range ranks {
		crowd = max(crowd, m.crowds[m.hosts[r]])
	}
	return stragglerFloorNS * crowd
}

// told says that half of the excess or more has a line already: the rank began
// late or stood still, its host starved, its listener dropped requests.
func (m *connectMatrix) told(excess int64, ranks ...rank.Rank) bool {
	return slices.ContainsFunc(ranks, func(r rank.Rank) bool {
		return 2*m.busyNS[r] >= excess || m.overflow[r] || explainedBy(m.starved, m.hosts[r], excess/2)
	})
}

// lineMeans are Σ full connect ÷ Σ established over the cells of every line, and
// how many cells these are.
func (m *connectMatrix) lineMeans(n int, of func(cell) int) (means, edges []int64) {
	sums, counts := make([]int64, n), make([]int64, n)
	edges = make([]int64, n)
	for i, c := range m.cells {
		k := of(c)
		sums[k] += *m.edges[i].SumNS
		counts[k] += m.edges[i].Established
		edges[k]++
	}
	for k := range sums {
		sums[k] /= max(1, counts[k])
	}
	return sums, edges
}

// slowLines are the outliers among the rows or columns.
func (m *connectMatrix) slowLines(effects []float64, isRow bool) []slowLine {
	ranks, across, of := m.rows, m.cols, func(c cell) int { return c.row }
	if !isRow {
		ranks, across, of = m.cols, m.rows, func(c cell) int { return c.col }
	}
	if len(across) == 1 && m.overflow[across[0]] {
		return nil // a queue that overflows is unfair to some
	}
	means, edges := m.lineMeans(len(ranks), of)
	var lines []int
	for k := range ranks {
		if edges[k] >= polishCells || len(across) == 1 {
			lines = append(lines, k)
		}
	}
	if len(lines) < slowLines {
		return nil
	}
	values := make([]float64, len(lines))
	for i, k := range lines {
		values[i] = effects[k]
	}
	mid, mad := robust(values, slowMAD)
	typical := int64(median(lines, func(k int) float64 { return float64(means[k]) }))
	var out []slowLine
	for _, k := range lines {
		l := slowLine{
			from: rank.None, to: rank.None, valueNS: means[k], typicalNS: typical, edges: edges[k], compared: len(lines),
			times: float64(means[k]) / float64(max(1, typical)),
		}
		if isRow {
			l.from = ranks[k]
		} else {
			l.to = ranks[k]
		}
		if m.cut {
			l.of = "%s of the listed edges"
		}
		excess := means[k] - typical
		effect := effects[k] - mid
		if effect < math.Log(slowTimes) || 0.6745*effect/mad < stragglerZ || l.times < slowTimes ||
			excess < m.floorNS(ranks[k]) || m.told(excess, ranks[k]) {
			continue
		}
		if len(across) == 1 && m.told(excess, across[0]) {
			continue
		}
		out = append(out, l)
	}
	return out
}

// slowEdges are the cells that stick out of their row and column.
func (m *connectMatrix) slowEdges(p polished, slow map[[2]rank.Rank]bool) []slowLine {
	mid, mad := robust(p.residuals, slowMAD)
	var out []slowLine
	for i, e := range m.edges {
		effect := p.residuals[i] - mid
		if e.Established < slowEdgeConns || effect < math.Log(slowEdgeTimes) || 0.6745*effect/mad < slowEdgeZ ||
			slow[[2]rank.Rank{e.From, rank.None}] || slow[[2]rank.Rank{rank.None, e.To}] {
			continue
		}
		value := usual(e)
		typical := int64(float64(value) / math.Exp(effect))
		if excess := value - typical; excess < m.floorNS(e.From, e.To) || m.told(excess, e.From, e.To) {
			continue
		}
		out = append(out, slowLine{
			from: e.From, to: e.To, valueNS: value, typicalNS: typical, edges: 1, compared: len(m.edges), times: math.Exp(effect),
		})
	}
	// Of a rank with two edges that are both slow it is not known whether it is
	// the rank: such lines are too short to have an effect of their own.
	slowFrom, slowTo := map[rank.Rank]int{}, map[rank.Rank]int{}
	for _, l := range out {
		slowFrom[l.from]++
		slowTo[l.to]++
	}
	allFrom, allTo := map[rank.Rank]int{}, map[rank.Rank]int{}
	for _, e := range m.edges {
		allFrom[e.From]++
		allTo[e.To]++
	}
	return slices.DeleteFunc(out, func(l slowLine) bool {
		return slowFrom[l.from] > 1 && allFrom[l.from] < polishCells || slowTo[l.to] > 1 && allTo[l.to] < polishCells
	})
}

// role of a slow line, in words and as a kind.
func (l slowLine) role() (text, kind string, r rank.Rank) {
	if l.from != rank.None {
		return "initiator", "slow_initiator", l.from
	}
	return "target", "slow_target", l.to
}

// rankCauses tells of ranks that are slow in one role or in both.
func (m *connectMatrix) rankCauses(lines []slowLine, d *Document) []Cause {
	both := map[rank.Rank]int{}
	for _, l := range lines {
		_, _, r := l.role()
		both[r]++
	}
	slices.SortStableFunc(lines, func(x, y slowLine) int { return cmp.Compare(y.times, x.times) })
	told := map[rank.Rank]bool{}
	var out []Cause
	for _, l := range lines {
		role, kind, r := l.role()
		if told[r] {
			continue
		}
		told[r] = true
		c := Cause{Kind: kind, Fix: "look at the load of " + m.hosts[r] + " and at its network path"}
		also := ""
		if both[r] == 2 {
			c.Kind, also = "slow_rank", ", and it is slow in the other role too"
		}
		c.at(d, r, m.hosts[r])
		c.ValueNS = &l.valueNS
		c.Evidence = fmt.Sprintf("connect: rank %d (%s) as %s is %.1f times slower: full connect takes %s on average over %s, median of %d %ss %s%s",
			r, m.hosts[r], role, l.times, FormatDuration(l.valueNS), l.basis(), l.compared, role, FormatDuration(l.typicalNS), also)
		out = append(out, c)
	}
	return shorten(out, "rank like it", "ranks like it")
}

// at sets rank, process and host of a cause in the connect phase.
func (c *Cause) at(d *Document, r rank.Rank, host string) {
	proc := procOf(d, r)
	c.Rank, c.Proc, c.Host, c.Phase = &r, &proc, host, "connect"
}

// hostCauses tells of hosts of two ranks or more that are all slow, and takes
// their lines off the list.
func (m *connectMatrix) hostCauses(lines *[]slowLine, d *Document) []Cause {
	slow := map[string]map[rank.Rank]slowLine{}
	for _, l := range *lines {
		_, _, r := l.role()
		h := m.hosts[r]
		if slow[h] == nil {
			slow[h] = map[rank.Rank]slowLine{}
		}
		if old, ok := slow[h][r]; !ok || l.times > old.times {
			slow[h][r] = l
		}
	}
	var out []Cause
	for _, h := range d.Hosts {
		ranks := slow[h.Host]
		if int64(len(ranks)) < max(2, h.Ranks) {
			continue
		}
		worst := slowLine{}
		for _, r := range slices.Sorted(maps.Keys(ranks)) {
			l := ranks[r]
			if l.times > worst.times {
				worst = l
			}
		}
		role, _, r := worst.role()
		n := int64(len(ranks))
		c := Cause{Kind: "slow_host", Count: &n, ValueNS: &worst.valueNS, Fix: "look at the load of " + h.Host + " and at its network path"}
		c.at(d, r, h.Host)
		c.Proc = nil
		c.Evidence = fmt.Sprintf("connect: all %d ranks of host %s are slow, most of all rank %d as %s: %.1f times slower, full connect takes %s on average over %s, median of %d %ss %s",
			n, h.Host, r, role, worst.times, FormatDuration(worst.valueNS), worst.basis(), worst.compared, role, FormatDuration(worst.typicalNS))
		out = append(out, c)
		*lines = slices.DeleteFunc(*lines, func(l slowLine) bool { _, _, r := l.role(); return m.hosts[r] == h.Host })
	}
	return shorten(out, "host like it", "hosts like it")
}

// edgeCauses tells of single edges.
func (m *connectMatrix) edgeCauses(list []slowLine, d *Document) []Cause {
	slices.SortStableFunc(list, func(x, y slowLine) int { return cmp.Compare(y.times, x.times) })
	var out []Cause
	for _, l := range list {
		c := Cause{Kind: "slow_edge", ValueNS: &l.valueNS, Fix: "look at the path between the two hosts: a link, a switch port, a firewall"}
		c.at(d, l.from, m.hosts[l.from])
		c.Evidence = fmt.Sprintf("connect: %d (%s) → %d (%s) is %.1f times slower than its initiator and target are elsewhere: full connect takes %s on average but for its slowest, %s expected",
			l.from, m.hosts[l.from], l.to, m.hosts[l.to], l.times, FormatDuration(l.valueNS), FormatDuration(l.typicalNS))
		out = append(out, c)
	}
	return shorten(out, "edge like it", "edges like it")
}
