package collect

import (
	"strings"
	"testing"

	"rankstorm/rank"
)

// Connections that broke are told by phase, with the target that most of them had where edges show it.
func TestBrokenConnectionsAreTold(t *testing.T) {
	job := func(edges ...EdgeDoc) *Document {
		d := &Document{Size: 3, RanksPerProc: 1, EdgeList: edges, Phases: []PhaseDoc{{Phase: "connect"}, {Phase: "probe", Broken: 1}}}
		for r := range rank.Rank(3) {
			d.Ranks = append(d.Ranks, RankDoc{Rank: r, Proc: rank.Proc(r), Host: "n" + string(rune('0'+r))})
		}
		for _, e := range edges {
			d.Phases[0].Broken += e.Broken
		}
		d.Connections.Broken = d.Phases[0].Broken + 1
		return d
	}
	const lost = ", whose process was lost"
	for _, test := range []struct {
		name  string
		edges []EdgeDoc
		want  []string
		to    rank.Rank
	}{
		{"none in connect", nil, []string{"probe: 1 connection broke after being established"}, rank.None},
		{
			"to one target",
			[]EdgeDoc{{From: 0, To: 2, Broken: 4}, {From: 1, To: 2, Broken: 4}, {From: 2, To: 1, Broken: 1}},
			[]string{"connect: 9 connections broke after being established, 8 to rank 2 (n2)", "probe: 1 connection broke after being established"},
			2,
		},
		{
			"to one that was lost",
			[]EdgeDoc{{From: 0, To: 1, Broken: 2}},
			[]string{"connect: 2 connections broke after being established, 2 to rank 1 (n1)" + lost, "probe: 1 connection broke after being established"},
			1,
		},
		{
			"to everybody",
			[]EdgeDoc{{From: 0, To: 2, Broken: 4}, {From: 1, To: 0, Broken: 4}},
			[]string{"connect: 8 connections broke after being established", "probe: 1 connection broke after being established"},
			rank.None,
		},
	} {
		d := job(test.edges...)
		explained := strings.HasSuffix(test.want[0], lost)
		if explained {
			d.Losses = []Loss{{Proc: rank.Proc(test.to)}}
		}
		causes := Diagnose(d)
		if len(causes) != len(test.want) {
			t.Errorf("%s: %+v", test.name, causes)
			continue
		}
		for i, c := range causes {
			if c.Kind != "broken" || c.Evidence != test.want[i] || (c.Fix == "") != (explained == (i == 0)) {
				t.Errorf("%s: %s %q, fix %q; want %q", test.name, c.Kind, c.Evidence, c.Fix, test.want[i])
			}
		}
		if r := causes[0].Rank; (r == nil) != (test.to == rank.None) || r != nil && *r != test.to {
			t.Errorf("%s: blames %v, want %d", test.name, r, test.to)
		}
	}
	if code, text := job().Verdict(); code != 1 || text != "1 connection broke after being established" {
		t.Errorf("verdict %d %q", code, text)
	}
}
