package rank

import "iter"

// Edge is one initiator → target pair. Self edges never occur.
type Edge struct {
	From, To Rank
	Stage    int32   // the connect sub-phase it belongs to, 0 unless the topology takes turns
	Weight   float64 // share of the initiator's operations, > 0; sums to 1 over the edges of one initiator
}

// View is what a topology may know about the job: pure functions of the
// table, so that plans can be made for an invented layout as well.
type View interface {
	Size() int                 // ranks
	HostOf(r Rank) string      // host name
	LocalRank(r Rank) int      // index of r among the ranks of its host, in rank order
	HostRanks(h string) []Rank // ranks on a host, ascending; nil if unknown
	Hosts() []string           // all hosts in order of their lowest rank
}

// Topology is a rule that makes plans. All methods are pure; iterators yield
// in ascending order of the other rank's position in the plan (Edges) or
// ascending rank (Sources). Degrees and Count are closed forms or O(size)
// precomputation: nobody builds the whole edge list.
type Topology interface {
	Name() string
	Stages() int                   // ≥ 1
	Edges(r Rank) iter.Seq[Edge]   // edges that r initiates, in plan order (rotated per initiator)
	Sources(t Rank) iter.Seq[Edge] // edges that reach t
	Out(r Rank) int64              // len(Edges(r))
	In(t Rank) int64               // len(Sources(t))
	Count() int64                  // edges in all; NewTopology refuses what overflows
}

// Weighted says that the edges of an initiator may have different weights.
func Weighted(t Topology) bool {
	switch t := t.(type) {
	case *hotspot:
		return t.Count() > 0
	case *custom:
		return t.weighted()
	}
	return false
}

// Params choose and shape a topology. Zero values mean the default of the
// topology; NewTopology refuses what does not apply to it.
type Params struct {
	Name            string  // all_to_all, fanout, incast, m2n, hotspot, custom, pairwise, ring, shift, permutation, bisection, hypercube, rail
	Initiators      string  // selection: lists, ranges and host globs, "" = the topology's default
	Targets         string  // selection, "" = default
	M, N            int     // m2n, 0 = ⌊W/2⌋
	Offsets         string  // shift: "1,2,4", "1-4", "all"; "" = "1"
	Staged          bool    // take turns: one stage per offset (shift)
	Hot             string  // hotspot: selection of hot targets, "" = the first target
	HotShare        float64 // hotspot: share of an initiator's operations to hot targets, 0 = 0.8
	ExcludeSameHost bool
	NoRotate        bool   // keep plan order the same at all initiators
	Seed            uint64 // permutation
	File            string // custom: name, for messages
	Custom          []byte // custom: content of File, so that all processes compare the same
}
