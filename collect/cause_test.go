package collect

import (
	"strings"
	"testing"

	"rankstorm/rank"
)

func TestDiagnoseIsSilentOnHealthyJobs(t *testing.T) {
	for _, name := range []string{"clean", "one-rank", "virtual"} {
		if got := finishedStory(t, name).Causes; len(got) != 0 {
			t.Errorf("%s: causes %+v, want none", name, got)
		}
	}
}

func TestDiagnoseNamesTheStraggler(t *testing.T) {
	got := finishedStory(t, "late").Causes
	if len(got) != 1 {
		t.Fatalf("causes %+v, want one", got)
	}
	c := got[0]
	if c.Kind != "straggler" || *c.Rank != 3 || c.Host != "n1" || c.Phase != "connect" {
		t.Errorf("cause %+v, want straggler rank 3 on n1 in connect", c)
	}
	if ns := *c.ValueNS; ns < 285_000_000 || ns > 315_000_000 {
		t.Errorf("late by %d ns, want 300 ms ± 5 %%", ns)
	}
}

// lateDoc is a document of one phase in which rank i began lates[i] ms late.
func lateDoc(bound int64, lates ...float64) *Document {
	d := &Document{Size: int64(len(lates)), RanksPerProc: 1}
	p := PhaseDoc{Phase: "connect", BoundNS: &bound}
	for r, ms := range lates {
		ns := int64(ms * 1e6)
		d.Ranks = append(d.Ranks, RankDoc{Rank: rank.Rank(r), Host: "n"})
		p.Ranks = append(p.Ranks, RankPhaseDoc{Rank: rank.Rank(r), LateNS: &ns, GapNS: new(int64)})
	}
	d.Phases = []PhaseDoc{p}
	return d
}

func TestStragglerThresholds(t *testing.T) {
	for _, c := range []struct {
		name  string
		bound int64
		lates []float64
		want  []rank.Rank
	}{
		{"alone", 0, []float64{300}, nil},
		{"two", 0, []float64{0.05, 300}, []rank.Rank{1}},
		{"two, both late", 0, []float64{200, 300}, nil},
		{"three", 0, []float64{300, 0, 0}, []rank.Rank{0}},
		{"below the floor", 0, []float64{0, 0, 0, 0, 4.9}, nil},
		{"ten times is not reached", 0, []float64{2, 2, 2, 2, 19}, nil},
		{"ten times is reached", 0, []float64{2, 2, 2, 2, 21}, []rank.Rank{4}},
		{"within the clock bound", 200e6, []float64{0, 0, 0, 0, 300}, nil},
		{"half of the ranks are no outliers", 0, []float64{0, 0, 300, 310}, nil},
		{"wide spread", 0, []float64{1, 30, 60, 90, 120}, nil},
		{"two of eight", 0, []float64{0, 0, 250, 0, 0, 0, 300, 0}, []rank.Rank{6, 2}},
		{"all the same", 0, []float64{50, 50, 50, 50}, nil},
		{"early is not late", 0, []float64{-300, 0, 0, 0}, nil},
	} {
		var got []rank.Rank
		for _, cause := range Diagnose(lateDoc(c.bound, c.lates...)) {
			if cause.Kind != "straggler" {
				continue // many late ranks are an uneven start
			}
			got = append(got, *cause.Rank)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: stragglers %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: stragglers %v, want %v", c.name, got, c.want)
			}
		}
	}
}

func TestManyStragglersAreCounted(t *testing.T) {
	lates := make([]float64, 40)
	for i := range 6 {
		lates[i] = 300 + float64(i)
	}
	got := Diagnose(lateDoc(0, lates...))
	if len(got) != 3 || *got[0].Rank != 5 || !strings.Contains(got[2].Evidence, "3 more stragglers like it") {
		t.Errorf("causes %+v, want the three worst and a count", got)
	}
}

// The same delay seen as late start and as stand-still is told once.
func TestStallIsToldOnce(t *testing.T) {
	d := lateDoc(0, 0, 0, 100, 0, 0)
	gap := int64(250e6)
	d.Phases[0].Ranks[2].GapNS = &gap
	got := Diagnose(d)
	if len(got) != 1 || got[0].Kind != "stall" || *got[0].ValueNS != 250e6 {
		t.Errorf("causes %+v, want one stall of 250 ms", got)
	}
}

func TestDiagnoseFailures(t *testing.T) {
	got := map[string]Cause{}
	for _, c := range finishedStory(t, "failed").Causes {
		got[c.Kind] = c
	}
	if c := got["failed"]; c.Rank == nil || *c.Rank != 4 || *c.Count != 20 || !strings.Contains(c.Evidence, "20 to rank 4 (n2)") || !strings.Contains(c.Fix, "firewall") {
		t.Errorf("failed: %+v", c)
	}
	if c := got["dead"]; c.Count == nil || *c.Count != 2 {
		t.Errorf("dead: %+v", c)
	}
	if c := got["drops"]; c.Count == nil || *c.Count != 37 || *c.Proc != 0 {
		t.Errorf("drops: %+v", c)
	}
	if c := got["leak"]; c.Count == nil || *c.Count != 2 || *c.Proc != 5 || c.Host != "n2" {
		t.Errorf("leak: %+v", c)
	}
}

// What ran out has a line of its own, with its fix; ranks are blamed for it only
// where nothing else failed.
func TestExhaustionHasItsLine(t *testing.T) {
	d := &Document{
		RanksPerProc: 1, Ranks: []RankDoc{{Rank: 0, Host: "a"}, {Rank: 1, Host: "b"}}, Limits: map[string]int64{"local_ports": 28_232, "file_descriptors": 1024},
		Phases: []PhaseDoc{
			{Phase: "create", Steps: []StepDoc{{
				Step: "create id", Failed: 7, Failures: map[string]int64{"no fds": 7}, PerRank: []PerRankDoc{{Rank: 0, Failed: 6}, {Rank: 1, Failed: 1}},
			}}},
			{Phase: "connect", Steps: []StepDoc{{
				Step: "connect", Failed: 12, Failures: map[string]int64{"no ports": 3, "timeout": 9}, PerRank: []PerRankDoc{{Rank: 0, Failed: 12}},
			}}},
		},
	}
	got := Diagnose(d)
	want := []struct{ kind, evidence, fix string }{
		{"fds", "create: 7 failures for want of file descriptors (rank 0 has 1,024), 6 at rank 0 (a)", "1024 are allowed and at least 1030 needed: ulimit -n 1030 "},
		{"ports", "connect: 3 failures for want of local ports (rank 0 has 28,232)", "ip_local_port_range"},
		{"failed", "connect: 9 failures (timeout 9)", "firewall"},
	}
	if len(got) != len(want) {
		t.Fatalf("causes %+v, want %d", got, len(want))
	}
	for i, w := range want {
		if got[i].Kind != w.kind || got[i].Evidence != w.evidence || !strings.Contains(got[i].Fix, w.fix) {
			t.Errorf("cause %+v, want %+v", got[i], w)
		}
	}
	if got[0].Rank == nil || *got[0].Rank != 0 || got[1].Rank != nil || got[2].Rank != nil {
		t.Errorf("blamed: %v %v %v, want rank 0 for descriptors only", got[0].Rank, got[1].Rank, got[2].Rank)
	}
}

// What to do about a failure is that of the transport.
func TestFixesOfRDMA(t *testing.T) {
	for cause, want := range map[string]string{"no memory": "rdma.max of its cgroup", "reset": "that queue pair number", "refused": "the target's listener is gone"} {
		d := &Document{RanksPerProc: 1, Transport: "rdma", Ranks: []RankDoc{{Host: "a"}}, Phases: []PhaseDoc{{Phase: "connect", Steps: []StepDoc{{
			Step: "connect", Failed: 2, Failures: map[string]int64{cause: 2},
		}}}}}
		if got := Diagnose(d); len(got) != 1 || !strings.Contains(got[0].Fix, want) {
			t.Errorf("%s: %+v, want %q", cause, got, want)
		}
		if d.Transport = "tcp"; strings.Contains(Diagnose(d)[0].Fix, "rdma") {
			t.Errorf("%s over tcp: %+v", cause, Diagnose(d))
		}
	}
}

// Without one target in common the rank whose own steps failed most is named.
func TestFailuresAreBlamedOnTheRankOtherwise(t *testing.T) {
	d := &Document{
		RanksPerProc: 1, Ranks: []RankDoc{{Rank: 0, Host: "a"}, {Rank: 1, Host: "b"}},
		Phases: []PhaseDoc{{Phase: "connect", Steps: []StepDoc{{
			Step: "connect", Failures: map[string]int64{"refused": 9, "timeout": 1},
			PerRank: []PerRankDoc{{Rank: 0, Failed: 1}, {Rank: 1, Failed: 9}},
		}}}},
		EdgeList: []EdgeDoc{{To: 5, Failed: 5}, {To: 6, Failed: 5}},
	}
	got := Diagnose(d)
	if len(got) != 1 || *got[0].Rank != 1 || got[0].Evidence != "connect: 10 failures (refused 9, timeout 1), 9 at rank 1 (b)" {
		t.Errorf("causes %+v", got)
	}
}

// Probe failures and dead connections are the same connections.
func TestDeadConnectionsAreToldOnce(t *testing.T) {
	d := &Document{
		RanksPerProc: 1, Ranks: []RankDoc{{Rank: 0, Host: "a"}}, Connections: Conns{Established: 9, Dead: 2},
		Phases: []PhaseDoc{{Phase: "probe", Steps: []StepDoc{{
			Step: "first round trip", Failures: map[string]int64{"timeout": 2},
			PerRank: []PerRankDoc{{Rank: 0, Failed: 2}},
		}}}},
	}
	got := Diagnose(d)
	if len(got) != 1 || got[0].Kind != "dead" || got[0].Evidence != "probe: 2 of 9 established connections carried no round trip (timeout 2), 2 at rank 0 (a)" {
		t.Errorf("causes %+v", got)
	}
}

// A target that is known to have been late is not looked for behind a firewall.
func TestDeadBehindALateTarget(t *testing.T) {
	for _, c := range []struct {
		lateMS float64
		fix    string
	}{{0, deadFix}, {1030, "rank 1 was not there to answer (above)"}} {
		d := lateDoc(0, 0, c.lateMS, 0)
		d.Phases[0].Steps = []StepDoc{{Step: "establish", Failures: map[string]int64{"timeout": 3}, PerRank: []PerRankDoc{{Rank: 0, Failed: 3}}}}
		d.EdgeList = []EdgeDoc{{From: 0, To: 1, Failed: 3}, {From: 1, To: 0}}
		got := Diagnose(d)
		if last := got[len(got)-1]; last.Kind != "dead" || last.Rank == nil || *last.Rank != 1 || last.Fix != c.fix {
			t.Errorf("late by %v ms: %+v", c.lateMS, last)
		}
	}
}

// Ranks of one process are late together and told together; what is small
// beside the worst is not told.
func TestStragglersAreGroupedAndRanked(t *testing.T) {
	d := lateDoc(0, 0, 0, 0, 0, 290, 300, 0, 0, 0, 0)
	d.RanksPerProc = 2
	small := lateDoc(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20).Phases[0]
	small.Phase = "bind"
	d.Phases = append(d.Phases, small)
	got := Diagnose(d)
	if len(got) != 1 || *got[0].Rank != 5 || *got[0].Proc != 2 || !strings.Contains(got[0].Evidence, "ranks 4-5 (n) began late by up to 300 ms; median of all but the worst 0 ns") {
		t.Errorf("causes %+v", got)
	}
}

func TestEvenFailuresBlameNobody(t *testing.T) {
	d := &Document{RanksPerProc: 1, Phases: []PhaseDoc{{Phase: "connect", Steps: []StepDoc{{
		Step: "connect", Failures: map[string]int64{"closed": 24},
		PerRank: []PerRankDoc{{Rank: 0, Failed: 8}, {Rank: 1, Failed: 8}, {Rank: 2}, {Rank: 3, Failed: 8}},
	}}}}}
	got := Diagnose(d)
	if len(got) != 1 || got[0].Rank != nil || got[0].Evidence != "connect: 24 failures (closed 24), spread over 3 ranks" {
		t.Errorf("causes %+v", got)
	}
}

// One of a kind is told as one.
func TestOneIsNotMany(t *testing.T) {
	one := Conns{Planned: 1, Established: 1, Dead: 1, Failed: 1, Broken: 1}
	held := func(n int64) *Held { return &Held{FDs: n} }
	leaking := &Document{Connections: one, Resources: []ResourceDoc{
		{Proc: 0, Host: "a", Before: held(0), After: held(1)}, {Proc: 1, Host: "a", Before: held(0), After: held(1)},
	}}
	_, verdict := leaking.Verdict()
	failing := func(step, cause string) string {
		d := &Document{Connections: one, Phases: []PhaseDoc{{Phase: "connect", Steps: []StepDoc{{Step: step, Failures: map[string]int64{cause: 1}}}}}}
		return failedConnections(d, nil)[0].Evidence
	}
	cut := shorten([]Cause{{}, {}, {Evidence: "the last"}, {}}, "rank like it", "ranks like it")
	lone := starvedHost{host: "a", phase: "connect", still: 2, ranks: 2, others: 1, othersNS: 1e6, workers: 1, cpus: 1, medianNS: 1e8, mostNS: 1e8}
	for _, c := range []struct{ got, want string }{
		{verdict, "1 of 1 connection failed; 1 connection is dead: up, but never answered; 1 connection broke after being established; " +
			"process 0 (a) leaked fds: 0 before, 1 after, and 1 other process"},
		{leakCauses(leaking)[0].Evidence, "destroy: process 0 (a) leaked fds: 0 before set-up, 1 after teardown"},
		{failing("connect", "refused"), "connect: 1 failure (refused 1)"},
		{failing("establish", "timeout"), "connect: dead: 1 of 1 connection, whose path answered and whose target never did"},
		{deadEvidence(leaking, 1), "probe: 1 of 1 established connection carried no round trip"},
		{cut[len(cut)-1].Evidence, "the last; 1 more rank like it"},
		{Diagnose(lateDoc(0, 0, 300))[0].Evidence, "connect: rank 1 (n) began late by 300 ms; the other rank: 0 ns"},
		{Diagnose(lateDoc(0, 0, 0, 300))[0].Evidence, "connect: rank 2 (n) began late by 300 ms; median of the other 2 ranks 0 ns"},
		{causesOf([]starvedHost{lone})[0].Evidence, "connect: 2 of 2 ranks of host a stood still with work at hand, median 100 ms, longest rank 0 for 100 ms, " +
			"the rank on another host 1.00 ms: its CPUs were taken away (1 worker, 1 CPU)"},
		{slowLine{edges: 1}.basis(), "1 edge"},
		{slowLine{edges: 1, of: "%s of the listed edges"}.basis(), "1 of the listed edges"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}
