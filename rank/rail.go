package rank

import (
	"iter"
	"slices"
)

// railKind: every ordered pair of ranks with equal local rank on different
// hosts: rail l is the ranks with local rank l, one per host at most. A
// selection keeps the edges between selected ranks. Each plan is rotated by the
// initiator's number on its rail.
//
// Σ over rails n(n−1) edges for n ranks; ideal total one line rate per rank
// that has an edge.
var railKind = kind{
	name:    "rail",
	summary: "every rank to the ranks with its local rank on other hosts",
	takes:   takesSelection,
	build:   newRail,
}

type rail struct {
	ranks int
	local []int32  // by rank
	rails []*cross // by local rank
	count int64
}

func newRail(v View, p Params, sel selected) (Topology, error) {
	t := &rail{ranks: v.Size(), local: make([]int32, v.Size())}
	var from, to [][]Rank // by local rank, ascending
	for r := range Rank(t.ranks) {
		l := v.LocalRank(r)
		t.local[r] = int32(l)
		if grow := l + 1 - len(from); grow > 0 {
			from = append(from, slices.Repeat([][]Rank{nil}, grow)...)
			to = append(to, slices.Repeat([][]Rank{nil}, grow)...)
		}
		if sel.from == nil || sel.from.has(r) {
			from[l] = append(from[l], r)
		}
		if sel.to == nil || sel.to.has(r) {
			to[l] = append(to[l], r)
		}
	}
	for l := range from {
		// Ranks of one rail are on different hosts, so there is nothing for
		// --exclude-same-host to drop.
		c := newCross("rail", v, p, selected{}, listSet(from[l]), listSet(to[l]))
		t.rails = append(t.rails, c)
		t.count += c.count
	}
	return t, nil
}

func (t *rail) of(r Rank) *cross { return t.rails[t.local[r]] }

func (t *rail) size() int                          { return t.ranks }
func (t *rail) Name() string                       { return "rail" }
func (t *rail) Stages() int                        { return 1 }
func (t *rail) Count() int64                       { return t.count }
func (t *rail) Out(r Rank) int64                   { return t.of(r).Out(r) }
func (t *rail) In(r Rank) int64                    { return t.of(r).In(r) }
func (t *rail) Edges(r Rank) iter.Seq[Edge]        { return t.of(r).Edges(r) }
func (t *rail) Sources(target Rank) iter.Seq[Edge] { return t.of(target).Sources(target) }
