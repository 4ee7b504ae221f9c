package rendezvous

import (
	"testing"
	"time"
)

func TestCostOfShapes(t *testing.T) {
	for _, test := range []struct {
		procs, perHost, arity           int
		members, depth, wide, root, max int
	}{
		{1, 1, 16, 1, 0, 0, 0, 0},
		{16, 16, 16, 16, 1, 0, 15, 15},
		{17, 1, 16, 17, 1, 1, 16, 16},
		{64, 64, 16, 1, 2, 0, 16, 17},
		{64, 8, 16, 8, 2, 1, 14, 14},
		{256, 128, 16, 4, 3, 1, 17, 17},
		{1000, 1000, 1000, 16, 1, 0, 999, 999},
	} {
		c := CostOf(Shape{Procs: test.procs, ProcsPerHost: test.perHost, TreeArity: test.arity, ProcsPerAgent: 64, AgentsAbove: 16})
		if c.Members != test.members || c.Depth != test.depth || c.Wide != test.wide || c.RootLinks != test.root || c.MostLinks != test.max {
			t.Errorf("%d processes, %d a host, arity %d: %d members, depth %d, %d between hosts, %d links at the root, %d at most; want %d, %d, %d, %d, %d",
				test.procs, test.perHost, test.arity, c.Members, c.Depth, c.Wide, c.RootLinks, c.MostLinks,
				test.members, test.depth, test.wide, test.root, test.max)
		}
		if want := int64(12 * (test.procs - 1)); c.SlotMessages != want {
			t.Errorf("%d processes: %d messages in a slot, want %d", test.procs, c.SlotMessages, want)
		}
		if want := int64(6 * test.root); c.RootMessages != want {
			t.Errorf("%d processes: %d messages at the root in a slot, want %d", test.procs, c.RootMessages, want)
		}
	}
}

// A chain and a star, worked out by hand.
func TestCostInTime(t *testing.T) {
	r := Rates{Hop: 100 * time.Microsecond, Message: 10 * time.Microsecond, Knock: time.Millisecond, CPUs: 4, Bytes: 1e12}
	chain := CostOf(Shape{Procs: 4, ProcsPerHost: 1, TreeArity: 1, ProcsPerAgent: 1})
	// Up: 3 links × (2 messages + hop); down: 3 × (send + receive + hop).
	if got, want := chain.Barrier(r), 3*(20+100)*time.Microsecond*2; got != want {
		t.Errorf("barrier of a chain %v, want %v", got, want)
	}
	star := CostOf(Shape{Procs: 11, ProcsPerHost: 1, TreeArity: 10, ProcsPerAgent: 1})
	// Up: 2 messages and a hop; down: the tenth is sent to last.
	if got, want := star.Barrier(r), (20+100+100+10+100)*time.Microsecond; got != want {
		t.Errorf("barrier of a star %v, want %v", got, want)
	}
	crowd := CostOf(Shape{Procs: 401, ProcsPerHost: 401, TreeArity: 400, ProcsPerAgent: 64})
	// One host: 4 ends of 400 messages × 10 µs on 4 CPUs.
	if got, want := crowd.Barrier(Rates{Message: 10 * time.Microsecond, CPUs: 1}), 16*time.Millisecond; got != want {
		t.Errorf("barrier of a crowd %v, want %v", got, want)
	}
	if got, want := star.Gather(r), 11*time.Millisecond/4; got != want {
		t.Errorf("gather %v, want %v", got, want)
	}
	if star.Seal(r) <= star.Barrier(r) {
		t.Errorf("seal %v is not above a barrier's %v", star.Seal(r), star.Barrier(r))
	}
}
