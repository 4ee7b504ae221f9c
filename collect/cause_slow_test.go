package collect

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"rankstorm/rank"
)

// edgeDoc is a document of hosts × per ranks in which every edge that is kept
// has conns connections that take ms(from, to).
func edgeDoc(hosts, per, conns int, ms func(a, b int) float64) *Document {
	j := &plantedJob{size: hosts * per, per: per}
	d := &Document{Transport: "tcp", RanksPerProc: 1}
	for r := range j.size {
		d.Ranks = append(d.Ranks, RankDoc{Rank: rank.Rank(r), Proc: rank.Proc(r), Host: j.host(r)})
		if r%per == 0 {
			d.Hosts = append(d.Hosts, Host{Host: j.host(r), Ranks: int64(per)})
		}
	}
	d.Phases = []PhaseDoc{{Phase: "connect"}}
	for a := range j.size {
		for b := range j.size {
			if a == b || ms(a, b) == 0 {
				continue
			}
			one := int64(ms(a, b) * 1e6)
			sum := one * int64(conns)
			d.EdgeList = append(d.EdgeList, EdgeDoc{From: rank.Rank(a), To: rank.Rank(b), Established: int64(conns), SumNS: &sum, MaxNS: &one})
		}
	}
	return d
}

func TestSlowPaths(t *testing.T) {
	even := func(a, b int) float64 { return 1 + 0.1*float64((7*a+3*b)%5) }
	for _, c := range []struct {
		name       string
		hosts, per int
		conns      int
		ms         func(a, b int) float64
		want       []string // kind and beginning of the evidence
	}{
		{"even", 8, 1, 4, even, nil},
		{
			"a target", 8, 1, 4, func(a, b int) float64 { return even(a, b) * pick(b == 3, 12) },
			[]string{"slow_target connect: rank 3 (n3) as target is 1"},
		},
		{"a target, 4 ms longer", 8, 1, 4, func(a, b int) float64 { return even(a, b) * pick(b == 3, 4.2) }, nil},
		{
			"an initiator", 8, 1, 4, func(a, b int) float64 { return even(a, b) * pick(a == 3, 12) },
			[]string{"slow_initiator connect: rank 3 (n3) as initiator is 1"},
		},
		{
			"both", 8, 1, 4, func(a, b int) float64 { return even(a, b) * pick(a == 3 || b == 3, 12) },
			[]string{"slow_rank connect: rank 3 (n3) as "},
		},
		{
			"an edge", 8, 1, 4, func(a, b int) float64 { return even(a, b) * pick(a == 2 && b == 5, 20) },
			[]string{"slow_edge connect: 2 (n2) → 5 (n5) is "},
		},
		{"an edge of two connections", 8, 1, 2, func(a, b int) float64 { return even(a, b) * pick(a == 2 && b == 5, 20) }, nil},
		{
			"a host", 5, 2, 4, func(a, b int) float64 { return even(a, b) * pick(a/2 == 1 || b/2 == 1, 12) },
			[]string{"slow_host connect: all 2 ranks of host n1 are slow"},
		},
		{
			"one rank of a host of two", 5, 2, 4, func(a, b int) float64 { return even(a, b) * pick(b == 3, 12) },
			[]string{"slow_target connect: rank 3 (n1)"},
		},
		{"quick within hosts", 4, 4, 4, func(a, b int) float64 { return even(a, b) * pick(a/4 != b/4, 20) }, nil},
		{
			"incast, one initiator", 8, 1, 4, func(a, b int) float64 { return pick(b == 0, even(a, b)*pick(a == 3, 12)) * pick(b != 0, 0) },
			[]string{"slow_initiator connect: rank 3 (n3)"},
		},
		{
			"ring, one edge", 8, 1, 4, func(a, b int) float64 { return pick((a+1)%8 != b, 0) * even(a, b) * pick(a == 3, 20) },
			[]string{"slow_edge connect: 3 (n3) → 4 (n4) is "},
		},
		{"three ranks", 3, 1, 4, func(a, b int) float64 { return even(a, b) * pick(b == 1, 30) }, nil},
	} {
		got := Diagnose(edgeDoc(c.hosts, c.per, c.conns, c.ms))
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

// pick is v if it holds, else 1: a factor.
func pick(holds bool, v float64) float64 {
	if holds {
		return v
	}
	return 1
}

// What another line explains is not told again.
func TestSlowTargetIsNotToldTwice(t *testing.T) {
	slow := func() *Document {
		return edgeDoc(8, 1, 4, func(_, b int) float64 { return pick(b == 3, 50) })
	}
	if got := Diagnose(slow()); len(got) != 1 || got[0].Kind != "slow_target" {
		t.Fatalf("causes %+v, want the slow target", got)
	}
	late := slow()
	for r := range 8 {
		ns := int64(1000)
		if r == 3 {
			ns = 48e6
		}
		late.Phases[0].Ranks = append(late.Phases[0].Ranks, RankPhaseDoc{Rank: rank.Rank(r), LateNS: &ns})
	}
	if got := Diagnose(late); len(got) != 1 || got[0].Kind != "straggler" {
		t.Errorf("causes %+v, want the straggler alone", got)
	}
	full := slow()
	zero, drops := int64(0), int64(7)
	full.Resources = []ResourceDoc{{Proc: 3, Host: "n3", Before: &Held{ListenDrops: &zero}, After: &Held{ListenDrops: &drops}}}
	if got := Diagnose(full); len(got) != 1 || got[0].Kind != "drops" {
		t.Errorf("causes %+v, want the overflow alone", got)
	}
}

// A matrix made of effects is taken apart into them, whatever a tenth of its
// cells say.
func TestMedianPolishFindsTheEffects(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const rows, cols = 15, 11
	row, col := make([]float64, rows), make([]float64, cols)
	for i := range row {
		row[i] = float64(i%7) - 3 // median 0
	}
	for i := range col {
		col[i] = float64(i) - 5
	}
	var cells []cell
	wild := 0
	for i := range rows {
		for j := range cols {
			v := row[i] + col[j]
			if rng.IntN(10) == 0 {
				v += 100
				wild++
			}
			cells = append(cells, cell{i, j, v})
		}
	}
	p := medianPolish(cells, rows, cols)
	shift, _ := robust(p.rows, 0)
	for i := range row {
		if math.Abs(p.rows[i]-shift-row[i]) > 1e-6 {
			t.Errorf("row %d: effect %v, want %v", i, p.rows[i]-shift, row[i])
		}
	}
	found := 0
	for _, r := range p.residuals {
		if r > 50 {
			found++
		}
	}
	if found != wild || wild == 0 {
		t.Errorf("%d cells stick out, want %d", found, wild)
	}
}

// A rank alone on a host has longer ways than those that share one: that is the
// network's, not its own.
func TestFarRankIsNotSlow(t *testing.T) {
	far := func(own float64) *Document {
		d := edgeDoc(12, 1, 4, func(a, b int) float64 { return pick(a == 11 || b == 11, 20) * pick(b == 4, own) })
		for i := range 11 {
			d.Ranks[i].Host = "near"
		}
		d.Hosts = []Host{{Host: "near", Ranks: 11}, {Host: "n11", Ranks: 1}}
		return d
	}
	if got := Diagnose(far(1)); len(got) != 0 {
		t.Errorf("causes %+v, want none", got)
	}
	if got := Diagnose(far(12)); len(got) != 1 || got[0].Kind != "slow_target" || *got[0].Rank != 4 {
		t.Errorf("causes %+v, want target 4", got)
	}
}
