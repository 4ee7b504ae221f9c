package collect

import (
	"slices"
	"strings"
	"testing"

	"rankstorm/rank"
)

// The teeth that the kernel's documentation names (ip-sysctl, tcp_syn_linear_timeouts),
// and those of a hello that was not taken, as seen on Linux 6.18.
func TestTeethStandWhereTheKernelPutsThem(t *testing.T) {
	for _, c := range []struct {
		timer retryTimer
		ms    []int64
	}{
		{synTimers[0], []int64{1000, 3000, 7000, 15000, 31000, 63000}},
		{synTimers[1], []int64{1000, 2000, 3000, 4000, 5000, 7000, 11000, 19000, 35000, 67000}},
		{helloTimers[0], []int64{200, 600, 1400, 3000, 6200}},
		{helloTimers[1], []int64{200, 400, 800, 1600, 3200, 6400}},
	} {
		got := c.timer.teeth()
		for i, ms := range c.ms {
			if got[i] != ms*1e6 {
				t.Errorf("%+v: tooth %d at %d ns, want %d ms", c.timer, i, got[i], ms)
			}
		}
	}
}

// overflowDoc is an incast of two ranks with these durations, ms.
func overflowDoc(syn, hello []int64, drops, retries, late int64) *Document {
	ns := func(ms []int64) []int64 {
		out := slices.Clone(ms)
		for i := range out {
			out[i] *= 1e6
		}
		return out
	}
	zero := int64(0)
	late *= 1e6
	return &Document{
		Transport: "tcp", Size: 2, RanksPerProc: 1, Ranks: []RankDoc{{Rank: 0, Host: "a"}, {Rank: 1, Proc: 1, Host: "b"}},
		Phases: []PhaseDoc{{
			Phase: "connect", Steps: []StepDoc{histStep("connect", ns(syn)), histStep("establish", ns(hello))},
			Ranks: []RankPhaseDoc{{Rank: 0, LateNS: &late}, {Rank: 1, LateNS: &zero}},
		}},
		Resources: []ResourceDoc{
			{Proc: 0, Host: "a", Before: &Held{ListenDrops: &zero, SYNRetries: &zero}, Peak: &Held{ListenDrops: &drops, SYNRetries: &zero}},
			{Proc: 1, Host: "b", Before: &Held{ListenDrops: &zero, SYNRetries: &zero}, After: &Held{ListenDrops: &zero, SYNRetries: &retries}},
		},
	}
}

func TestCombs(t *testing.T) {
	for _, c := range []struct {
		name           string
		syn, hello     []int64
		drops, retries int64
		late           int64
		unknown        bool
		want           []string // evidence after "connect: "
	}{
		{name: "doubling", syn: []int64{0, 1004, 1032, 3100}, drops: 5, retries: 4, want: []string{
			"3 connects waited for SYN retransmissions (1 s: 2, 3 s: 1): the listen queue of rank 0 (a) overflowed: 5 requests dropped",
		}},
		{name: "linear", syn: []int64{0, 1004, 2041, 5117}, drops: 1, retries: 8, want: []string{
			"3 connects waited for SYN retransmissions (1 s: 1, 2 s: 1, 5 s: 1): the listen queue of rank 0 (a) overflowed: 1 request dropped",
		}},
		{name: "hellos with tail loss probes", syn: []int64{0}, hello: []int64{203, 203, 420, 829}, drops: 9, retries: 7, want: []string{
			"4 hellos waited for data retransmissions (200 ms: 2, 400 ms: 1, 800 ms: 1): the listen queue of rank 0 (a) overflowed: 9 requests dropped",
		}},
		{name: "a hello that waited for its target", syn: []int64{0}, hello: []int64{1500, 1502, 1500}, drops: 2, retries: 1, late: 1500, want: []string{
			"rank 0 (a) began late by 1.50 s; the other rank: 0 ns",
			"the listen queue of rank 0 (a) overflowed: 2 requests dropped",
		}},
		{name: "between the teeth", syn: []int64{500, 1300, 2700}, drops: 2, retries: 1, want: []string{
			"the listen queue of rank 0 (a) overflowed: 2 requests dropped",
		}},
		{name: "lost on the way", syn: []int64{0, 1004, 3030}, hello: []int64{210}, retries: 4, want: []string{
			"2 connects waited for SYN retransmissions (1 s: 1, 3 s: 1), 4 packets sent again in all; no listen queue overflowed",
		}},
		{name: "nothing was sent again", syn: []int64{0, 1004, 3030}, hello: []int64{210}},
		{name: "nothing is known", syn: []int64{0, 1004, 3030}, hello: []int64{210}, drops: 3, retries: 3, unknown: true},
	} {
		d := overflowDoc(c.syn, c.hello, c.drops, c.retries, c.late)
		if c.unknown {
			for i := range d.Resources {
				d.Resources[i].Before = nil
			}
		}
		var got []string
		for _, cause := range Diagnose(d) {
			got = append(got, strings.TrimPrefix(cause.Evidence, "connect: "))
			if strings.Contains(cause.Evidence, "overflowed") && cause.Kind == "drops" && (*cause.Count != c.drops || *cause.Rank != 0) {
				t.Errorf("%s: %+v, want %d drops at rank 0", c.name, cause, c.drops)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: said %q, want %q", c.name, got, c.want)
		}
	}
}

// Of a process with several ranks it is not known which listener it was.
func TestOverflowOfAProcessOfRanks(t *testing.T) {
	d := overflowDoc(nil, nil, 4, 0, 0)
	d.Ranks = append(d.Ranks, RankDoc{Rank: 2, Proc: 0, Host: "a"})
	got := Diagnose(d)
	if len(got) != 1 || got[0].Rank != nil || *got[0].Proc != 0 || got[0].Evidence != "connect: the listen queues of process 0 (ranks 0,2 on a) overflowed: 4 requests dropped" {
		t.Errorf("causes %+v", got)
	}
}

// Failures to the only target are its own if its queue overflowed.
func TestTimeoutsAreBlamedOnTheQueue(t *testing.T) {
	d := overflowDoc(nil, nil, 4, 9, 0)
	s := &d.Phases[0].Steps[0]
	s.Failed, s.Failures, s.PerRank = 7, map[string]int64{"timeout": 7}, []PerRankDoc{{Rank: 1, Failed: 7}}
	d.EdgeList = []EdgeDoc{{From: 1, To: 0, Failed: 7}}
	if c := Diagnose(d)[0]; c.Kind != "failed" || c.Rank == nil || *c.Rank != rank.Rank(0) || !strings.HasSuffix(c.Evidence, "7 to rank 0 (a)") {
		t.Errorf("cause %+v, want failures to rank 0", c)
	}
}
