package collect

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rankstorm/rank"
)

// cutDoc is an all_to_all of hosts × per ranks whose document lists as many
// edges as real ones do; of the rest only the slowest stand there.
func cutDoc(hosts, per int, ms func(a, b int) float64) *Document {
	d := edgeDoc(hosts, per, 4, ms)
	d.Size = int64(hosts * per)
	d.Edges = int64(len(d.EdgeList))
	full := StepDoc{Step: "full connect", Side: SideInitiator}
	for _, r := range d.Ranks {
		one := PerRankDoc{Rank: r.Rank}
		var sum int64
		for _, e := range d.EdgeList {
			if e.From == r.Rank {
				one.Count += e.Established
				sum += *e.SumNS
			}
		}
		one.SumNS = &sum
		full.PerRank = append(full.PerRank, one)
	}
	d.Phases[0].Steps = []StepDoc{full}
	if SumsTargets(d.Edges, d.Size) {
		sums := make([]EdgeSum, len(d.EdgeList))
		for i, e := range d.EdgeList {
			sums[i] = EdgeSum{To: e.To, Established: e.Established, SumNS: *e.SumNS}
		}
		d.TargetSums = SumTargets(sums)
	}
	d.EdgeList = capEdgeDocs(d.EdgeList)
	d.EdgesMore = d.Edges - int64(len(d.EdgeList))
	return d
}

// What is slow is found in a job of more edges than its document lists.
func TestSlowPathsBeyondTheListedEdges(t *testing.T) {
	even := func(a, b int) float64 { return 1 + 0.1*float64((7*a+3*b)%5) }
	for _, c := range []struct {
		name       string
		hosts, per int
		ms         func(a, b int) float64
		want       []string
	}{
		{"even", 128, 1, even, nil},
		{"quick within hosts", 32, 4, func(a, b int) float64 { return even(a, b) * pick(a/4 != b/4, 20) }, nil},
		{
			"a target", 128, 1, func(a, b int) float64 { return even(a, b) * pick(b == 120, 12) },
			[]string{"slow_target connect: rank 120 (n120) as target is 12.0 times slower: full connect takes 14.4 ms on average over all its 127 edges, median of 128 targets 1.20 ms"},
		},
		{
			"a host of targets", 64, 2, func(a, b int) float64 { return even(a, b) * pick(b/2 == 60, 12) },
			[]string{"slow_host connect: all 2 ranks of host n60 are slow, most of all rank 12"},
		},
		{
			"an initiator beyond the list", 128, 1, func(a, b int) float64 { return even(a, b) * pick(a == 120, 12) },
			[]string{"slow_initiator connect: rank 120 (n120) as initiator is 12.0 times slower: full connect takes 14.4 ms on average over all its 127 edges, median of 128 initiators 1.20 ms"},
		},
		{
			"a rank in both roles", 128, 1, func(a, b int) float64 { return even(a, b) * pick(a == 120 || b == 120, 12) },
			[]string{"slow_rank connect: rank 120 (n120) as "},
		},
		{
			"a host beyond the list", 64, 2, func(a, b int) float64 { return even(a, b) * pick(a/2 == 60, 12) },
			[]string{"slow_host connect: all 2 ranks of host n60 are slow"},
		},
		{"a far initiator", 128, 1, func(a, b int) float64 { return even(a, b) * pick(a == 120, 2.5) }, nil},
	} {
		d := cutDoc(c.hosts, c.per, c.ms)
		if d.EdgesMore == 0 {
			t.Fatalf("%s: the document lists all edges", c.name)
		}
		got := Diagnose(d)
		if len(got) != len(c.want) {
			t.Errorf("%s: causes %+v, want %v", c.name, got, c.want)
			continue
		}
		for i, w := range c.want {
			if text := got[i].Kind + " " + got[i].Evidence; !strings.HasPrefix(text, w) {
				t.Errorf("%s: %s, want %s", c.name, text, w)
			}
		}
	}
}

// largeDoc is an all_to_all of so many ranks, each on its own host, in which all takes 1 ms but for what reaches slow.
func largeDoc(size, slow int) *Document {
	d := &Document{Size: int64(size), Procs: int64(size), RanksPerProc: 1, Transport: "tcp", Edges: int64(size) * int64(size-1)}
	full := StepDoc{Step: "full connect", Side: SideInitiator}
	others := int64(size - 1)
	for r := range size {
		host := "n" + strconv.Itoa(r)
		d.Ranks = append(d.Ranks, RankDoc{Rank: rank.Rank(r), Proc: rank.Proc(r), Host: host})
		d.Hosts = append(d.Hosts, Host{Host: host, Ranks: 1})
		out, in := others*ms, others*ms
		if r == slow {
			in *= 20
		} else {
			out += 19 * ms
		}
		full.PerRank = append(full.PerRank, PerRankDoc{Rank: rank.Rank(r), Count: others, SumNS: &out})
		d.TargetSums = append(d.TargetSums, TargetSum{Rank: rank.Rank(r), Established: others, SumNS: in})
		for to := range size {
			if to == r || len(d.EdgeList) >= EdgesFirst {
				continue
			}
			ns := ms
			if to == slow {
				ns *= 20
			}
			d.EdgeList = append(d.EdgeList, EdgeDoc{From: rank.Rank(r), To: rank.Rank(to), Established: 1, SumNS: &ns, MaxNS: &ns})
		}
	}
	d.EdgesMore = d.Edges - int64(len(d.EdgeList))
	d.Phases = []PhaseDoc{{Phase: "connect", Steps: []StepDoc{full}}}
	return d
}

// Of so many ranks the list holds less than three edges of most targets: too few to judge them by. Their sums do.
func TestSlowTargetOfALargeJob(t *testing.T) {
	for _, slow := range []int{2, 3700, 3999} {
		d := largeDoc(4000, slow)
		want := fmt.Sprintf("connect: rank %d (n%[1]d) as target is 20.0 times slower: full connect takes 20.0 ms on average over all its 3,999 edges, median of 4000 targets 1.00 ms", slow)
		if got := Diagnose(d); len(got) != 1 || got[0].Kind != "slow_target" || got[0].Evidence != want {
			t.Errorf("causes %+v, want %s", got, want)
		}
		d.TargetSums = nil
		if got := Diagnose(d); len(got) != 0 {
			t.Errorf("without sums: %+v", got)
		}
	}
	if got := Diagnose(largeDoc(4000, -1)); len(got) != 0 {
		t.Errorf("nothing is slow: %+v", got)
	}
}

func TestSumTargets(t *testing.T) {
	for _, c := range []struct {
		edges, size int64
		want        bool
	}{{105 * 106, 106, true}, {104 * 105, 105, false}, {105 * 106, 107, false}, {20_000, 20_000, false}} {
		if got := SumsTargets(c.edges, c.size); got != c.want {
			t.Errorf("%d edges of %d ranks: %v", c.edges, c.size, got)
		}
	}
	a := SumTargets([]EdgeSum{{From: 0, To: 5, Established: 2, SumNS: 7}, {From: 0, To: 1}, {From: 0, To: 5, Stage: 1, Established: 1, SumNS: 3}})
	b := SumTargets([]EdgeSum{{From: 1, To: 0, Established: 1, SumNS: 9}, {From: 1, To: 5, Established: 1, SumNS: 1}})
	ab, err := mergeTargets(a, b)
	ba, err2 := mergeTargets(b, a)
	want := []TargetSum{{0, 1, 9}, {1, 0, 0}, {5, 4, 11}}
	if err != nil || err2 != nil || !slices.Equal(ab, want) || !slices.Equal(ba, want) {
		t.Errorf("%v, %v; %v, %v, want %v", ab, ba, err, err2, want)
	}
	if _, err := mergeTargets([]TargetSum{{0, 1, math.MaxInt64}}, []TargetSum{{0, 1, 1}}); err == nil {
		t.Error("a sum that overflows is taken")
	}
	for _, bad := range [][]TargetSum{{{-1, 0, 0}}, {{0, -1, 0}}, {{0, 0, -1}}, {{1, 0, 0}, {1, 0, 0}}, {{2, 0, 0}, {1, 0, 0}}} {
		x, err := marshalSummary(&Summary{Phase: "connect", Covers: []uint64{1}, Targets: bad})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeSummary(x); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

// A rank alone on its host has only long ways; its sum is not held against those
// of ranks that share one.
func TestFarInitiatorBeyondTheListIsNotSlow(t *testing.T) {
	d := cutDoc(128, 1, func(a, b int) float64 { return 1 + 19*float64(max(a, b)/127) })
	for i := range 127 {
		d.Ranks[i].Host = "near"
	}
	d.Hosts = []Host{{Host: "near", Ranks: 127}, {Host: "n127", Ranks: 1}}
	if got := Diagnose(d); len(got) != 0 {
		t.Errorf("causes %+v, want none", got)
	}
}

// Sums of ranks with different peers say nothing about the ranks.
func TestSumsOfAnotherTopologyAreNotCompared(t *testing.T) {
	d := cutDoc(128, 1, func(a, _ int) float64 { return pick(a == 120, 12) })
	d.Edges--
	if got := Diagnose(d); len(got) != 0 {
		t.Errorf("causes %+v, want none", got)
	}
}
