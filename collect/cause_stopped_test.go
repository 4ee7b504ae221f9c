package collect

import (
	"fmt"
	"strings"
	"testing"

	"rankstorm/rank"
)

const ms = int64(1_000_000)

// pausedDoc is a document of hosts n0 … of per processes with k ranks each, in which everybody connected in time.
func pausedDoc(hosts, per, k int, pauses ...PauseDoc) *Document {
	d := &Document{Size: int64(hosts * per * k), Procs: int64(hosts * per), RanksPerProc: int64(k), Transport: "tcp", Pauses: pauses}
	p := PhaseDoc{Phase: "connect"}
	little, none := 20*ms/1000, int64(0)
	for r := range hosts * per * k {
		host := fmt.Sprintf("n%d", r/k/per)
		d.Ranks = append(d.Ranks, RankDoc{Rank: rank.Rank(r), Proc: rank.Proc(r / k), Host: host})
		p.Ranks = append(p.Ranks, RankPhaseDoc{Rank: rank.Rank(r), LateNS: &little, GapNS: &little, GapWaitNS: &none, GapRunNS: &none})
		if r%(per*k) == 0 {
			d.Hosts = append(d.Hosts, Host{Host: host, Ranks: int64(per * k), Procs: int64(per), Workers: int64(per * k)})
		}
	}
	for i := range d.Pauses {
		d.Pauses[i].Host = fmt.Sprintf("n%d", int(d.Pauses[i].Proc)/per)
	}
	d.Phases = []PhaseDoc{p}
	return d
}

// pause of a process in connect; wait below 0: the kernel does not say.
func pause(proc int, at, gap, wait, run int64) PauseDoc {
	p := PauseDoc{Proc: rank.Proc(proc), Phase: "connect", When: PauseIn, AtNS: at * ms, GapNS: gap * ms}
	if wait >= 0 {
		wait, run = wait*ms, run*ms
		p.WaitNS, p.RunNS = &wait, &run
	}
	return p
}

func at(when, phase string, p PauseDoc) PauseDoc {
	p.When, p.Phase = when, phase
	return p
}

func TestStops(t *testing.T) {
	for _, c := range []struct {
		name   string
		per, k int // two hosts
		pauses []PauseDoc
		want   []string // beginnings of "kind evidence"
	}{
		{"none", 2, 1, nil, nil},
		{"one", 2, 1, []PauseDoc{pause(1, 0, 287, 1, 2)}, []string{"stopped connect: rank 1 (n0) was stopped for 287 ms: meanwhile the process ran for 2.00 ms and waited 1.00 ms for a CPU"}},
		{"its half ran or waited", 2, 1, []PauseDoc{pause(1, 0, 200, 50, 50)}, []string{"stopped connect: rank 1 (n0) was stopped for 200 ms"}},
		{"more than that", 2, 1, []PauseDoc{pause(1, 0, 200, 51, 50), pause(2, 0, 200, 0, 101), pause(3, 0, 200, 200, 0)}, nil},
		{"the kernel does not say", 2, 1, []PauseDoc{pause(1, 0, 287, -1, -1)}, nil},
		{"a turn of a CPU", 2, 1, []PauseDoc{pause(1, 0, 99, 0, 0)}, nil},
		{"ranks of one process", 2, 3, []PauseDoc{pause(1, 0, 287, 1, 2)}, []string{"stopped connect: ranks 3-5 (n0) were stopped for 287 ms"}},
		{
			"before and after", 2, 1,
			[]PauseDoc{at(PauseBefore, "bind", pause(1, 0, 200, 0, 0)), at(PauseAfter, "connect", pause(2, 900, 300, 0, 0))},
			[]string{"stopped after connect: rank 2 (n1) was stopped for 300 ms", "stopped before bind: rank 1 (n0) was stopped for 200 ms"},
		},
		{
			"again and again", 2, 1,
			[]PauseDoc{pause(1, 0, 150, 0, 0), pause(1, 500, 250, 0, 0), pause(1, 900, 200, 0, 0)},
			[]string{"stopped connect: rank 1 (n0) was stopped for 250 ms: meanwhile the process ran for 0 ns and waited 0 ns for a CPU; 2 shorter stops besides"},
		},
		{
			"a host", 2, 1,
			[]PauseDoc{pause(2, 0, 250, 1, 2), pause(3, 20, 260, 3, 1)},
			[]string{"stopped connect: all 2 ranks of host n1 were stopped at the same time for up to 260 ms: meanwhile no process of them ran for more than 2.00 ms, nor waited more than 3.00 ms for a CPU"},
		},
		{
			"a host, one process of it again", 2, 1,
			[]PauseDoc{pause(2, 0, 250, 1, 2), pause(3, 20, 260, 3, 1), pause(3, 800, 120, 0, 0)},
			[]string{"stopped connect: all 2 ranks of host n1 ", "stopped connect: rank 3 (n1) was stopped for 120 ms"},
		},
		{
			"both of a host, one after the other", 2, 1,
			[]PauseDoc{pause(2, 0, 250, 0, 0), pause(3, 200, 260, 0, 0)},
			[]string{"stopped connect: rank 3 (n1) ", "stopped connect: rank 2 (n1) "},
		},
		{
			"two of three of a host", 3, 1,
			[]PauseDoc{pause(3, 0, 250, 0, 0), pause(5, 0, 260, 0, 0)},
			[]string{"stopped connect: rank 5 (n1) ", "stopped connect: rank 3 (n1) "},
		},
		{"a host of one process", 1, 2, []PauseDoc{pause(1, 0, 250, 0, 0)}, []string{"stopped connect: ranks 2-3 (n1) were stopped"}},
		{
			"many", 5, 1,
			[]PauseDoc{pause(0, 0, 150, 0, 0), pause(1, 0, 160, 0, 0), pause(2, 0, 170, 0, 0), pause(6, 0, 180, 0, 0)},
			[]string{"stopped connect: rank 6 ", "stopped connect: rank 2 ", "stopped connect: rank 1 (n0) was stopped for 160 ms: meanwhile the process ran for 0 ns and waited 0 ns for a CPU; 1 more stop like it"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			causes := Diagnose(pausedDoc(2, c.per, c.k, c.pauses...))
			if len(causes) != len(c.want) {
				t.Fatalf("%d causes, want %d: %+v", len(causes), len(c.want), causes)
			}
			for i, want := range c.want {
				if got := causes[i].Kind + " " + causes[i].Evidence; !strings.HasPrefix(got, want) {
					t.Errorf("%q\nwant %q", got, want)
				}
			}
		})
	}
}

// What a stop explains is told once: not as a rank that stood still or began late, nor as a starved host or an uneven
// start. What it does not explain still is.
func TestStopsExplain(t *testing.T) {
	gap := func(d *Document, ns int64, ranks ...int) {
		for _, r := range ranks {
			d.Phases[0].Ranks[r].GapNS = &ns
			d.Phases[0].Ranks[r].GapWaitNS, d.Phases[0].Ranks[r].GapRunNS = nil, nil
		}
	}
	for _, c := range []struct {
		name   string
		pauses []PauseDoc
		change func(*Document)
		want   string // kinds
	}{
		{"stood still", []PauseDoc{pause(1, 0, 250, 0, 0)}, func(d *Document) { gap(d, 300*ms, 1) }, "stopped"},
		{"stood still for longer", []PauseDoc{pause(1, 0, 250, 0, 0)}, func(d *Document) { gap(d, 400*ms, 1) }, "stopped stall"},
		{"another stood still", []PauseDoc{pause(1, 0, 250, 0, 0)}, func(d *Document) { gap(d, 300*ms, 2) }, "stopped stall"},
		{"stood still elsewhere", []PauseDoc{at(PauseIn, "probe", pause(1, 0, 250, 0, 0))}, func(d *Document) { gap(d, 300*ms, 1) }, "stopped stall"},
		{"began late", []PauseDoc{at(PauseBefore, "connect", pause(1, 0, 250, 0, 0))}, func(d *Document) { late := 250 * ms; d.Phases[0].Ranks[1].LateNS = &late }, "stopped"},
		{"waited for a CPU", []PauseDoc{pause(1, 0, 250, 240, 1)}, func(d *Document) { gap(d, 250*ms, 1) }, "stall"},
		{"a host", []PauseDoc{pause(2, 0, 250, 0, 0), pause(3, 0, 250, 0, 0)}, func(d *Document) { gap(d, 260*ms, 2, 3) }, "stopped"},
		{"a host that starved", []PauseDoc{pause(2, 0, 250, 250, 0), pause(3, 0, 250, 250, 0)}, func(d *Document) { gap(d, 260*ms, 2, 3) }, "starved"},
		{"a host, for less than is told", nil, func(d *Document) {
			gap(d, 60*ms, 2, 3)
			wait := 60 * ms
			run := int64(0)
			for r := 2; r < 4; r++ {
				d.Phases[0].Ranks[r].GapWaitNS, d.Phases[0].Ranks[r].GapRunNS = &wait, &run
			}
		}, "starved"},
		{"a host, for less, and it waited for no CPU", nil, func(d *Document) {
			gap(d, 60*ms, 2, 3)
			wait, run := 2*ms, ms
			for r := 2; r < 4; r++ {
				d.Phases[0].Ranks[r].GapWaitNS, d.Phases[0].Ranks[r].GapRunNS = &wait, &run
			}
		}, "stall stall"},
		{"uneven, but for stops", []PauseDoc{at(PauseBefore, "connect", pause(0, 0, 250, 0, 0)), at(PauseBefore, "connect", pause(2, 300, 250, 0, 0))}, func(d *Document) {
			late := 250 * ms
			d.Phases[0].Ranks[0].LateNS, d.Phases[0].Ranks[2].LateNS = &late, &late
		}, "stopped stopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := pausedDoc(3, 2, 1, c.pauses...)
			c.change(d)
			var kinds []string
			for _, cause := range Diagnose(d) {
				kinds = append(kinds, cause.Kind)
				if cause.Kind == "starved" && strings.Contains(c.name, "told") && !strings.Contains(cause.Evidence, "for 60.0 ms (its process waited 60.0 ms of it for a CPU)") {
					t.Errorf("%s", cause.Evidence)
				}
			}
			if got := strings.Join(kinds, " "); got != c.want {
				t.Errorf("%q, want %q: %+v", got, c.want, Diagnose(d))
			}
		})
	}
}

// Pauses travel with summaries, the longest first, and stand in the document in the order of time.
func TestPausesOfSummaries(t *testing.T) {
	list := func(seed int64, n int) (out []Pause) {
		for i := range int64(n) {
			out = append(out, Pause{Proc: rank.Proc(seed), AtNS: i * 1000 * ms, GapNS: (i*7919+seed)%997*ms + 1, WaitNS: 0, RunNS: -1, When: PauseIn})
		}
		return out
	}
	a := &Summary{Phase: "connect", Covers: []uint64{1}, Pauses: list(0, 700)}
	b := &Summary{Phase: "connect", Covers: []uint64{2}, Pauses: list(1, 700)}
	ab, ba := &Summary{}, &Summary{}
	for _, m := range []struct{ dst, src *Summary }{{ab, a}, {ab, b}, {ba, b}, {ba, a}} {
		if err := Merge(m.dst, m.src); err != nil {
			t.Fatal(err)
		}
	}
	x, err := EncodeSummary(ab)
	if err != nil {
		t.Fatal(err)
	}
	y, err := EncodeSummary(ba)
	if err != nil {
		t.Fatal(err)
	}
	if string(x) != string(y) {
		t.Error("the order of merging shows")
	}
	got, err := DecodeSummary(x)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Pauses) != MaxPauses || got.PausesMore != 400 {
		t.Fatalf("%d pauses, %d left out", len(got.Pauses), got.PausesMore)
	}
	for i, p := range got.Pauses {
		if i > 0 && p.compare(got.Pauses[i-1]) <= 0 {
			t.Fatalf("%+v after %+v", p, got.Pauses[i-1])
		}
	}
	shortest := got.Pauses[MaxPauses-1].GapNS
	d := NewDocument(Meta{Procs: 2, RanksPerProc: 1, StartNS: 5, Ranks: []RankMeta{{Rank: 0, Host: "a"}, {Rank: 1, Proc: 1, Host: "b"}}})
	for _, s := range []*Summary{got, {Phase: "probe", Seq: 1, Covers: []uint64{1}, Pauses: []Pause{{AtNS: 7, GapNS: 2000 * ms, WaitNS: 1, RunNS: 2, When: PauseBefore}}}} {
		if err := d.AddSlot(s); err != nil {
			t.Fatal(err)
		}
	}
	d.Finish(Exit{})
	if len(d.Pauses) != MaxPauses || d.PausesMore != 401 {
		t.Errorf("%d pauses in the document, %d left out", len(d.Pauses), d.PausesMore)
	}
	for i, p := range d.Pauses {
		if p.GapNS < shortest || i > 0 && p.AtNS < d.Pauses[i-1].AtNS || p.Host != "ab"[p.Proc:p.Proc+1] || p.Phase == "connect" && p.WaitNS != nil {
			t.Fatalf("%+v after %+v, the shortest is %d", p, d.Pauses[max(0, i-1)], shortest)
		}
		if p.Phase == "probe" && (p.AtNS != 2 || *p.WaitNS != 1 || *p.RunNS != 2 || p.When != PauseBefore) {
			t.Errorf("%+v", p)
		}
	}
	for _, bad := range []Pause{{GapNS: -1, When: PauseIn}, {GapNS: 5, WaitNS: 6, When: PauseIn}, {GapNS: 5, RunNS: 6, When: PauseIn}, {GapNS: 5, WaitNS: -2, When: PauseIn}, {GapNS: 5, When: "x"}} {
		x, err := EncodeSummary(&Summary{Phase: "connect", Covers: []uint64{1}, Pauses: []Pause{bad}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeSummary(x); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
