package rendezvous

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A model of two clocks that run apart and a network with random delays: the
// true offset at any moment must be within the bound.
func TestOffsetIsWithinTheBound(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		const hops = 4
		// Clock i shows skew + true*(1+rate), rates within ±15 ppm, so that no two differ by more than 30 µs/s.
		skew, rate := [hops]int64{}, [hops]float64{}
		for i := range hops {
			skew[i] = r.Int64N(2e12) - 1e12
			rate[i] = (r.Float64()*2 - 1) * 14.9e-6
		}
		read := func(i int, at int64) int64 { return skew[i] + at + int64(rate[i]*float64(at)) }
		points := [2][hops]clockPoint{}
		var ends [2]int64
		now := r.Int64N(1e12)
		for sync := range 2 {
			points[sync][0] = clockPoint{Gen: uint32(sync + 1), At: read(0, now), Exact: true}
			for i := 1; i < hops; i++ {
				var best *clockPong
				for range 8 {
					s := clockPong{T0: read(i, now)}
					now += 5000 + int64(r.ExpFloat64()*200_000)
					s.T1 = read(i-1, now)
					now += r.Int64N(50_000)
					s.T2 = read(i-1, now)
					now += 5000 + int64(r.ExpFloat64()*200_000)
					s.t3 = read(i, now)
					if best == nil || s.rtt() < best.rtt() {
						best = &s
					}
				}
				points[sync][i] = compose(best, best.T0+(best.t3-best.T0)/2, points[sync][i-1])
			}
			ends[sync] = now
			now += int64(1e9 + r.ExpFloat64()*60e9)
		}
		for range 50 {
			at := ends[0] - 1e9 + r.Int64N(now-ends[0]+30e9)
			for i := 1; i < hops; i++ {
				offset, bound := interpolate(points[0][i], points[1][i], read(i, at))
				truth := read(0, at) - read(i, at)
				if d := offset - truth; d > bound || -d > bound {
					t.Fatalf("seed %d, hop %d: offset %d, truth %d, off by %d, bound %d", seed, i, offset, truth, d, bound)
				}
				if bound > 100e6 {
					t.Fatalf("seed %d, hop %d: bound of %d ns says nothing", seed, i, bound)
				}
			}
		}
	}
}

func TestDrift(t *testing.T) {
	for _, c := range []struct{ ns, want int64 }{
		{0, 0},
		{1, 1},
		{-1, 1},
		{1e9, 30_000},
		{-1e9, 30_000},
		{1_500_000_000, 45_000},
		{3600e9, 3600 * 30_000},
		{math.MaxInt64, 276_701_161_105_644},
	} {
		if got := drift(c.ns); got != c.want {
			t.Errorf("drift(%d) = %d, want %d", c.ns, got, c.want)
		}
	}
}

func TestBoundGrowsAwayFromTheSync(t *testing.T) {
	p := clockPoint{Gen: 1, At: 1000, Offset: 5, Bound: 7}
	for _, c := range []struct{ t, offset, bound int64 }{
		{1000, 5, 7}, {1000 + 1e9, 5, 30_007}, {1000 - 1e9, 5, 30_007},
	} {
		if o, b := interpolate(p, p, c.t); o != c.offset || b != c.bound {
			t.Errorf("at %d: %d ± %d, want %d ± %d", c.t, o, b, c.offset, c.bound)
		}
	}
	a, b := clockPoint{Gen: 1, At: 0, Offset: 0, Bound: 10}, clockPoint{Gen: 2, At: 2e9, Offset: 40_000, Bound: 10}
	if o, bound := interpolate(a, b, 1e9); o != 20_000 || bound != 30_011 {
		t.Errorf("half way: %d ± %d, want 20000 ± 30011", o, bound)
	}
	exact := clockPoint{Gen: 1, Exact: true}
	if got := exact.boundAt(1e12); got != 0 {
		t.Errorf("the root's own clock has bound %d", got)
	}
}
