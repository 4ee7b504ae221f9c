package collect

import (
	"math/rand/v2"
	"testing"

	"rankstorm/rank"
)

// soak is a document after so many rounds of two processes whose heap goes up and down as collections come and go, and
// grows by leak bytes a round at process 1.
func soak(t *testing.T, rounds int, leak int64) *Document {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	d := NewDocument(Meta{Procs: 2, RanksPerProc: 1})
	for round := range int32(rounds) {
		var whole Summary
		for p := range 2 {
			wave := rng.Int64N(1 << 18)
			if round < 40 {
				wave -= int64(40-round) << 14 // still finding its size
			}
			if rng.IntN(20) == 0 {
				wave += 16 << 20 // odd
			}
			s := &Summary{Seq: round, Phase: "destroy", Round: round, Covers: []uint64{1 << p}}
			proc := RoundHeld{Procs: 1, AtNS: int64(round), TimeWait: -1}
			proc.FDs, proc.Goroutines = LevelOf(rank.Proc(p), 20), LevelOf(rank.Proc(p), 12)
			proc.RSSBytes = LevelOf(rank.Proc(p), 30<<20+wave+int64(p)*leak*int64(round))
			proc.HeapBytes = LevelOf(rank.Proc(p), 4<<20+wave/4+int64(p)*leak*int64(round))
			s.Held = &proc
			if err := Merge(&whole, s); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.AddSlot(&whole); err != nil {
			t.Fatal(err)
		}
	}
	d.Finish(Exit{})
	return d
}

// Growth is about zero of a job that only goes up and down, and finds a leak of 1 KiB a round under waves of 256 KiB.
func TestGrowthFindsLeaks(t *testing.T) {
	for _, rounds := range []int{400, 5000} {
		g := soak(t, rounds, 0).Growth
		if g == nil || abs(g.RSSBytes) > 400<<10 || abs(g.HeapBytes) > 100<<10 || g.FDs != 0 || g.Goroutines != 0 {
			t.Errorf("%d rounds without a leak: %+v", rounds, g)
		}
		d := soak(t, rounds, 1<<10)
		if g = d.Growth; g == nil || abs(g.RSSBytes-1024_000) > 400<<10 || abs(g.HeapBytes-1024_000) > 100<<10 {
			t.Errorf("%d rounds with a leak of 1 KiB a round: %+v", rounds, g)
		}
		if n := len(d.RoundsHeld); n > MaxRoundsHeld+1 || n < MaxRoundsHeld/2 || d.HeldMore != int64(rounds-n) {
			t.Errorf("%d rounds: %d listed, %d left out", rounds, n, d.HeldMore)
		}
		if h := d.RoundsHeld[0]; h.Procs != 2 || h.FDs != (Level{40, 20, 0}) || h.TimeWait != nil {
			t.Errorf("first round: %+v", h)
		}
	}
	if g := soak(t, 99, 1<<10).Growth; g != nil {
		t.Errorf("a slope from too few rounds: %+v", g)
	}
}

func abs(n int64) int64 { return max(n, -n) }
