package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"

	"rankstorm/rank"
)

// How offsets are found. A child sends t0 on its own clock, the parent answers
// with t1 and t2 (received and answered, parent's clock), t3 is when the child
// read the answer. With rtt = (t3-t0) - (t2-t1) the parent's clock is
//
//	parent = child + θ,  θ = ((t1-t0) + (t2-t3)) / 2,  |error of θ| ≤ rtt/2
//
// because the message cannot have taken less than no time either way. Of
// clockSamples samples the one with the least rtt is kept. The parent passes
// down its own offset φ to the root with bound β, valid at moment s of its
// clock, so
//
//	root = child + θ + φ,  bound = rtt/2 + δ(t3-t0) + β + δ|t1-s|
//
// which over the hops is the sum of rtt_min/2 and the drift terms. δ is
// driftNSPerS, what two clocks are taken to drift apart. The bound grows by δ
// with the distance from the sample's moment. A hop between processes of one
// boot id is exact (θ = 0, rtt = 0, no drift): they read the same clock.
const (
	clockSamples = 16
	driftNSPerS  = 30_000
)

// machineClock is CLOCK_MONOTONIC.
type machineClock struct{}

func (machineClock) Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("CLOCK_MONOTONIC cannot be read: " + err.Error()) // no Linux
	}
	return ts.Nano()
}

type clockPing struct {
	Seq uint32 `msgpack:"q"`
	T0  int64  `msgpack:"0"`
}

type clockPong struct {
	Seq uint32 `msgpack:"q"`
	T0  int64  `msgpack:"0"`
	T1  int64  `msgpack:"1"`
	T2  int64  `msgpack:"2"`
	t3  int64
}

// clockPoint is a known offset: root's clock = own clock + Offset at moment At.
type clockPoint struct {
	Gen    uint32 `msgpack:"g"` // which SyncClock found it, from 1
	At     int64  `msgpack:"t"` // own clock
	Offset int64  `msgpack:"o"`
	Bound  int64  `msgpack:"b"`
	Exact  bool   `msgpack:"x"` // the root's own clock: no drift
}

// boundAt is the bound at moment t of the same clock.
func (p clockPoint) boundAt(t int64) int64 {
	if p.Exact {
		return p.Bound
	}
	return p.Bound + drift(t-p.At)
}

// drift two clocks may have after ns, rounded up, ≥ 0.
func drift(ns int64) int64 {
	if ns < 0 {
		ns = -ns
	}
	return ns/1e9*driftNSPerS + (ns%1e9*driftNSPerS+1e9-1)/1e9
}

// compose makes the child's point from its best sample (nil: parent and child
// read the same clock, at is now) and the parent's point.
func compose(sample *clockPong, at int64, parent clockPoint) clockPoint {
	if sample == nil {
		return parent
	}
	s := *sample
	theta := half((s.T1 - s.T0) + (s.T2 - s.t3))
	return clockPoint{
		Gen:    parent.Gen,
		At:     at,
		Offset: theta + parent.Offset,
		Bound:  (s.rtt()+1)/2 + 1 + drift(s.t3-s.T0) + parent.boundAt(s.T1),
	}
}

func half(n int64) int64 { return n >> 1 }

// rtt is never negative: a sample of clocks that run apart within one round
// trip counts as 0.
func (s clockPong) rtt() int64 { return max(0, (s.t3-s.T0)-(s.T2-s.T1)) }

// interpolate gives offset and bound at moment t between two points; outside,
// the nearer one holds. Within, with w the share of the way from a to b, the
// error of the line is at most (1-w)(bound_a + δ(t-a)) + w(bound_b + δ(b-t)).
func interpolate(a, b clockPoint, t int64) (offset, bound int64) {
	switch {
	case t <= a.At || a.At >= b.At:
		if t >= b.At {
			return b.Offset, b.boundAt(t)
		}
		return a.Offset, a.boundAt(t)
	case t >= b.At:
		return b.Offset, b.boundAt(t)
	}
	w := float64(t-a.At) / float64(b.At-a.At)
	offset = a.Offset + int64(math.Round(w*float64(b.Offset-a.Offset)))
	bound = int64(math.Ceil((1-w)*float64(a.boundAt(t))+w*float64(b.boundAt(t)))) + 1
	return offset, bound
}

// clockState of a group.
type clockState struct {
	g        *Group
	sameRoot bool // this process reads the root's clock
	sameUp   bool // it reads the parent's clock

	running sync.Mutex // one SyncClock at a time
	gen     uint32     // of the last SyncClock
	seq     uint32

	pongs chan clockPong
	moved chan struct{} // something new in fromUp

	mu         sync.Mutex
	fromUp     clockPoint // the parent's newest
	prev, last clockPoint // Gen 0: none
}

func (k *clockState) init(g *Group) {
	k.g = g
	k.pongs = make(chan clockPong, clockSamples)
	k.moved = make(chan struct{}, 1)
	same := func(p rank.Proc) bool {
		id := g.table.Procs[g.self].HostID
		return p == g.self || id != [16]byte{} && g.table.Procs[p].HostID == id
	}
	k.sameRoot = same(0)
	if up := g.Parent(); up >= 0 {
		k.sameUp = same(up)
	}
}

// answerClock is the parent's side; at is when the ping was read.
func (l *link) answerClock(body []byte, at int64) error {
	var ping clockPing
	if err := decode(body, &ping); err != nil {
		return fmt.Errorf("broken clock ping: %w", err)
	}
	_ = l.sendMessage(frameClockPong, clockPong{Seq: ping.Seq, T0: ping.T0, T1: at, T2: l.g.clock.Now()})
	return nil
}

// take is the child's side of what the parent sends, called by the reader.
func (k *clockState) take(l *link, kind byte, body []byte, at int64) error {
	if !l.up {
		return errors.New("clock answer from a child")
	}
	if kind == frameClockPong {
		var pong clockPong
		if err := decode(body, &pong); err != nil {
			return fmt.Errorf("broken clock answer: %w", err)
		}
		pong.t3 = at
		select {
		case k.pongs <- pong:
		default: // of a SyncClock that was given up
		}
		return nil
	}
	var p clockPoint
	if err := decode(body, &p); err != nil {
		return fmt.Errorf("broken clock offset: %w", err)
	}
	k.mu.Lock()
	k.fromUp = p
	k.mu.Unlock()
	select {
	case k.moved <- struct{}{}:
	default:
	}
	return nil
}

// SyncClock measures the offset to the root's clock along the tree, now. Every
// process of the job calls it the same number of times, in any order; each
// waits until its parent is done. When ctx ends or the parent is lost the
// offset known before stays, with its growing bound.
func (g *Group) SyncClock(ctx context.Context) error {
	k := &g.clk
	k.running.Lock()
	defer k.running.Unlock()
	k.gen++
	point := clockPoint{Gen: k.gen, At: g.clock.Now(), Exact: true}
	if !k.sameRoot {
		var err error
		if point, err = k.measure(ctx, g.parent); err != nil {
			// Those below must not wait for what does not come: a bound of years says that this offset is worth nothing.
			worthless, _ := msgpack.Marshal(clockPoint{Gen: k.gen, At: g.clock.Now(), Bound: math.MaxInt64 / 4}) // plain numbers always encode
			_ = g.broadcast(frameClockState, worthless)
			return err
		}
	}
	k.mu.Lock()
	k.prev, k.last = k.last, point
	k.mu.Unlock()
	body, err := msgpack.Marshal(point)
	if err != nil {
		return rank.Errorf(rank.KindInternal, "cannot encode a clock offset: %w", err)
	}
	return g.broadcast(frameClockState, body)
}

// measure takes samples and waits for the parent's point of this generation.
func (k *clockState) measure(ctx context.Context, up *link) (clockPoint, error) {
	var best *clockPong
	if !k.sameUp {
		for range clockSamples {
			s, err := k.sample(ctx, up)
			if err != nil {
				return clockPoint{}, err
			}
			if best == nil || s.rtt() < best.rtt() {
				best = &s
			}
		}
	}
	for {
		k.mu.Lock()
		p := k.fromUp
		k.mu.Unlock()
		// Generations wrap around in theory only; an older one is waited out.
		if p.Gen >= k.gen {
			at := p.At
			if best != nil {
				at = best.T0 + (best.t3-best.T0)/2
			}
			point := compose(best, at, p)
			point.Gen = k.gen
			return point, nil
		}
		select {
		case <-k.moved:
		case <-up.done:
			return clockPoint{}, up.gone()
		case <-ctx.Done():
			return clockPoint{}, rank.Errorf(rank.KindTimeout, "no clock offset from process %d: %w", up.proc, context.Cause(ctx))
		}
	}
}

// sample is one round trip.
func (k *clockState) sample(ctx context.Context, up *link) (clockPong, error) {
	k.seq++
	if err := up.sendMessage(frameClockPing, clockPing{Seq: k.seq, T0: k.g.clock.Now()}); err != nil {
		return clockPong{}, err
	}
	for {
		select {
		case s := <-k.pongs:
			if s.Seq == k.seq {
				return s, nil
			}
		case <-up.done:
			return clockPong{}, up.gone()
		case <-ctx.Done():
			return clockPong{}, rank.Errorf(rank.KindTimeout, "no clock answer from process %d: %w", up.proc, context.Cause(ctx))
		}
	}
}

// Offset of the root's clock now: root's clock = own clock + offsetNS, off by
// at most boundNS. Both are 0 where the root's kernel runs this process too.
// Before the first SyncClock the offset is 0 and the bound math.MaxInt64.
func (g *Group) Offset() (offsetNS, boundNS int64) {
	return g.OffsetAt(g.clock.Now())
}

// OffsetAt is Offset at moment t of the own clock, interpolated between the
// last two SyncClock; before and after them the nearer one holds, with the
// bound grown by 30 µs per second of distance.
func (g *Group) OffsetAt(t int64) (offsetNS, boundNS int64) {
	k := &g.clk
	if k.sameRoot {
		return 0, 0
	}
	k.mu.Lock()
	a, b := k.prev, k.last
	k.mu.Unlock()
	switch {
	case b.Gen == 0:
		return 0, math.MaxInt64
	case a.Gen == 0:
		return b.Offset, b.boundAt(t)
	}
	return interpolate(a, b, t)
}
