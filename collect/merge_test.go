package collect

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"rankstorm/rank"
	"rankstorm/transport"
)

var equal = cmp.Options{cmpopts.EquateEmpty()}

// sample is one raw measurement: what the merged figures must be made of.
type sample struct {
	edge  EdgeConn
	begin int64
	ns    int64
	class Class
	cause transport.Cause
}

// rawStep reduces samples of one rank by ReduceStep.
func rawStep(t *rapid.T, r rank.Rank, step transport.Step, samples []sample) StepSum {
	s := NewStamps([]transport.Step{step}, len(samples))
	for i, x := range samples {
		if x.cause != transport.CauseNone {
			s.Fail(i, step, x.cause)
			continue
		}
		s.Set(step, i, x.begin, x.begin+x.ns)
	}
	out, err := ReduceStep(StepInput{Step: step, Order: int32(step), Rank: r, Workers: []WorkerStamps{{
		Stamps: s, N: len(samples),
		Edge: func(i int) (EdgeConn, Class) { return samples[i].edge, samples[i].class },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// drawSummary invents process p's summary with one rank and returns its samples.
func drawSummary(t *rapid.T, p int) (*Summary, map[transport.Step][]sample) {
	s := &Summary{Seq: 3, Phase: "connect", Covers: make([]uint64, p/64+1), BoundNS: rapid.Int64Range(0, 1000).Draw(t, "bound")}
	s.Covers[p/64] |= 1 << (p % 64)
	r := rank.Rank(p)
	raw := map[transport.Step][]sample{}
	for _, step := range []transport.Step{transport.StepConnect, transport.StepFullConnect, transport.StepAccept} {
		for i := range rapid.IntRange(0, 12).Draw(t, "samples") {
			raw[step] = append(raw[step], sample{
				edge: EdgeConn{From: r, To: rank.Rank(rapid.IntRange(100, 103).Draw(t, "to")), Conn: int32(i)},
				// Few different values, so that ties happen.
				ns: rapid.Int64Range(0, 4).Draw(t, "ns") * 1000, begin: rapid.Int64Range(0, 100).Draw(t, "begin"),
				class: Class(rapid.IntRange(0, 2).Draw(t, "class")),
				cause: transport.Cause(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 3}).Draw(t, "cause")),
			})
		}
		if len(raw[step]) > 0 {
			s.Steps = append(s.Steps, rawStep(t, r, step, raw[step]))
		}
	}
	in := rapid.Int64Range(0, 50).Draw(t, "in")
	s.Barrier = Barrier{FirstInNS: in, LastInNS: in, LastInProc: rank.Proc(p), FirstOutNS: in, LastOutNS: in + 5, AtNS: 100}
	s.Ranks = []RankPhase{{Rank: r, BeganNS: in, EndedNS: in + 10}}
	s.Conns = Conns{Started: 7, Broken: 2, Failed: rapid.Int64Range(0, 3).Draw(t, "failed")}
	s.Resources = []ProcResources{{Proc: rank.Proc(p), Moment: "before", FDs: 3}, {Proc: rank.Proc(p), Moment: "after", FDs: 3}}
	s.Clocks = []ProcClock{{Proc: rank.Proc(p), OffsetNS: int64(p)}}
	for i := range rapid.IntRange(0, 60).Draw(t, "errors") {
		s.Errors = append(s.Errors, rank.Error{Proc: rank.Proc(p), Ranks: []rank.Rank{r}, Peer: rank.Rank(i % 7), Text: fmt.Sprint(i % 5), Kind: rank.KindTimeout})
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "edges") {
		s.Edges = append(s.Edges, EdgeSum{From: r, To: rank.Rank(100 + i), Weight: 1, MaxNS: int64(i * p)})
	}
	if err := s.Normalize(); err != nil {
		t.Fatal(err)
	}
	return s, raw
}

func TestMergeOrderNeverMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*Summary
		for p := range rapid.IntRange(1, 7).Draw(t, "procs") {
			s, _ := drawSummary(t, p*31)
			all = append(all, s)
		}
		want := &Summary{}
		for _, s := range all {
			mustMergeSummary(t, want, s)
		}
		// Any tree: join two at random until one is left.
		list := rapid.Permutation(all).Draw(t, "order")
		for len(list) > 1 {
			i := rapid.IntRange(0, len(list)-2).Draw(t, "pair")
			joined := &Summary{}
			mustMergeSummary(t, joined, list[i+1])
			mustMergeSummary(t, joined, list[i])
			list = append(append(append([]*Summary{}, list[:i]...), joined), list[i+2:]...)
		}
		if len(all) == 1 {
			return
		}
		if diff := cmp.Diff(want, list[0], equal); diff != "" {
			t.Fatalf("another order gives another summary:\n%s", diff)
		}
		b1, err1 := EncodeSummary(want)
		b2, err2 := EncodeSummary(list[0])
		if err1 != nil || err2 != nil || string(b1) != string(b2) {
			t.Fatalf("another order gives other bytes (%v, %v)", err1, err2)
		}
		back, err := DecodeSummary(b1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, back, equal); diff != "" {
			t.Fatalf("decoded differs:\n%s", diff)
		}
	})
}

func mustMergeSummary(t *rapid.T, dst, src *Summary) {
	if err := Merge(dst, src); err != nil {
		t.Fatal(err)
	}
}

// Merged figures are those of all raw samples put together.
func TestMergeEqualsRawSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		merged := &Summary{}
		raw, steps := map[transport.Step][]sample{}, map[string]transport.Step{}
		for p := range rapid.IntRange(1, 6).Draw(t, "procs") {
			s, samples := drawSummary(t, p)
			mustMergeSummary(t, merged, s)
			for step, list := range samples {
				raw[step] = append(raw[step], list...)
				steps[step.String()] = step
			}
		}
		if len(merged.Steps) != len(raw) {
			t.Fatalf("%d steps, want %d", len(merged.Steps), len(raw))
		}
		for _, got := range merged.Steps {
			step := steps[got.Step]
			want := rawStep(t, 0, step, raw[step]) // as if one rank had measured all
			if diff := cmp.Diff(want, got, equal, cmpopts.IgnoreFields(StepSum{}, "PerRank")); diff != "" {
				t.Fatalf("%s: merged differs from raw:\n%s", got.Step, diff)
			}
		}
	})
}

func TestMergeLeavesSourceAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, _ := drawSummary(t, 0)
		b, _ := drawSummary(t, 1)
		before, err := EncodeSummary(b)
		if err != nil {
			t.Fatal(err)
		}
		mustMergeSummary(t, a, b)
		for i := range a.Steps {
			for c, m := range a.Steps[i].Classes {
				m.Count++
				a.Steps[i].Classes[c] = m
			}
			for j := range a.Steps[i].Hist {
				a.Steps[i].Hist[j].Count++
			}
		}
		for i := range a.Errors {
			for j := range a.Errors[i].Ranks {
				a.Errors[i].Ranks[j]++
			}
		}
		after, err := EncodeSummary(b)
		if err != nil || string(before) != string(after) {
			t.Fatalf("the source changed with the destination (%v)", err)
		}
	})
}

func TestMergeRefuses(t *testing.T) {
	base := func() *Summary {
		return &Summary{
			Seq: 2, Phase: "connect", Covers: []uint64{1}, Ranks: []RankPhase{{Rank: 0}},
			Steps: []StepSum{{
				Step: "connect", Side: SideInitiator, Total: Moments{Count: 1, SumNS: 1<<63 - 1},
				PerRank: []RankSum{{Rank: 0, Moments: Moments{Count: 1}}},
			}},
		}
	}
	for _, c := range []struct {
		name string
		edit func(*Summary)
		want string
	}{
		{"same process", func(*Summary) {}, "processes 0 are counted twice"},
		{"other slot", func(s *Summary) { s.Seq = 3 }, "slot 2 (connect, round 0, stage 0) with slot 3"},
		{"other phase", func(s *Summary) { s.Phase = "probe" }, "with slot 2 (probe"},
		{"same rank", func(s *Summary) { s.Covers = []uint64{2}; s.Steps = nil }, "reported twice"},
		{"overflow", func(s *Summary) { s.Covers = []uint64{2}; s.Ranks = nil; s.Steps[0].PerRank = nil }, "overflows"},
		{"same rank in a step", func(s *Summary) {
			s.Covers = []uint64{2}
			s.Ranks = nil
			s.Steps[0].Total.SumNS = 0
		}, "reported twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dst, src := base(), base()
			c.edit(src)
			err := Merge(dst, src)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Merge = %v, want an error with %q", err, c.want)
			}
			if !reflect.DeepEqual(dst, base()) {
				t.Error("a refused merge changed the destination")
			}
		})
	}
}

// However edges are split and merged, the same ones are kept.
func TestEdgeCapIsMergeable(t *testing.T) {
	const n = 3 * EdgesFirst / 2
	edge := func(i int) EdgeSum {
		e := EdgeSum{From: rank.Rank(i / 400), To: rank.Rank(i % 400), Planned: 1}
		e.MaxNS = int64(e.hash() % 50) // many ties
		return e
	}
	whole := &Summary{Phase: "connect", Covers: []uint64{1}}
	for i := range n {
		whole.Edges = append(whole.Edges, edge(i))
	}
	if err := whole.Normalize(); err != nil {
		t.Fatal(err)
	}
	if got := int64(len(whole.Edges)) + whole.EdgesMore; got != n {
		t.Errorf("kept and left out are %d edges, want %d", got, n)
	}
	if kept := len(whole.Edges); kept <= EdgesFirst || kept > EdgesFirst+EdgesWorst+EdgesSampled {
		t.Errorf("kept %d edges", kept)
	}
	worst := int64(0)
	for _, e := range whole.Edges[EdgesFirst:] {
		worst = max(worst, e.MaxNS)
	}
	if worst != 49 {
		t.Errorf("the slowest edge kept beyond the first has %d ns, want 49", worst)
	}
	for _, parts := range []int{2, 7, 64} {
		list := make([]*Summary, parts)
		for p := range parts {
			list[p] = &Summary{Phase: "connect", Covers: []uint64{1 << p}}
		}
		for i := range n {
			p := int(edge(i).hash()>>20) % parts
			list[p].Edges = append(list[p].Edges, edge(i))
		}
		merged := &Summary{}
		for p := range parts { // pairs first, then all: another grouping
			if err := list[p].Normalize(); err != nil {
				t.Fatal(err)
			}
			if p%2 == 1 {
				pair := &Summary{}
				for _, s := range []*Summary{list[p], list[p-1], merged} {
					if err := Merge(pair, s); err != nil {
						t.Fatal(err)
					}
				}
				merged = pair
			} else if p == parts-1 {
				if err := Merge(merged, list[p]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !reflect.DeepEqual(merged.Edges, whole.Edges) || merged.EdgesMore != whole.EdgesMore {
			t.Errorf("%d parts keep %d edges and leave out %d; at once: %d and %d", parts, len(merged.Edges), merged.EdgesMore, len(whole.Edges), whole.EdgesMore)
		}
	}
}
