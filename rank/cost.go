package rank

import (
	"cmp"
	"math"
	"slices"
)

// Need is what a rank needs for its plan, or a whole job in all.
type Need struct {
	Rank     Rank  // None in totals
	OutEdges int64 // edges that it initiates
	InEdges  int64 // edges that reach it
	Out      int64 // connections that it initiates: OutEdges × connections
	In       int64 // connections that reach it: InEdges × connections
	FDs      int64 // Fixed + Out × PerOut + In × PerIn of FDCost
	Ports    int64 // local ports, see NeedOf
}

// Connections that end at the rank, both directions.
func (n Need) Connections() int64 { return n.Out + n.In }

// FDCost is what a provider spends in file descriptors.
type FDCost struct {
	Fixed  int64 // per rank: listener, poll sets, wake-ups
	PerOut int64 // per connection initiated
	PerIn  int64 // per connection accepted
}

// NeedOf gives what one rank needs. Ports is how many different local ports
// its address must have free: connections to different targets may share a
// port if it is chosen at connect (IP_BIND_ADDRESS_NO_PORT), those to the same
// target may not, so a rank that initiates needs as many as connections on an
// edge; plus one to listen if it is a target. Ranks that share an address and a
// target need theirs side by side. connections must have passed
// CheckConnections; the error (KindUsage) says that the descriptors are too
// many to count.
func NeedOf(t Topology, r Rank, connections int, fds FDCost) (Need, error) {
	n := Need{Rank: r, OutEdges: t.Out(r), InEdges: t.In(r)}
	n.Out, n.In = n.OutEdges*int64(connections), n.InEdges*int64(connections)
	if n.Out > 0 {
		n.Ports += int64(connections)
	}
	if n.In > 0 {
		n.Ports++
	}
	out, ok1 := mulCounts(n.Out, fds.PerOut)
	in, ok2 := mulCounts(n.In, fds.PerIn)
	sum, ok3 := addCounts(out, in)
	sum, ok4 := addCounts(sum, fds.Fixed)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return Need{}, Errorf(KindUsage, "rank %d: the descriptors of %d connections are too many to count: lower the connections", r, n.Out)
	}
	n.FDs = sum
	return n, nil
}

// Needs sums a job up. Least, Median and Most are the ranks with the fewest
// connections (Out + In), the middle one (the lower of two) and the most; of
// equals the lowest rank, for the median by rank order.
type Needs struct {
	Size                int
	Stages              int
	Least, Median, Most Need
	Total               Need // sums; Out = In = connections of the job
}

// NeedsOf computes the needs of every rank. O(size) time and memory. Errors
// are those of CheckConnections, and sums that overflow.
func NeedsOf(t Topology, connections int, fds FDCost) (Needs, error) {
	total, err := CheckConnections(t, connections)
	if err != nil {
		return Needs{}, err
	}
	type degree struct {
		rank  Rank
		edges int64
	}
	size := sizeOf(t)
	ranks := make([]degree, size)
	sum := Need{Rank: None, OutEdges: t.Count(), InEdges: t.Count(), Out: total, In: total}
	for r := range ranks {
		n, err := NeedOf(t, Rank(r), connections, fds)
		if err != nil {
			return Needs{}, err
		}
		ranks[r] = degree{Rank(r), n.OutEdges + n.InEdges}
		ok1, ok2 := false, false
		sum.FDs, ok1 = addCounts(sum.FDs, n.FDs)
		sum.Ports, ok2 = addCounts(sum.Ports, n.Ports)
		if !ok1 || !ok2 {
			return Needs{}, Errorf(KindUsage, "topology %s: the descriptors of %d connections are too many to count: lower the connections", t.Name(), total)
		}
	}
	slices.SortFunc(ranks, func(a, b degree) int { return cmp.Or(cmp.Compare(a.edges, b.edges), cmp.Compare(a.rank, b.rank)) })
	most, _ := slices.BinarySearchFunc(ranks, ranks[size-1].edges, func(d degree, v int64) int { return cmp.Compare(d.edges, v) })
	needs := Needs{Size: size, Stages: t.Stages(), Total: sum}
	for _, pick := range []struct {
		at   int
		into *Need
	}{{0, &needs.Least}, {(size - 1) / 2, &needs.Median}, {most, &needs.Most}} {
		// Each was computed without error above.
		*pick.into, _ = NeedOf(t, ranks[pick.at].rank, connections, fds)
	}
	return needs, nil
}

// mulCounts multiplies counts ≥ 0; false if the product does not fit.
func mulCounts(a, b int64) (int64, bool) {
	if a < 0 || b < 0 || b > 0 && a > math.MaxInt64/b {
		return 0, false
	}
	return a * b, true
}

// addCounts adds counts ≥ 0; false if the sum does not fit.
func addCounts(a, b int64) (int64, bool) {
	if a < 0 || b < 0 || a > math.MaxInt64-b {
		return 0, false
	}
	return a + b, true
}
