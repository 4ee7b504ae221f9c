package collect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rankstorm/rank"
)

// Caps of a summary. They bound what travels and what the document lists; the
// counts beside them stay exact.
const (
	MaxErrors    = 100    // typed failures
	EdgesFirst   = 10_000 // edges kept in order of (from, to)
	EdgesWorst   = 100    // of the others: those with the longest full connect
	EdgesSampled = 1_000  // of the others: those with the smallest hash of (from, to)
	MaxPauses    = 1_000  // the longest; of a slot, and of a document
)

// edgeSeed fixes which edges the sample holds: the same in every process and run.
const edgeSeed = 0x9e3779b97f4a7c15

// Merge adds src to dst. It is associative and commutative: the result does not
// depend on the order or grouping of merges. src is not changed and dst shares
// nothing with it afterwards. A zero summary is neutral on either side. Errors (dst is
// then unchanged): different slots; a process covered by both; a rank, edge or
// process reported by both; a sum that overflows.
func Merge(dst, src *Summary) error {
	if src.isZero() {
		return nil
	}
	out := *dst
	if dst.isZero() {
		out.Seq, out.Phase, out.Round, out.Stage = src.Seq, src.Phase, src.Round, src.Stage
	} else if out.Seq != src.Seq || out.Phase != src.Phase || out.Round != src.Round || out.Stage != src.Stage {
		return fmt.Errorf("merge summaries: slot %d (%s, round %d, stage %d) with slot %d (%s, round %d, stage %d)",
			out.Seq, out.Phase, out.Round, out.Stage, src.Seq, src.Phase, src.Round, src.Stage)
	}
	var err error
	if out.Covers, err = mergeCovers(dst.Covers, src.Covers); err == nil {
		if out.Steps, err = mergeSteps(dst.Steps, src.Steps, false); err == nil {
			err = out.mergeLists(dst, src)
		}
	}
	if err != nil {
		return fmt.Errorf("merge summaries of slot %d (%s): %w", out.Seq, out.Phase, err)
	}
	out.Barrier = mergeBarrier(dst.Barrier, src.Barrier)
	out.BoundNS = max(dst.BoundNS, src.BoundNS)
	out.Control = dst.Control.plus(src.Control)
	out.Held = dst.Held.plus(src.Held)
	*dst = out
	return nil
}

func (s *Summary) isZero() bool {
	return s.Phase == "" && len(s.Covers) == 0
}

func (s *Summary) mergeLists(a, b *Summary) error {
	var err error
	if s.Ranks, err = mergeSorted(a.Ranks, b.Ranks, func(x, y RankPhase) int { return cmp.Compare(x.Rank, y.Rank) }); err != nil {
		return fmt.Errorf("ranks: %w", err)
	}
	if s.Conns, err = a.Conns.plus(b.Conns); err != nil {
		return err
	}
	edges, err := mergeSorted(a.Edges, b.Edges, EdgeSum.compare)
	if err != nil {
		return fmt.Errorf("edges: %w", err)
	}
	var cut int64
	s.Edges, cut = capEdges(edges)
	s.EdgesMore = a.EdgesMore + b.EdgesMore + cut
	if s.Targets, err = mergeTargets(a.Targets, b.Targets); err != nil {
		return err
	}
	if s.Resources, err = mergeSorted(a.Resources, b.Resources, ProcResources.compare); err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	if s.Clocks, err = mergeSorted(a.Clocks, b.Clocks, func(x, y ProcClock) int { return cmp.Compare(x.Proc, y.Proc) }); err != nil {
		return fmt.Errorf("clocks: %w", err)
	}
	if s.Ports, err = mergeSorted(a.Ports, b.Ports, PortSum.compare); err != nil {
		return fmt.Errorf("ports: %w", err)
	}
	s.Pauses, cut = capPauses(slices.Concat(a.Pauses, b.Pauses))
	s.PausesMore = a.PausesMore + b.PausesMore + cut
	s.Errors = append(slices.Clone(a.Errors), b.Errors...)
	s.Errors, cut = capErrors(s.Errors)
	s.ErrorsMore = a.ErrorsMore + b.ErrorsMore + cut
	return nil
}

// Normalize brings a summary that one process built into the form that Merge
// keeps: lists sorted, edges and errors capped. EncodeSummary does it. An entry
// that stands twice is an error; s is then unchanged.
func (s *Summary) Normalize() error {
	one := *s
	one.Steps = slices.Clone(one.Steps)
	slices.SortFunc(one.Steps, StepSum.compare)
	one.Ranks = slices.SortedFunc(slices.Values(one.Ranks), func(x, y RankPhase) int { return cmp.Compare(x.Rank, y.Rank) })
	one.Edges = slices.SortedFunc(slices.Values(one.Edges), EdgeSum.compare)
	one.Resources = slices.SortedFunc(slices.Values(one.Resources), ProcResources.compare)
	one.Clocks = slices.SortedFunc(slices.Values(one.Clocks), func(x, y ProcClock) int { return cmp.Compare(x.Proc, y.Proc) })
	one.Ports = slices.SortedFunc(slices.Values(one.Ports), PortSum.compare)
	normal := Summary{}
	if err := Merge(&normal, &one); err != nil {
		return err
	}
	*s = normal
	return nil
}

func mergeCovers(a, b []uint64) ([]uint64, error) {
	out := make([]uint64, max(len(a), len(b)))
	copy(out, a)
	for i, w := range b {
		if both := out[i] & w; both != 0 {
			var procs []rank.Rank
			for p := range 64 {
				if both>>p&1 == 1 {
					procs = append(procs, rank.Rank(i*64+p))
				}
			}
			return nil, fmt.Errorf("processes %s are counted twice", rank.FormatRanks(procs))
		}
		out[i] |= w
	}
	return out, nil
}

// mergeSorted joins two ascending lists without duplicates; an entry that is in
// both, or twice in one, is an error.
func mergeSorted[T any](a, b []T, compare func(T, T) int) ([]T, error) {
	if len(a)+len(b) == 0 {
		return nil, nil
	}
	out := make([]T, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var next T
		if len(b) == 0 || len(a) > 0 && compare(a[0], b[0]) <= 0 {
			next, a = a[0], a[1:]
		} else {
			next, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && compare(out[n-1], next) >= 0 {
			return nil, fmt.Errorf("entry %+v is reported twice or out of order", next)
		}
		out = append(out, next)
	}
	return out, nil
}

// mergeSteps joins the steps of two summaries. sameRanks allows a rank in both:
// the same rank in several slots, not in several processes.
func mergeSteps(a, b []StepSum, sameRanks bool) ([]StepSum, error) {
	if len(a)+len(b) == 0 {
		return nil, nil
	}
	out := make([]StepSum, 0, len(a)+len(b))
	for _, s := range a {
		out = append(out, s.clone())
	}
	for _, s := range b {
		i := slices.IndexFunc(out, func(o StepSum) bool { return o.Step == s.Step && o.Side == s.Side })
		if i < 0 {
			out = append(out, s.clone())
			continue
		}
		if err := out[i].merge(s, sameRanks); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Step, err)
		}
	}
	slices.SortFunc(out, StepSum.compare)
	return out, nil
}

func (s StepSum) clone() StepSum {
	s.Classes = maps.Clone(s.Classes)
	s.Hist = slices.Clone(s.Hist)
	s.PerRank = slices.Clone(s.PerRank)
	s.Failures = maps.Clone(s.Failures)
	return s
}

func (s StepSum) compare(o StepSum) int {
	return cmp.Or(cmp.Compare(s.Order, o.Order), strings.Compare(s.Step, o.Step), strings.Compare(s.Side, o.Side))
}

// merge adds o and keeps nothing of it.
func (s *StepSum) merge(o StepSum, sameRanks bool) error {
	s.FirstBegin, s.LastEnd = joinSpan(s.Total.Count, s.FirstBegin, s.LastEnd, o.Total.Count, o.FirstBegin, o.LastEnd)
	s.Order = min(s.Order, o.Order)
	if err := s.Total.add(o.Total); err != nil {
		return err
	}
	for class, m := range o.Classes {
		if s.Classes == nil {
			s.Classes = map[Class]Moments{}
		}
		sum := s.Classes[class]
		if err := sum.add(m); err != nil {
			return err
		}
		s.Classes[class] = sum
	}
	for cause, n := range o.Failures {
		if s.Failures == nil {
			s.Failures = map[string]int64{}
		}
		s.Failures[cause] += n
	}
	var err error
	if s.Hist, err = MergeBuckets(s.Hist, o.Hist); err != nil {
		return err
	}
	if sameRanks {
		s.PerRank, err = joinRanks(s.PerRank, o.PerRank)
	} else {
		s.PerRank, err = mergeSorted(s.PerRank, o.PerRank, func(x, y RankSum) int { return cmp.Compare(x.Rank, y.Rank) })
	}
	return err
}

// joinRanks adds two ascending lists rank by rank.
func joinRanks(a, b []RankSum) ([]RankSum, error) {
	out := make([]RankSum, 0, max(len(a), len(b)))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Rank < b[0].Rank:
			out, a = append(out, a[0]), a[1:]
		case len(a) == 0 || b[0].Rank < a[0].Rank:
			out, b = append(out, b[0]), b[1:]
		default:
			x, y := a[0], b[0]
			x.FirstBegin, x.LastEnd = joinSpan(x.Count, x.FirstBegin, x.LastEnd, y.Count, y.FirstBegin, y.LastEnd)
			x.Failed += y.Failed
			if err := x.Moments.add(y.Moments); err != nil {
				return nil, fmt.Errorf("rank %d: %w", x.Rank, err)
			}
			out, a, b = append(out, x), a[1:], b[1:]
		}
	}
	return out, nil
}

// joinSpan joins two spans of time, each of which exists only if its count > 0.
func joinSpan(n1, begin1, end1, n2, begin2, end2 int64) (begin, end int64) {
	switch {
	case n2 == 0:
		return begin1, end1
	case n1 == 0:
		return begin2, end2
	}
	return min(begin1, begin2), max(end1, end2)
}

func mergeBarrier(a, b Barrier) Barrier {
	out := a
	inA, inB := a.FirstInNS != 0 || a.LastInNS != 0, b.FirstInNS != 0 || b.LastInNS != 0
	switch {
	case !inA && !inB:
		out.LastInProc = 0 // nobody was last: a left-over number would depend on the order
	case !inA:
		out.FirstInNS, out.LastInNS, out.LastInProc = b.FirstInNS, b.LastInNS, b.LastInProc
	case inB:
		out.FirstInNS = min(a.FirstInNS, b.FirstInNS)
		if b.LastInNS > a.LastInNS || b.LastInNS == a.LastInNS && b.LastInProc < a.LastInProc {
			out.LastInNS, out.LastInProc = b.LastInNS, b.LastInProc
		}
	}
	out.FirstOutNS, out.LastOutNS = joinPair(a.FirstOutNS, a.LastOutNS, b.FirstOutNS, b.LastOutNS)
	out.FirstReleaseNS, out.LastReleaseNS = joinPair(a.FirstReleaseNS, a.LastReleaseNS, b.FirstReleaseNS, b.LastReleaseNS)
	// Every process hears the same T; one that never heard the go has none.
	out.AtNS = max(a.AtNS, b.AtNS)
	return out
}

func joinPair(first1, last1, first2, last2 int64) (first, last int64) {
	return joinSpan(has(first1, last1), first1, last1, has(first2, last2), first2, last2)
}

func has(first, last int64) int64 {
	if first == 0 && last == 0 {
		return 0
	}
	return 1
}

func (c Conns) plus(o Conns) (Conns, error) {
	for _, f := range []struct {
		sum *int64
		n   int64
	}{
		{&c.Started, o.Started},
		{&c.Established, o.Established},
		{&c.Accepted, o.Accepted},
		{&c.Dead, o.Dead},
		{&c.Failed, o.Failed},
		{&c.Broken, o.Broken},
	} {
		n, ok := addCount(*f.sum, f.n)
		if !ok {
			return c, fmt.Errorf("the number of connections overflows")
		}
		*f.sum = n
	}
	return c, nil
}

// capEdges keeps the first EdgesFirst edges, and of the others the EdgesWorst
// slowest and the EdgesSampled of smallest hash. Since every kept set is "the
// first of a total order", capping early and capping late give the same.
// edges must be ascending; cut says how many were left out.
func capEdges(edges []EdgeSum) (kept []EdgeSum, cut int64) {
	if len(edges) <= EdgesFirst {
		return edges, 0
	}
	first, rest := edges[:EdgesFirst:EdgesFirst], edges[EdgesFirst:]
	keep := make(map[[3]int32]bool, EdgesWorst+EdgesSampled)
	key := func(e EdgeSum) [3]int32 { return [3]int32{int32(e.From), int32(e.To), e.Stage} }
	byWorst := slices.SortedFunc(slices.Values(rest), func(x, y EdgeSum) int {
		return cmp.Or(cmp.Compare(y.MaxNS, x.MaxNS), x.compare(y))
	})
	for _, e := range byWorst[:min(EdgesWorst, len(byWorst))] {
		keep[key(e)] = true
	}
	byHash := slices.SortedFunc(slices.Values(rest), func(x, y EdgeSum) int {
		return cmp.Or(cmp.Compare(x.hash(), y.hash()), x.compare(y))
	})
	for _, e := range byHash[:min(EdgesSampled, len(byHash))] {
		keep[key(e)] = true
	}
	kept = first
	for _, e := range rest {
		if keep[key(e)] {
			kept = append(kept, e)
		}
	}
	return kept, int64(len(edges) - len(kept))
}

func (e EdgeSum) compare(o EdgeSum) int {
	return cmp.Or(cmp.Compare(e.From, o.From), cmp.Compare(e.To, o.To), cmp.Compare(e.Stage, o.Stage))
}

// hash mixes (from, to) with the finalizer of splitmix64.
func (e EdgeSum) hash() uint64 {
	x := (uint64(uint32(e.From))<<32 | uint64(uint32(e.To))) + edgeSeed
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (e EdgeConn) compare(o EdgeConn) int {
	return cmp.Or(cmp.Compare(e.From, o.From), cmp.Compare(e.To, o.To), cmp.Compare(e.Conn, o.Conn))
}

func (r ProcResources) compare(o ProcResources) int {
	return cmp.Or(cmp.Compare(r.Proc, o.Proc), strings.Compare(r.Moment, o.Moment))
}

// capErrors keeps the MaxErrors first errors in the order of compareErrors.
func capErrors(errs []rank.Error) (kept []rank.Error, cut int64) {
	for i := range errs {
		// The local cause does not travel; keep what it says.
		if errs[i].Text == "" && errs[i].Err != nil {
			errs[i].Text = errs[i].Err.Error()
		}
		errs[i].Err = nil
		errs[i].Ranks = slices.Clone(errs[i].Ranks)
	}
	slices.SortFunc(errs, compareErrors)
	if len(errs) > MaxErrors {
		cut = int64(len(errs) - MaxErrors)
		errs = errs[:MaxErrors:MaxErrors]
	}
	return errs, cut
}

// compareErrors is a total order over all fields that travel.
func compareErrors(a, b rank.Error) int {
	return cmp.Or(
		cmp.Compare(a.Proc, b.Proc), slices.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Peer, b.Peer),
		strings.Compare(a.Phase, b.Phase), strings.Compare(a.Step, b.Step), cmp.Compare(a.Kind, b.Kind),
		strings.Compare(a.Text, b.Text), strings.Compare(a.Host, b.Host), cmp.Compare(a.Signal, b.Signal),
	)
}
