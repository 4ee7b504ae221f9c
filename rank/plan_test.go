package rank

import (
	"slices"
	"testing"
)

// checkPlans: the numbering is stage by stage, then connection, then edge, and
// Position and Index are inverse.
func checkPlans(t *testing.T, what string, top Topology, w int) {
	t.Helper()
	for r := range Rank(w) {
		edges := slices.Collect(top.Edges(r))
		for _, c := range []int{1, 3} {
			p := PlanOf(top, r, c)
			i := 0
			if len(p.Stages) != top.Stages() {
				t.Fatalf("%s: %d stages in the plan, want %d", what, len(p.Stages), top.Stages())
			}
			for stage := range top.Stages() {
				first := i
				for conn := range c {
					for _, e := range edges {
						if int(e.Stage) != stage {
							continue
						}
						got, gotConn := p.Edge(i)
						if got != e || gotConn != int32(conn) {
							t.Fatalf("%s: plan of %d: connection %d is %v #%d, want %v #%d", what, r, i, got, gotConn, e, conn)
						}
						at, _ := p.Position(i)
						if back := p.Index(at, gotConn); back != i {
							t.Fatalf("%s: plan of %d: index of connection %d is %d", what, r, i, back)
						}
						i++
					}
				}
				if want := (Span{first, i - first}); p.Stages[stage] != want {
					t.Fatalf("%s: plan of %d: stage %d is %v, want %v", what, r, stage, p.Stages[stage], want)
				}
			}
			if p.Len() != i || p.Rank != r || p.Connections != c {
				t.Fatalf("%s: plan of %d: %d connections, want %d", what, r, p.Len(), i)
			}
		}
		if in := Incoming(top, r, 3); in != 3*top.In(r) {
			t.Fatalf("%s: %d connections reach %d", what, in, r)
		}
	}
}

func mustTopology(t testing.TB, v View, p Params) Topology {
	t.Helper()
	top, err := NewTopology(v, p)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestPlanOfNegativeConnections(t *testing.T) {
	top := mustTopology(t, NewLayout(4, 1), Params{Name: "ring"})
	if p := PlanOf(top, 0, -2); p.Len() != 0 {
		t.Errorf("%d connections", p.Len())
	}
	if n := Incoming(top, 0, -2); n != 0 {
		t.Errorf("%d incoming", n)
	}
}

func TestPlanLookupDoesNotAllocate(t *testing.T) {
	p := PlanOf(mustTopology(t, NewLayout(64, 4), Params{Name: "shift", Offsets: "all"}), 3, 4)
	i := 0
	if n := testing.AllocsPerRun(100, func() {
		p.Edge(i % p.Len())
		i++
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestCheckConnections(t *testing.T) {
	top := mustTopology(t, NewLayout(4, 1), Params{Name: "ring"})
	if n, err := CheckConnections(top, 5); n != 20 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err := CheckConnections(top, 0)
	checkError(t, "none", err, KindUsage, "0 connections per edge: give at least 1")
	_, err = CheckConnections(top, 1<<40)
	checkError(t, "many", err, KindUsage,
		"topology ring: 4 edges with 1099511627776 connections each are too many to count: lower the connections")
}

func TestRoleOf(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want []Role
	}{
		{Params{Name: "incast"}, []Role{Target, Initiator, Initiator}},
		{Params{Name: "fanout"}, []Role{Initiator, Target, Target}},
		{Params{Name: "ring"}, []Role{Peer, Peer, Peer}},
		{Params{Name: "bisection"}, []Role{Peer, Peer, Idle}},
		{Params{Name: "m2n"}, []Role{Initiator, Idle, Target}},
	} {
		top := mustTopology(t, NewLayout(3, 1), c.p)
		for r, want := range c.want {
			if got := RoleOf(top, Rank(r)); got != want {
				t.Errorf("%s: rank %d is %s, want %s", c.p.Name, r, got, want)
			}
		}
	}
}

// checkNeeds compares the summary with sums over all ranks.
func checkNeeds(t *testing.T, what string, top Topology, w int) {
	t.Helper()
	cost := FDCost{Fixed: 3, PerOut: 2, PerIn: 1}
	got, err := NeedsOf(top, 5, cost)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	var all []Need
	sum := Need{Rank: None}
	for r := range Rank(w) {
		n := Need{Rank: r, OutEdges: int64(len(slices.Collect(top.Edges(r)))), InEdges: int64(len(slices.Collect(top.Sources(r))))}
		n.Out, n.In = 5*n.OutEdges, 5*n.InEdges
		n.FDs = 3 + 2*n.Out + n.In
		if n.Out > 0 {
			n.Ports += 5
		}
		if n.In > 0 {
			n.Ports++
		}
		all = append(all, n)
		sum.OutEdges += n.OutEdges
		sum.InEdges += n.InEdges
		sum.Out += n.Out
		sum.In += n.In
		sum.FDs += n.FDs
		sum.Ports += n.Ports
	}
	slices.SortStableFunc(all, func(a, b Need) int { return int(a.Connections() - b.Connections()) })
	most := slices.MaxFunc(all, func(a, b Need) int { return int(a.Connections() - b.Connections()) }) // the first of equals
	want := Needs{Size: w, Stages: top.Stages(), Least: all[0], Median: all[(w-1)/2], Most: most, Total: sum}
	if got != want {
		t.Errorf("%s: needs\n got %+v\nwant %+v", what, got, want)
	}
}

func TestNeedsErrors(t *testing.T) {
	top := mustTopology(t, NewLayout(4, 1), Params{Name: "ring"})
	_, err := NeedsOf(top, 0, FDCost{})
	checkError(t, "none", err, KindUsage, "0 connections per edge: give at least 1")
	_, err = NeedsOf(top, 2, FDCost{PerOut: 1 << 62})
	checkError(t, "rank", err, KindUsage, "rank 0: the descriptors of 2 connections are too many to count: lower the connections")
	_, err = NeedsOf(top, 1, FDCost{PerOut: 1 << 62})
	checkError(t, "sum", err, KindUsage, "topology ring: the descriptors of 4 connections are too many to count: lower the connections")
}
