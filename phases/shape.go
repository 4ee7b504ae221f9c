package phases

import (
	"math"
	"math/bits"
)

// Never is the wake of a pacer that waits for completions only, or for
// nothing any more.
const Never = math.MaxInt64

// Share is one worker's part of a connect storm (of one stage, if the topology
// has stages), in numbers that follow from the plan. The connections of a rank
// are dealt to its workers in turn: worker w of n has the rank's connections
// w, w+n, w+2n, …
type Share struct {
	Initiator  int64 // a: the rank's position among the ranks that initiate anything, 0 … Initiators-1
	Initiators int64 // A ≥ 1
	OfRank     int64 // m: connections that the rank initiates
	OfJob      int64 // M: sum of m over all initiators
	Worker     int64 // w, 0 … Workers-1
	Workers    int64 // n: workers that the rank's connections are dealt to; see Shape.Workers
}

// Conns is the number of connections of the worker.
func (s Share) Conns() int64 {
	if s.Worker >= s.OfRank {
		return 0
	}
	return (s.OfRank - s.Worker + s.Workers - 1) / s.Workers
}

// index is the place of the worker's j-th connection in the whole job's order:
// with i = w + j·n its place in the rank's plan,
//
//	g = ⌊(i·A + a) · M / (A·m)⌋
//
// With equal counts (M = A·m) this is i·A + a: the initiators take turns. With
// unequal counts every initiator spreads its connections evenly over the whole
// storm, so that all end together. How many have an index below k then differs
// from k by less than A (each initiator contributes ⌈k·m/M − a/A⌉), and no
// index reaches M, so that the job's rate stays R.
func (s Share) index(j int64) int64 {
	i := s.Worker + j*s.Workers
	turn := uint64(i*s.Initiators + s.Initiator)
	even := uint64(s.Initiators * s.OfRank)
	if even == uint64(s.OfJob) {
		return int64(turn)
	}
	hi, lo := bits.Mul64(turn, uint64(s.OfJob))
	g, _ := bits.Div64(hi, lo, even) // turn < even, so the quotient is below M
	return int64(g)
}

// Workers is how many of a rank's workers take part in a storm of this shape:
// all, but with parallel=W at most W, because a worker without a slot could
// never start its connections. The runner deals connections to this many.
func (s Shape) Workers(threads int) int {
	if s.Kind == Parallel {
		return max(1, min(threads, s.Slots))
	}
	return threads
}

// chunk is how many starts a paced storm asks for at once. It bounds the work
// of one Next; the runner polls after as many anyway.
const chunk = 64

// Pacer says when one worker begins its connections. It is used by one
// goroutine; no method allocates.
//
//	burst       all at once
//	parallel=W  the rank's W slots are divided over its workers, the larger
//	            shares first; a worker with work has at least one. (So more than W
//	            could be under way only if connections were dealt to more than
//	            Shape.Workers workers.)
//	rate=R      open loop: the connection with index k in the whole job is due
//	            at T + k/R, however late the earlier ones are
type Pacer struct {
	kind    ShapeKind
	share   Share
	start   int64 // T, ns on the caller's clock
	conns   int64
	begun   int64
	slots   int64  // Parallel: of this worker
	micro   uint64 // Rate: R in millionths per second
	nextDue int64  // Rate: Due(begun)
}

// NewPacer makes the pacer of one worker for a storm that begins at start (T,
// ns on the clock whose readings Next gets). shape has passed Validate; share
// has Initiators, Workers ≥ 1 unless it has no connections.
func NewPacer(shape Shape, share Share, start int64) *Pacer {
	p := &Pacer{kind: shape.Kind, share: share, start: start, conns: share.Conns()}
	switch shape.Kind {
	case Parallel:
		w, n := int64(shape.Slots), share.Workers
		if n > 0 {
			p.slots = w / n
			if share.Worker < w%n {
				p.slots++
			}
		}
		p.slots = max(p.slots, 1)
	case Rate:
		p.micro = max(uint64(math.Round(shape.PerS*1e6)), 1)
	}
	p.nextDue = p.Due(0)
	return p
}

// Next says how many connections to begin now, given how many of this worker
// are under way (from start to answer or failure), and when to ask again if
// nothing else happens. It changes nothing: tell what was really begun with
// Began. With rate it asks for at most 64 at once; wake is then now.
func (p *Pacer) Next(now int64, inflight int) (n int, wake int64) {
	left := p.conns - p.begun
	if left == 0 {
		return 0, Never
	}
	if now < p.start {
		return 0, p.start
	}
	switch p.kind {
	case Parallel:
		return int(min(left, max(p.slots-int64(inflight), 0))), Never
	case Rate:
		due := p.nextDue
		for due <= now {
			n++
			if int64(n) == left {
				return n, Never
			}
			if n == chunk {
				return n, now
			}
			due = p.Due(p.begun + int64(n))
		}
		return n, due
	default:
		return int(left), Never
	}
}

// Began tells that n more connections were begun, in order.
func (p *Pacer) Began(n int) {
	p.begun += int64(n)
	p.nextDue = p.Due(p.begun)
}

// Left is how many connections have not been begun.
func (p *Pacer) Left() int64 { return p.conns - p.begun }

// Paced says whether connections have due moments (rate): full connect then
// counts from Due.
func (p *Pacer) Paced() bool { return p.kind == Rate }

// Due is the moment the worker's j-th connection is meant to begin: T, with
// rate T + ⌊index·10⁹/R⌋ ns. It is exact for R in millionths, without drift,
// and stops at the end of time instead of overflowing.
func (p *Pacer) Due(j int64) int64 {
	if p.kind != Rate || j >= p.conns {
		return p.start
	}
	hi, lo := bits.Mul64(uint64(p.share.index(j)), 1e15)
	if hi >= p.micro {
		return Never
	}
	ns, _ := bits.Div64(hi, lo, p.micro)
	if ns > math.MaxInt64 || p.start > 0 && int64(ns) > math.MaxInt64-p.start {
		return Never
	}
	return p.start + int64(ns)
}
