package collect

import (
	"strings"
	"testing"
)

// starvedJob is a job of four ranks whose third had no descriptors for its peers' requests.
func starvedJob() *Document {
	limit, other := int64(14), int64(1024)
	d := &Document{RanksPerProc: 1, Limits: map[string]int64{"file_descriptors": other}}
	for _, r := range []RankDoc{{Rank: 0, Host: "a"}, {Rank: 1, Host: "b", Proc: 1}, {Rank: 2, Host: "c", Proc: 2}, {Rank: 3, Host: "d", Proc: 3}} {
		d.Ranks = append(d.Ranks, r)
		h := Held{FDLimit: &other}
		if r.Rank == 2 {
			h = Held{FDLimit: &limit, Starved: 190}
		}
		d.Resources = append(d.Resources, ResourceDoc{Proc: r.Proc, Host: r.Host, Before: &Held{}, Peak: &h})
	}
	for _, from := range d.Ranks {
		for _, to := range d.Ranks {
			e := EdgeDoc{From: from.Rank, To: to.Rank, Planned: 4, Established: 4, Rounds: 1}
			if to.Rank == 2 {
				e.Established, e.Failed = 0, 4
			}
			if from != to {
				d.EdgeList = append(d.EdgeList, e)
			}
		}
	}
	d.Phases = []PhaseDoc{{Phase: "create"}, {Phase: "connect", Steps: []StepDoc{{
		Step: "connect", Failed: 12, Failures: map[string]int64{"timeout": 12},
		PerRank: []PerRankDoc{{Rank: 0, Failed: 4}, {Rank: 1, Failed: 4}, {Rank: 3, Failed: 4}},
	}}}}
	return d
}

// A target that has no descriptor for requests is named, with its own limit and
// what it needs, and so is it by the line of those who waited for it.
func TestTargetWithoutDescriptorsIsNamed(t *testing.T) {
	d := starvedJob()
	got := Diagnose(d)
	want := []struct{ kind, evidence, fix string }{
		{"fds", "connect: requests to rank 2 (c) had to wait 190 times for want of file descriptors (it may open 14)", "14 are allowed and at least 26 needed: ulimit -n 26 "},
		{"failed", "connect: 12 failures (timeout 12), 12 to rank 2 (c)", ""},
	}
	if len(got) != len(want) {
		t.Fatalf("causes %+v, want %d", got, len(want))
	}
	for i, w := range want {
		c := got[i]
		if c.Kind != w.kind || c.Evidence != w.evidence || !strings.HasPrefix(c.Fix, w.fix) || w.fix == "" && c.Fix != "" {
			t.Errorf("cause %+v, want %+v", c, w)
		}
		if c.Rank == nil || *c.Rank != 2 || c.Proc == nil || *c.Proc != 2 || c.Host != "c" {
			t.Errorf("%s blames rank %v, process %v on %q, want rank 2", c.Kind, c.Rank, c.Proc, c.Host)
		}
	}
}

// What a rank lost before it connected says nothing about its targets.
func TestTargetIsBlamedBesideItsOwnFailures(t *testing.T) {
	d := starvedJob()
	for i := range d.Resources {
		d.Resources[i].Peak.Starved = 0
	}
	d.Phases[0].Steps = []StepDoc{{Step: "create id", Failed: 12, Failures: map[string]int64{"no memory": 12}, PerRank: []PerRankDoc{{Rank: 2, Failed: 12}}}}
	for i := range d.EdgeList {
		if e := &d.EdgeList[i]; e.From == 2 {
			e.Established, e.Failed = 0, e.Planned
		}
	}
	got := Diagnose(d)
	if len(got) != 2 || got[1].Evidence != "connect: 12 failures (timeout 12), 12 to rank 2 (c)" {
		t.Errorf("causes %+v, want the timeouts to rank 2 as the second", got)
	}
}

func TestTargetWithoutMemoryIsNamed(t *testing.T) {
	d := starvedJob()
	d.Resources[2].Peak.Starved, d.Resources[2].Peak.Cramped = 0, 1
	if c := Diagnose(d)[0]; c.Kind != "memory" || c.Evidence != "connect: requests to rank 2 (c) had to wait 1 time for want of memory" || !strings.Contains(c.Fix, "tcp_mem") {
		t.Errorf("cause %+v", c)
	}
}
