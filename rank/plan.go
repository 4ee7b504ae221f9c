package rank

import (
	"math"
	"slices"
	"sort"
)

// Plan is what one initiator connects: its edges in plan order and the number
// of connections on each. It numbers the connections of the rank 0 … Len-1:
// stage by stage, in a stage the first connection of every edge in plan order,
// then the second of every edge, and so on, so that consecutive connections
// reach different targets and those of a stage are contiguous.
//
//	index = connections × edges of earlier stages + conn × edges of the stage + position in the stage
type Plan struct {
	Rank        Rank
	Connections int    // per edge, ≥ 0
	Edges       []Edge // in order of stage, then plan order
	Stages      []Span // by stage: its connections
}

// Span is the connections First … First+N-1.
type Span struct{ First, N int }

// PlanOf makes the plan of rank r with that many connections per edge (< 0
// counts as 0; CheckConnections says what is sensible). O(Out(r) + stages).
func PlanOf(t Topology, r Rank, connections int) Plan {
	p := Plan{Rank: r, Connections: max(connections, 0), Stages: make([]Span, t.Stages())}
	p.Edges = slices.AppendSeq(make([]Edge, 0, t.Out(r)), t.Edges(r))
	slices.SortStableFunc(p.Edges, func(a, b Edge) int { return int(a.Stage) - int(b.Stage) })
	for _, e := range p.Edges {
		p.Stages[e.Stage].N += p.Connections
	}
	first := 0
	for s := range p.Stages {
		p.Stages[s].First = first
		first += p.Stages[s].N
	}
	return p
}

// Len is the number of connections that the rank initiates.
func (p *Plan) Len() int { return len(p.Edges) * p.Connections }

// Edge gives the edge of connection i, 0 ≤ i < Len, and which of the
// connections of that edge it is, 0 … Connections-1. O(log stages), no
// allocation.
func (p *Plan) Edge(i int) (e Edge, conn int32) {
	position, conn := p.Position(i)
	return p.Edges[position], conn
}

// Position is Edge with the index into Edges.
func (p *Plan) Position(i int) (edge int, conn int32) {
	// The last stage that begins at or before i; empty stages begin where the
	// next one does and are passed over.
	s := sort.Search(len(p.Stages), func(s int) bool { return p.Stages[s].First > i }) - 1
	span := p.Stages[s]
	edges := span.N / p.Connections
	within := i - span.First
	return span.First/p.Connections + within%edges, int32(within / edges)
}

// Index is the inverse of Position.
func (p *Plan) Index(edge int, conn int32) int {
	span := p.Stages[p.Edges[edge].Stage]
	edges := span.N / p.Connections
	return span.First + int(conn)*edges + edge - span.First/p.Connections
}

// Incoming is how many connections reach rank r.
func Incoming(t Topology, r Rank, connections int) int64 {
	return t.In(r) * int64(max(connections, 0))
}

// CheckConnections refuses (KindUsage) a number of connections per edge that
// is below 1 or too big to count, and gives the connections of the whole job.
// What it accepts cannot overflow in Plan, Incoming or Need.
func CheckConnections(t Topology, connections int) (total int64, err error) {
	if connections < 1 {
		return 0, Errorf(KindUsage, "%d connections per edge: give at least 1", connections)
	}
	if connections > math.MaxInt32 || t.Count() > 0 && int64(connections) > math.MaxInt64/t.Count() {
		return 0, Errorf(KindUsage, "topology %s: %d edges with %d connections each are too many to count: lower the connections",
			t.Name(), t.Count(), connections)
	}
	return t.Count() * int64(connections), nil
}

// Role of a rank in a topology.
type Role string

// The roles.
const (
	Idle      Role = "idle"      // in no edge; takes part in barriers only
	Initiator Role = "initiator" // posts operations
	Target    Role = "target"    // owns the memory or queue they reach
	Peer      Role = "peer"      // both
)

// RoleOf tells what a rank does.
func RoleOf(t Topology, r Rank) Role {
	out, in := t.Out(r) > 0, t.In(r) > 0
	switch {
	case out && in:
		return Peer
	case out:
		return Initiator
	case in:
		return Target
	}
	return Idle
}
