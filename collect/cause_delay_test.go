package collect

import (
	"strings"
	"testing"

	"rankstorm/rank"
)

// A rank that --delay held is late because it was held: the line says so, and sends nobody to look for load.
func TestPlantedDelaysAreNamed(t *testing.T) {
	ms := func(n int64) *int64 { n *= 1_000_000; return &n }
	job := func(delay string, late, gap int64) *Document {
		d := &Document{Size: 4, RanksPerProc: 1, Settings: map[string]string{"delay": delay}}
		p := PhaseDoc{Phase: "connect"}
		for r := range rank.Rank(4) {
			d.Ranks = append(d.Ranks, RankDoc{Rank: r, Proc: rank.Proc(r), Host: "n0"})
			one := RankPhaseDoc{Rank: r, LateNS: ms(1), GapNS: ms(1)}
			if r == 2 {
				one.LateNS, one.GapNS = ms(late), ms(gap)
			}
			p.Ranks = append(p.Ranks, one)
		}
		d.Phases = []PhaseDoc{p}
		return d
	}
	const (
		held = "; --delay was to hold rank 2 for 300 ms"
		out  = "it was planted: leave out --delay rank=2,phase=connect,ms=300"
		load = "look for load, throttling or a stopped process on n0"
	)
	for _, test := range []struct {
		name, delay string
		late, gap   int64
		held        bool
		fix         string
	}{
		{"late as planted", "rank=2,phase=connect,ms=300", 301, 1, true, out},
		{"one of several", "rank=1,phase=connect,ms=9 rank=2,phase=connect,ms=300", 301, 1, true, out},
		{"far later than planted", "rank=2,phase=connect,ms=300", 900, 1, true, load},
		{"stood still", "rank=2,phase=connect,ms=300", 1, 301, true, out},
		{"another rank was held", "rank=3,phase=connect,ms=300", 301, 1, false, load},
		{"held in another phase", "rank=2,phase=create,ms=300", 301, 1, false, load},
		{"nobody was held", "", 301, 1, false, load},
	} {
		causes := Diagnose(job(test.delay, test.late, test.gap))
		if len(causes) != 1 || causes[0].Rank == nil || *causes[0].Rank != 2 {
			t.Errorf("%s: causes %+v, want one of rank 2", test.name, causes)
			continue
		}
		if c := causes[0]; strings.HasSuffix(c.Evidence, held) != test.held || c.Fix != test.fix {
			t.Errorf("%s: %s; %s", test.name, c.Evidence, c.Fix)
		}
	}
}
