package phases

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dueByBig is T + ⌊⌊(i·A + a)·M/(A·m)⌋·10¹⁵/micro⌋ without a limit to the numbers.
func dueByBig(s Share, micro uint64, start, j int64) int64 {
	b := func(v int64) *big.Int { return big.NewInt(v) }
	i := new(big.Int).Add(b(s.Worker), new(big.Int).Mul(b(j), b(s.Workers)))
	turn := new(big.Int).Add(new(big.Int).Mul(i, b(s.Initiators)), b(s.Initiator))
	g := turn.Mul(turn, b(s.OfJob))
	g.Div(g, new(big.Int).Mul(b(s.Initiators), b(s.OfRank)))
	ns := g.Mul(g, b(1e15))
	ns.Div(ns, new(big.Int).SetUint64(micro))
	ns.Add(ns, b(start))
	if !ns.IsInt64() {
		return Never
	}
	return ns.Int64()
}

func TestDueIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Share{
			Initiators: rapid.Int64Range(1, 1<<20).Draw(t, "A"),
			OfRank:     rapid.Int64Range(1, 1<<30).Draw(t, "m"),
			Workers:    rapid.Int64Range(1, 64).Draw(t, "n"),
		}
		s.Initiator = rapid.Int64Range(0, s.Initiators-1).Draw(t, "a")
		s.Worker = rapid.Int64Range(0, s.Workers-1).Draw(t, "w")
		s.OfJob = rapid.SampledFrom([]int64{s.OfRank * s.Initiators, s.OfRank + s.Initiators - 1, 1 << 50}).Draw(t, "M")
		if s.Conns() == 0 {
			t.Skip("this worker has nothing")
		}
		micro := rapid.Int64Range(1000, 1e15).Draw(t, "micro")
		start := rapid.Int64Range(0, 1<<55).Draw(t, "T")
		j := rapid.Int64Range(0, s.Conns()-1).Draw(t, "j")
		p := NewPacer(Shape{Kind: Rate, PerS: float64(micro) / 1e6}, s, start)
		if got, want := p.Due(j), dueByBig(s, p.micro, start, j); got != want {
			t.Fatalf("due %d, want %d", got, want)
		}
	})
}

// With equal counts every index 0 … M-1 occurs once, and the initiators take
// turns.
func TestEqualInitiatorsTakeTurns(t *testing.T) {
	const initiators, conns, workers, rate = 5, 7, 3, 1000
	var all []int64
	for a := range int64(initiators) {
		for w := range int64(workers) {
			s := Share{Initiator: a, Initiators: initiators, OfRank: conns, OfJob: initiators * conns, Worker: w, Workers: workers}
			p := NewPacer(Shape{Kind: Rate, PerS: rate}, s, 0)
			for j := range p.Left() {
				i := w + j*workers
				if want := (i*initiators + a) * 1e9 / rate; p.Due(j) != want {
					t.Fatalf("initiator %d, connection %d: due %d, want %d", a, i, p.Due(j), want)
				}
				all = append(all, p.Due(j))
			}
		}
	}
	slices.Sort(all)
	for k, due := range all {
		if due != int64(k)*1e9/rate {
			t.Fatalf("the %d-th is due at %d", k, due)
		}
	}
}

// With unequal counts the number of connections due below index k differs from
// k by less than the number of initiators, all the way.
func TestUnequalInitiatorsKeepTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.Int64Range(1, 50), 1, 12).Draw(t, "counts")
		workers := rapid.Int64Range(1, 4).Draw(t, "workers")
		var total int64
		for _, m := range counts {
			total += m
		}
		below := make([]int64, total+1) // below[k+1]: how many have index k, then summed
		for a, m := range counts {
			last := make([]int64, 0, m)
			for w := range workers {
				s := Share{Initiator: int64(a), Initiators: int64(len(counts)), OfRank: m, OfJob: total, Worker: w, Workers: workers}
				for j := range s.Conns() {
					g := s.index(j)
					if g < 0 || g >= total {
						t.Fatalf("index %d of %d", g, total)
					}
					below[g+1]++
					last = append(last, g)
				}
			}
			if int64(len(last)) != m {
				t.Fatalf("the workers have %d connections together, want %d", len(last), m)
			}
		}
		var sum int64
		for k := range below {
			sum += below[k]
			if d := sum - int64(k); d <= -int64(len(counts)) || d >= int64(len(counts)) {
				t.Fatalf("%d connections below index %d with %d initiators", sum, k, len(counts))
			}
		}
	})
}

// run drives a pacer by hand: life is how long a connection is under way.
func run(t interface{ Fatalf(string, ...any) }, p *Pacer, from, life int64) (begun []int64, most int) {
	now := from
	var ends []int64
	for guard := 0; p.Left() > 0; guard++ {
		if guard > 1_000_000 {
			t.Fatalf("the storm does not end: %d left", p.Left())
		}
		ends = slices.DeleteFunc(ends, func(e int64) bool { return e <= now })
		n, wake := p.Next(now, len(ends))
		if again, w := p.Next(now, len(ends)); again != n || w != wake {
			t.Fatalf("Next changed something: %d, %d then %d, %d", n, wake, again, w)
		}
		if n == 0 && wake <= now {
			t.Fatalf("nothing to begin at %d, but wake %d", now, wake)
		}
		for range n {
			begun = append(begun, now)
			ends = append(ends, now+life)
		}
		p.Began(n)
		most = max(most, len(ends))
		if n > 0 {
			continue
		}
		next := wake
		if len(ends) > 0 {
			next = min(next, slices.Min(ends))
		}
		if next == Never {
			t.Fatalf("%d left and nothing to wait for", p.Left())
		}
		now = next
	}
	if n, wake := p.Next(now, 0); n != 0 || wake != Never {
		t.Fatalf("after the last: %d, %d", n, wake)
	}
	return begun, most
}

func TestRateBeginsEachWhenDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Share{Initiator: 1, Initiators: 3, OfRank: rapid.Int64Range(1, 300).Draw(t, "m"), Workers: 1}
		s.OfJob = s.OfRank + 2*rapid.Int64Range(1, 300).Draw(t, "others")
		start := int64(5000)
		p := NewPacer(Shape{Kind: Rate, PerS: rapid.Float64Range(1, 1e6).Draw(t, "rate")}, s, start)
		from := rapid.Int64Range(0, 10_000).Draw(t, "from")
		begun, _ := run(t, p, from, rapid.Int64Range(1, 1e9).Draw(t, "life"))
		for j, at := range begun {
			// Open loop: at the due moment, or at once if the loop came late.
			if want := max(p.Due(int64(j)), from, start); at != want {
				t.Fatalf("connection %d begun at %d, due %d", j, at, want)
			}
		}
	})
}

func TestParallelKeepsItsSlots(t *testing.T) {
	for _, c := range []struct {
		slots, threads int
		conns          int64
		want           []int // most under way per worker
	}{
		{1, 1, 10, []int{1}},
		{7, 3, 100, []int{3, 2, 2}},
		{6, 3, 100, []int{2, 2, 2}},
		{2, 4, 100, []int{1, 1}},
		{256, 2, 10, []int{5, 5}},
		{3, 8, 1, []int{1, 0, 0}},
	} {
		shape := Shape{Kind: Parallel, Slots: c.slots}
		workers := shape.Workers(c.threads)
		var got []int
		sum := 0
		for w := range workers {
			s := Share{Initiators: 1, OfRank: c.conns, OfJob: c.conns, Worker: int64(w), Workers: int64(workers)}
			_, most := run(t, NewPacer(shape, s, 0), 0, 10)
			got = append(got, most)
			sum += most
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("parallel=%d over %d threads: %v under way, want %v", c.slots, c.threads, got, c.want)
		}
		if sum > c.slots {
			t.Errorf("parallel=%d over %d threads: %d under way", c.slots, c.threads, sum)
		}
	}
}

// A rank whose runner deals to more workers than slots still gets done.
func TestParallelNeverStarvesAWorker(t *testing.T) {
	s := Share{Initiators: 1, OfRank: 9, OfJob: 9, Worker: 2, Workers: 3}
	begun, most := run(t, NewPacer(Shape{Kind: Parallel, Slots: 1}, s, 0), 0, 10)
	if len(begun) != 3 || most != 1 {
		t.Errorf("%d begun, %d at once", len(begun), most)
	}
}

func TestBurstIsEverythingAtT(t *testing.T) {
	s := Share{Initiators: 1, OfRank: 1000, OfJob: 1000, Workers: 1}
	p := NewPacer(Shape{Kind: Burst}, s, 100)
	if n, wake := p.Next(99, 0); n != 0 || wake != 100 {
		t.Errorf("before T: %d, wake %d", n, wake)
	}
	if n, _ := p.Next(100, 0); n != 1000 {
		t.Errorf("at T: %d", n)
	}
	p.Began(64)
	if n, wake := p.Next(100, 64); n != 936 || wake != Never {
		t.Errorf("after 64: %d, wake %d", n, wake)
	}
	if p.Paced() || p.Due(5) != 100 {
		t.Error("a burst has due moments")
	}
}

func TestPacerWithoutConnections(t *testing.T) {
	for _, shape := range []Shape{{Kind: Burst}, {Kind: Parallel, Slots: 2}, {Kind: Rate, PerS: 10}} {
		for _, s := range []Share{{}, {Initiators: 1, OfRank: 1, OfJob: 1, Worker: 1, Workers: 2}} {
			if n, wake := NewPacer(shape, s, 5).Next(10, 0); n != 0 || wake != Never {
				t.Errorf("%v %+v: %d, %d", shape, s, n, wake)
			}
		}
	}
}

func TestDueStopsAtTheEndOfTime(t *testing.T) {
	s := Share{Initiators: 1, OfRank: 1 << 40, OfJob: 1 << 40, Workers: 1}
	p := NewPacer(Shape{Kind: Rate, PerS: MinRate}, s, math.MaxInt64/2)
	if got := p.Due(1<<40 - 1); got != Never {
		t.Errorf("due %d", got)
	}
	if p.Due(0) != math.MaxInt64/2 {
		t.Errorf("first due %d", p.Due(0))
	}
}

func TestPacerDoesNotAllocate(t *testing.T) {
	s := Share{Initiators: 3, OfRank: 1 << 30, OfJob: 1 << 33, Workers: 1}
	p := NewPacer(Shape{Kind: Rate, PerS: 1e6}, s, 0)
	now := int64(0)
	if n := testing.AllocsPerRun(100, func() {
		n, _ := p.Next(now, 0)
		p.Began(n)
		now += 1000
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPacerRate(b *testing.B) {
	s := Share{Initiators: 3, OfRank: 1 << 40, OfJob: 1 << 43, Workers: 1}
	p := NewPacer(Shape{Kind: Rate, PerS: 1e6}, s, 0)
	now := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		n, _ := p.Next(now, 0)
		p.Began(n)
		now += 1000
	}
}
