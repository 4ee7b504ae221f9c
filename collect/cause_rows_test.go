package collect

import (
	"strings"
	"testing"
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
			[]string{"slow_target connect: rank 120 (n120) as target is 12.0 times slower: full connect takes 14.4 ms on average over 78 listed edges, median of 128 targets 1.20 ms"},
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
