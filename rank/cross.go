package rank

import "iter"

// cross is the full bipartite core of several topologies: every initiator
// reaches every target, less itself and, if asked, less the ranks of its host.
//
// Plan order: the targets ascending, less the dropped, and then initiator
// number a (its position among the initiators) starts at its entry a modulo the
// length, so that not everybody hits the same target first.
//
// Out(i) = |T| − dropped(i), In(t) = |I| − dropped(t),
// Count = |I|·|T| − |I∩T|, or − Σ over hosts |I on h|·|T on h|.
type cross struct {
	name     string
	ranks    int
	from, to *set
	rotate   bool
	host     []int32   // nil: only self edges are dropped
	toHost   [][]int32 // by host number: ascending positions in to
	fromHost []int32   // by host number: how many initiators
	count    int64
	weigh    func(from, to Rank) float64 // nil: all edges of an initiator weigh the same
}

func newCross(name string, v View, p Params, sel selected, from, to *set) *cross {
	c := &cross{name: name, ranks: v.Size(), from: from, to: to, rotate: !p.NoRotate, host: sel.host}
	c.count = int64(from.n) * int64(to.n)
	if c.host == nil {
		c.count -= from.common(to)
		return c
	}
	c.toHost = byHost(to, c.host)
	c.fromHost = make([]int32, len(c.toHost))
	for i := range from.n {
		if h := c.host[from.at(i)]; int(h) < len(c.fromHost) {
			c.fromHost[h]++
		}
	}
	for h, targets := range c.toHost {
		c.count -= int64(c.fromHost[h]) * int64(len(targets))
	}
	return c
}

// byHost lists the positions in s of the ranks of each host, by host number.
func byHost(s *set, host []int32) [][]int32 {
	hosts := int32(0)
	for _, h := range host {
		hosts = max(hosts, h+1)
	}
	lists := make([][]int32, hosts)
	for i := range s.n {
		h := host[s.at(i)]
		lists[h] = append(lists[h], int32(i))
	}
	return lists
}

func (c *cross) size() int    { return c.ranks }
func (c *cross) Name() string { return c.name }
func (c *cross) Stages() int  { return 1 }
func (c *cross) Count() int64 { return c.count }

// drops tells whether the pair makes no edge.
func (c *cross) drops(a, b Rank) bool {
	return a == b || c.host != nil && c.host[a] == c.host[b]
}

func (c *cross) Out(r Rank) int64 {
	if !c.from.has(r) {
		return 0
	}
	return c.degree(r)
}

// degree is Out of a rank known to initiate.
func (c *cross) degree(r Rank) int64 {
	if c.host != nil {
		return int64(c.to.n - len(c.toHost[c.host[r]]))
	}
	if c.to.has(r) {
		return int64(c.to.n - 1)
	}
	return int64(c.to.n)
}

func (c *cross) In(t Rank) int64 {
	if !c.to.has(t) {
		return 0
	}
	n := int64(c.from.n)
	if c.host != nil {
		return n - int64(c.fromHost[c.host[t]])
	}
	if c.from.has(t) {
		n--
	}
	return n
}

// start is the position in to of entry k of the plan of r before rotation.
func (c *cross) start(r Rank, k int) int {
	if c.host == nil {
		if self, ok := c.to.find(r); ok && self <= k {
			k++
		}
		return k
	}
	for _, dropped := range c.toHost[c.host[r]] {
		if int(dropped) > k {
			break
		}
		k++
	}
	return k
}

func (c *cross) weight(from, to Rank, degree int64) float64 {
	if c.weigh != nil {
		return c.weigh(from, to)
	}
	return 1 / float64(degree)
}

func (c *cross) Edges(r Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		a, ok := c.from.find(r)
		if !ok {
			return
		}
		n := c.degree(r)
		if n == 0 {
			return
		}
		at := 0
		if c.rotate {
			at = c.start(r, int(int64(a)%n))
		}
		for left := n; left > 0; at++ {
			if at >= c.to.n {
				at = 0
			}
			to := c.to.at(at)
			if c.drops(r, to) {
				continue
			}
			if !yield(Edge{From: r, To: to, Weight: c.weight(r, to, n)}) {
				return
			}
			left--
		}
	}
}

func (c *cross) Sources(t Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		if !c.to.has(t) {
			return
		}
		for i := range c.from.n {
			r := c.from.at(i)
			if c.drops(r, t) {
				continue
			}
			if !yield(Edge{From: r, To: t, Weight: c.weight(r, t, c.degree(r))}) {
				return
			}
		}
	}
}
