package collect

import (
	"maps"
	"slices"
)

// addRound keeps the wall times of a slot.
func (d *Document) addRound(s *Summary) {
	r := RoundDoc{Seq: s.Seq, Phase: s.Phase, Round: s.Round, Stage: s.Stage, StepWalls: map[string]int64{}}
	for _, st := range s.Steps {
		if st.Total.Count > 0 && st.Side != SideTarget {
			r.StepWalls[st.Step] = st.LastEnd - st.FirstBegin
		}
	}
	began, wall, ok := s.span()
	if ok {
		began -= d.build.startNS
		r.BeganNS, r.WallNS = &began, &wall
	}
	d.build.rounds.add(s.Phase, r)
	if ok {
		d.build.rounds.measured("wall "+s.Phase, wall, r)
	}
}

// addBarrier keeps the barrier of a slot, and counts it.
func (d *Document) addBarrier(s *Summary) {
	b := s.Barrier
	out := BarrierDoc{Seq: s.Seq, Phase: s.Phase, Round: s.Round, Stage: s.Stage, BoundNS: s.BoundNS}
	rel := func(ns int64) *int64 { ns -= d.build.startNS; return &ns }
	if has(b.FirstInNS, b.LastInNS) > 0 {
		out.FirstInNS, out.LastInNS, out.LastInProc = rel(b.FirstInNS), rel(b.LastInNS), &b.LastInProc
	}
	if has(b.FirstOutNS, b.LastOutNS) > 0 {
		out.FirstOutNS, out.LastOutNS = rel(b.FirstOutNS), rel(b.LastOutNS)
	}
	if b.AtNS != 0 {
		out.AtNS = rel(b.AtNS)
	}
	if has(b.FirstReleaseNS, b.LastReleaseNS) > 0 {
		out.FirstReleaseNS, out.LastReleaseNS = rel(b.FirstReleaseNS), rel(b.LastReleaseNS)
		skew := b.LastReleaseNS - b.FirstReleaseNS
		out.ReleaseSkewNS = &skew
	}
	if out.LastInNS != nil && out.LastOutNS != nil {
		took := b.LastOutNS - b.LastInNS
		out.BarrierNS = &took
	}
	to := &d.build.barriers
	to.add(s.Phase, out)
	if out.BarrierNS != nil {
		d.build.took.add(*out.BarrierNS)
		to.measured("barrier", *out.BarrierNS, out)
	}
	if out.ReleaseSkewNS != nil {
		d.build.skew.add(*out.ReleaseSkewNS)
		to.measured("skew", *out.ReleaseSkewNS, out)
	}
	d.build.lastBarrier = &out
}

// LastBarrier is the barrier of the slot that was added last, nil before the first and after Finish.
func (d *Document) LastBarrier() *BarrierDoc {
	if d.build == nil {
		return nil
	}
	return d.build.lastBarrier
}

// figures counts differences of stamps, ns. Two clocks may make one negative; it counts as 0 in the histogram.
type figures struct {
	count, sum, low, high int64
	buckets               map[int32]int64
}

func (f *figures) add(ns int64) {
	if f.buckets == nil {
		f.buckets, f.low, f.high = map[int32]int64{}, ns, ns
	}
	f.count++
	f.sum += ns
	f.low, f.high = min(f.low, ns), max(f.high, ns)
	f.buckets[bucketIndex(min(max(ns, 0), highestNS))]++
}

func (f *figures) doc() FiguresDoc {
	out := FiguresDoc{Count: f.count, Hist: [][2]int64{}}
	if f.count > 0 {
		out.SumNS, out.MinNS, out.MaxNS = &f.sum, &f.low, &f.high
	}
	for _, i := range slices.Sorted(maps.Keys(f.buckets)) {
		out.Hist = append(out.Hist, [2]int64{bucketUpper(i), f.buckets[i]})
	}
	return out
}

// median is the nearest-rank median from the histogram, clamped to the exact extremes; nil of nothing.
func (f FiguresDoc) median() *int64 {
	if f.Count == 0 {
		return nil
	}
	var seen int64
	for _, b := range f.Hist {
		if seen += b[1]; seen >= (f.Count+1)/2 {
			ns := min(max(b[0], *f.MinNS), *f.MaxNS)
			return &ns
		}
	}
	return f.MaxNS
}

// finishSlots puts what was kept of barriers and slots into the document.
func (d *Document) finishSlots() {
	b := d.build
	d.Barriers, d.BarriersMore = b.barriers.list()
	d.BarrierStats = BarrierStats{BarrierNS: b.took.doc(), ReleaseSkewNS: b.skew.doc()}
	d.Rounds, d.RoundsMore = b.rounds.list()
}
