package collect

import (
	"testing"
	"time"

	"rankstorm/rank"
	"rankstorm/transport"
)

func TestStamps(t *testing.T) {
	s := NewStamps([]transport.Step{transport.StepConnect, transport.StepEstablish, transport.StepConnect}, 3)
	if !s.Has(transport.StepConnect) || s.Has(transport.StepProbe) || s.n != 3 {
		t.Fatal("wrong steps or length")
	}
	// 0 is a moment like any other on a fake clock.
	s.Set(transport.StepConnect, 0, 0, 0)
	s.Set(transport.StepConnect, 1, 5, 9)
	s.Fail(2, transport.StepConnect, transport.CauseReset)
	s.Set(transport.StepConnect, 2, 1, 2)
	for i, want := range []bool{true, true, false} {
		if _, _, ok := s.Get(transport.StepConnect, i); ok != want {
			t.Errorf("connection %d: recorded %v, want %v", i, ok, want)
		}
		if _, _, ok := s.Get(transport.StepEstablish, i); ok {
			t.Errorf("connection %d: establish was never recorded", i)
		}
	}
	if begin, end, _ := s.Get(transport.StepConnect, 1); begin != 5 || end != 9 {
		t.Errorf("got %d, %d", begin, end)
	}
	if got := s.Failed(transport.StepConnect, 2); got != transport.CauseReset {
		t.Errorf("cause %v", got)
	}
	s.Reset()
	for i := range 3 {
		if _, _, ok := s.Get(transport.StepConnect, i); ok || s.Failed(transport.StepConnect, i) != transport.CauseNone {
			t.Errorf("connection %d survived Reset", i)
		}
	}
}

func TestStampsDoNotAllocate(t *testing.T) {
	s := NewStamps([]transport.Step{transport.StepConnect}, 8)
	if n := testing.AllocsPerRun(100, func() {
		s.Set(transport.StepConnect, 3, 1, 2)
		s.Fail(4, transport.StepConnect, transport.CauseTimeout)
		s.Get(transport.StepConnect, 3)
		s.Reset()
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// One sample, the clock read included.
func BenchmarkRecordSample(b *testing.B) {
	const n = 4096
	s := NewStamps([]transport.Step{transport.StepConnect}, n)
	start := time.Now()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		now := int64(time.Since(start))
		s.Set(transport.StepConnect, i&(n-1), now, now)
		i++
	}
}

// Reducing one rank's step of 8,000 connections.
func BenchmarkReduceStep(b *testing.B) {
	const n = 8000
	s := NewStamps([]transport.Step{transport.StepConnect}, n)
	for i := range n {
		s.Set(transport.StepConnect, i, 0, int64(i)*997)
	}
	in := StepInput{Step: transport.StepConnect, Scratch: NewHistogram(), Workers: []WorkerStamps{{
		Stamps: s, N: n,
		Edge: func(i int) (EdgeConn, Class) { return EdgeConn{To: 1, Conn: int32(i)}, ClassSameHost },
	}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReduceStep(in); err != nil {
			b.Fatal(err)
		}
	}
}

func TestReduceStepRefusesImpossibleDurations(t *testing.T) {
	for _, d := range []int64{-1, highestNS + 1} {
		s := NewStamps([]transport.Step{transport.StepConnect}, 1)
		s.Set(transport.StepConnect, 0, 10, 10+d)
		_, err := ReduceStep(StepInput{Step: transport.StepConnect, Rank: 3, Workers: []WorkerStamps{{
			Stamps: s, N: 1,
			Edge: func(int) (EdgeConn, Class) { return EdgeConn{From: 3, To: 9}, ClassNone },
		}}})
		if err == nil {
			t.Errorf("a duration of %d ns was taken", d)
		}
	}
}

func TestReduceStep(t *testing.T) {
	a := NewStamps([]transport.Step{transport.StepAccept}, 3)
	a.Set(transport.StepAccept, 0, 100, 160)
	a.Set(transport.StepAccept, 1, 90, 120)
	a.Fail(2, transport.StepAccept, transport.CauseClosed)
	b := NewStamps([]transport.Step{transport.StepAccept}, 2)
	b.Set(transport.StepAccept, 1, 200, 230)
	edge := func(base int) func(int) (EdgeConn, Class) {
		return func(i int) (EdgeConn, Class) {
			return EdgeConn{From: rank.Rank(base + i), To: 7}, Class(1 + i%2)
		}
	}
	got, err := ReduceStep(StepInput{
		Step: transport.StepAccept, Order: 4, Rank: 7, OffsetNS: -50,
		Workers: []WorkerStamps{{Stamps: a, N: 3, Edge: edge(20)}, {Stamps: b, N: 2, Edge: edge(10)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Step != "accept" || got.Side != SideTarget || got.Order != 4 {
		t.Errorf("identity %q %q %d", got.Step, got.Side, got.Order)
	}
	// Two samples last 30 ns: the lower edge is named.
	want := Moments{Count: 3, SumNS: 120, MinNS: 30, MaxNS: 60, MinEdge: EdgeConn{From: 11, To: 7}, MaxEdge: EdgeConn{From: 20, To: 7}}
	if got.Total != want {
		t.Errorf("total %+v, want %+v", got.Total, want)
	}
	if got.FirstBegin != 40 || got.LastEnd != 180 {
		t.Errorf("span %d … %d, want 40 … 180 on the root's clock", got.FirstBegin, got.LastEnd)
	}
	if got.Failures["closed"] != 1 || len(got.PerRank) != 1 || got.PerRank[0].Failed != 1 || got.PerRank[0].Moments != want {
		t.Errorf("failures %v, per rank %+v", got.Failures, got.PerRank)
	}
	if got.Classes[ClassSameHost].Count != 1 || got.Classes[ClassOtherHost].Count != 2 {
		t.Errorf("classes %+v", got.Classes)
	}
	if err := got.validate(); err != nil {
		t.Error(err)
	}
}
