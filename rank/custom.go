package rank

import (
	"fmt"
	"iter"
	"slices"
)

// customKind: the edges of a file, see parseCustom for the two formats.
// Initiators and targets are what the file says. Plans are in the order of the
// file, rotated by the number of the initiator among those of the file.
//
// Ideal total, with the proportions of the file kept: for a matrix all its
// bytes ÷ the biggest row or column sum; for an edge list the same with every
// initiator's weights scaled to 1.
var customKind = kind{
	name:    "custom",
	summary: "edges from a file: lines \"src: dst[*weight], …\" or a matrix of bytes",
	takes:   takesFile,
	build:   newCustom,
	bound:   customBound,
}

// maxCustomEdges bounds the memory that a few short lines may ask for; a full
// matrix of 2048 ranks fits.
const maxCustomEdges = 1 << 22

type custom struct {
	ranks  int
	matrix bool
	rotate bool
	first  []int     // edges of r: first[r] … first[r+1]-1, in file order
	to     []Rank    // by edge
	weight []float64 // by edge, sums to 1 per initiator
	bytes  []float64 // by edge, as in the file
	number []int32   // by rank: its number among the initiators
	inAt   []int     // edges that reach t: in[inAt[t]] … in[inAt[t+1]-1], by initiator
	in     []int32   // edge numbers
	from   []Rank    // by edge
}

func newCustom(v View, p Params, sel selected) (Topology, error) {
	if len(p.Custom) == 0 {
		return nil, Errorf(KindUsage, "topology custom needs a file that is not empty: give one with edges or a matrix")
	}
	file, err := parseCustom(p.File, p.Custom, v)
	if err != nil {
		return nil, err
	}
	w := v.Size()
	c := &custom{
		ranks: w, matrix: file.matrix, rotate: !p.NoRotate,
		first: make([]int, w+1), number: make([]int32, w), inAt: make([]int, w+1),
	}
	initiators := int32(0)
	for r := range w {
		sum := 0.0
		for _, e := range file.rows[r] {
			if sel.host != nil && sel.host[r] == sel.host[e.to] {
				continue
			}
			c.to = append(c.to, e.to)
			c.from = append(c.from, Rank(r))
			c.bytes = append(c.bytes, e.weight)
			sum += e.weight
			c.inAt[e.to+1]++
		}
		for _, b := range c.bytes[c.first[r]:] {
			c.weight = append(c.weight, b/sum)
		}
		c.first[r+1] = len(c.to)
		c.number[r] = initiators
		if len(c.to) > c.first[r] {
			initiators++
		}
	}
	c.indexSources()
	return c, nil
}

// indexSources lists edges by target; edges come in ascending order of their
// initiator, so the lists are ascending too.
// weighted says that an initiator has edges of different weights.
func (c *custom) weighted() bool {
	for r := range c.ranks {
		own := c.bytes[c.first[r]:c.first[r+1]]
		for _, b := range own {
			if b != own[0] {
				return true
			}
		}
	}
	return false
}

func (c *custom) indexSources() {
	for t := range c.ranks {
		c.inAt[t+1] += c.inAt[t]
	}
	next := slices.Clone(c.inAt)
	c.in = make([]int32, len(c.to))
	for e, t := range c.to {
		c.in[next[t]] = int32(e)
		next[t]++
	}
}

func (c *custom) size() int        { return c.ranks }
func (c *custom) Name() string     { return "custom" }
func (c *custom) Stages() int      { return 1 }
func (c *custom) Count() int64     { return int64(len(c.to)) }
func (c *custom) Out(r Rank) int64 { return int64(c.first[r+1] - c.first[r]) }
func (c *custom) In(t Rank) int64  { return int64(c.inAt[t+1] - c.inAt[t]) }

func (c *custom) edge(e int) Edge {
	return Edge{From: c.from[e], To: c.to[e], Weight: c.weight[e]}
}

func (c *custom) Edges(r Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		first, n := c.first[r], c.first[r+1]-c.first[r]
		for i := range n {
			k := i
			if c.rotate {
				k = (i + int(c.number[r])) % n
			}
			if !yield(c.edge(first + k)) {
				return
			}
		}
	}
}

func (c *custom) Sources(t Rank) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		for _, e := range c.in[c.inAt[t]:c.inAt[t+1]] {
			if !yield(c.edge(int(e))) {
				return
			}
		}
	}
}

func customBound(t Topology) (float64, string) {
	c := t.(*custom)
	share, what := c.weight, "shares (1 per initiator)"
	if c.matrix {
		share, what = c.bytes, "bytes of the matrix"
	}
	rows, columns := make([]float64, c.ranks), make([]float64, c.ranks)
	total := 0.0
	for e, s := range share {
		rows[c.from[e]] += s
		columns[c.to[e]] += s
		total += s
	}
	most := max(slices.Max(rows), slices.Max(columns))
	if most == 0 {
		return 0, "no edges"
	}
	return total / most, fmt.Sprintf("%s: %g in all ÷ %g in the biggest row or column × line rate", what, total, most)
}
