package collect

import (
	"slices"
	"testing"

	"rankstorm/rank"
)

// manyDoc is one phase of ranks with these figures, ms, per of them on a host of
// so many CPUs.
func manyDoc(per int, cpus, bound int64, late, gap []float64) *Document {
	j := &plantedJob{per: per}
	d := &Document{RanksPerProc: 1}
	p := PhaseDoc{Phase: "connect", BoundNS: &bound}
	for r := range max(len(late), len(gap)) {
		d.Ranks = append(d.Ranks, RankDoc{Rank: rank.Rank(r), Proc: rank.Proc(r), Host: j.host(r)})
		if r%per == 0 {
			d.Hosts = append(d.Hosts, Host{Host: j.host(r), Ranks: int64(per), Workers: int64(per), CPUs: &cpus})
		}
		one := RankPhaseDoc{Rank: rank.Rank(r)}
		for _, f := range []struct {
			list []float64
			to   **int64
		}{{late, &one.LateNS}, {gap, &one.GapNS}} {
			if len(f.list) > 0 {
				ns := int64(f.list[r] * 1e6)
				*f.to = &ns
			}
		}
		p.Ranks = append(p.Ranks, one)
	}
	d.Phases = []PhaseDoc{p}
	return d
}

func TestStarvedHosts(t *testing.T) {
	for _, c := range []struct {
		name string
		per  int
		cpus int64
		gap  []float64
		want string // "" nothing of the kind
	}{
		{
			"all of a host", 4, 4,
			[]float64{30, 20, 40, 90, 0.1, 0.1, 0.2, 0.1},
			"connect: 4 of 4 ranks of host n0 stood still with work at hand, median 35.0 ms, longest rank 3 for 90.0 ms, on other hosts median 100 µs: its CPUs were taken away (4 workers, 4 CPUs)",
		},
		{
			"half of a host", 4, 4,
			[]float64{30, 0.1, 40, 0.1, 0.1, 0.1, 0.1, 0.1},
			"connect: 2 of 4 ranks of host n0 stood still with work at hand, median 35.0 ms, longest rank 2 for 40.0 ms, on other hosts median 100 µs: its CPUs were taken away (4 workers, 4 CPUs)",
		},
		{"less than half", 5, 5, []float64{30, 0.1, 40, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, ""},
		{"one rank", 1, 1, []float64{30, 0.1, 0.1, 0.1}, ""},
		{"all hosts alike", 2, 2, []float64{30, 30, 30, 30}, ""},
		{"others have a tenth", 2, 2, []float64{30, 30, 3.1, 3.1}, ""},
		{"below the floor", 2, 2, []float64{4.9, 4.9, 0, 0}, ""},
		{"below the floor of a crowd", 4, 1, []float64{19, 19, 19, 19, 0, 0, 0, 0}, ""},
		{"one host, below four floors", 4, 4, []float64{19, 19, 19, 19}, ""},
		{
			"one host", 4, 4,
			[]float64{21, 21, 21, 21},
			"connect: 4 of 4 ranks of host n0 stood still with work at hand, median 21.0 ms, longest rank 0 for 21.0 ms: its CPUs were taken away (4 workers, 4 CPUs)",
		},
	} {
		got := ""
		causes := Diagnose(manyDoc(c.per, c.cpus, 0, nil, c.gap))
		for _, cause := range causes {
			if cause.Kind == "starved" {
				got = cause.Evidence
				if len(causes) != 1 {
					t.Errorf("%s: %+v beside it", c.name, causes)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A rank that is stopped is named also where the machine is so busy that the others wait for their turns.
func TestStoppedRankOnABusyHost(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  []float64
		kind string
		want string
	}{
		{
			"others wait",
			[]float64{0.3, 51, 31, 25, 83, 32, 73, 287},
			"stall",
			"connect: rank 7 (n0) stood still with work at hand for 287 ms; median of the other 7 ranks 32.0 ms",
		},
		{
			"some starve",
			[]float64{33, 26, 289, 68},
			"stall",
			"connect: rank 2 (n0) stood still with work at hand for 289 ms; median of the other 3 ranks 33.0 ms",
		},
		{
			"a wide spread",
			[]float64{10, 10, 95, 10, 290, 75, 85, 20},
			"stall",
			"connect: rank 4 (n0) stood still with work at hand for 290 ms; median of the other 7 ranks 20.0 ms",
		},
		{
			"all starve",
			[]float64{51, 112, 154, 287},
			"starved",
			"connect: 4 of 4 ranks of host n0 stood still with work at hand, median 133 ms, longest rank 3 for 287 ms: its CPUs were taken away (4 workers, 2 CPUs)",
		},
	} {
		d := manyDoc(len(c.gap), 2, 0, nil, c.gap)
		if !slices.ContainsFunc(Diagnose(d), func(got Cause) bool { return got.Kind == c.kind && got.Evidence == c.want }) {
			t.Errorf("%s: %+v, want %s %q", c.name, Diagnose(d), c.kind, c.want)
		}
	}
}

func TestUnevenStarts(t *testing.T) {
	for _, c := range []struct {
		name        string
		per         int
		cpus, bound int64
		late        []float64
		want        string
	}{
		{"half of the ranks", 1, 1, 0, []float64{0, 40, 1, 50}, "connect: 2 of 4 ranks began late, rank 3 (n3) 50.0 ms after the first: the early ones had the network for themselves meanwhile"},
		{"a host", 2, 2, 0, []float64{0, 0, 40, 50, 0, 0}, "connect: all 2 ranks of host n1 began late, rank 3 (n1) 50.0 ms after the first: the early ones had the network for themselves meanwhile"},
		{"a quarter", 1, 1, 0, []float64{0, 40, 1, 50, 0, 0, 0, 0}, ""},
		{"all alike", 1, 1, 0, []float64{50, 50, 50, 50}, ""},
		{"within the clock bound", 1, 1, 25e6, []float64{0, 40, 1, 50}, ""},
		{"turns on a crowded host", 4, 1, 0, []float64{0, 40, 1, 79}, ""},
		{"more than turns", 4, 1, 0, []float64{0, 81, 1, 99}, "connect: 2 of 4 ranks began late, rank 3 (n0) 99.0 ms after the first: the early ones had the network for themselves meanwhile"},
		{"three ranks", 1, 1, 0, []float64{0, 40, 50}, ""},
	} {
		got := ""
		causes := Diagnose(manyDoc(c.per, c.cpus, c.bound, c.late, nil))
		for _, cause := range causes {
			if cause.Kind == "uneven" {
				got = cause.Evidence
				if len(causes) != 1 {
					t.Errorf("%s: %+v beside it", c.name, causes)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
