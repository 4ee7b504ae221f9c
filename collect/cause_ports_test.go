package collect

import (
	"fmt"
	"strings"
	"testing"

	"rankstorm/rank"
)

// roundsDoc is a fanout of two ranks with so many ports, round by round: sockets in TIME_WAIT when it began, ms of connect.
func roundsDoc(ports int64, rounds ...[2]int64) *Document {
	d := &Document{
		Size: 2, Procs: 2, RanksPerProc: 1, Transport: "tcp", Topology: Topology{Stages: 1}, Ranks: []RankDoc{{Host: "a"}, {Rank: 1, Proc: 1, Host: "b"}},
		Hosts: []Host{{Host: "a", Workers: 1}, {Host: "b", Workers: 1}}, EdgeList: []EdgeDoc{{From: 0, To: 1}},
	}
	for i, r := range rounds {
		if i == 0 {
			d.Resources = []ResourceDoc{{Proc: 0, Host: "a", Before: &Held{TimeWait: &r[0], LocalPorts: &[2]int64{1001, 1000 + ports}}}}
		} else {
			d.RoundsHeld = append(d.RoundsHeld, RoundHeldDoc{Round: int32(i - 1), TimeWait: &r[0]})
		}
		d.Rounds = append(d.Rounds, RoundDoc{Phase: "create", Round: int32(i)}, RoundDoc{Phase: "connect", Round: int32(i), StepWalls: map[string]int64{"connect": r[1] * ms}})
	}
	return d
}

func TestPortSearch(t *testing.T) {
	pressed := func() *Document {
		return roundsDoc(1000, [2]int64{0, 40}, [2]int64{400, 50}, [2]int64{800, 150}, [2]int64{900, 170})
	}
	for _, c := range []struct {
		name string
		doc  func() *Document
		want string
	}{
		{"pressed", pressed, "connect: the step takes 160 ms (median) in 2 rounds that began with half of 1,000 local ports or more in TIME_WAIT towards a listener (up to 900 sockets), 45.0 ms in 2 rounds that began with fewer: "},
		{"from the job before", func() *Document { return roundsDoc(1000, [2]int64{500, 150}, [2]int64{499, 40}) }, "connect: the step takes 150 ms"},
		{"no slower", func() *Document { return roundsDoc(1000, [2]int64{0, 100}, [2]int64{900, 149}) }, ""},
		{"little slower", func() *Document { return roundsDoc(1000, [2]int64{0, 4}, [2]int64{900, 8}) }, ""},
		{"slower, with few in TIME_WAIT", func() *Document { return roundsDoc(1000, [2]int64{0, 40}, [2]int64{499, 400}) }, ""},
		{"always pressed", func() *Document { return roundsDoc(1000, [2]int64{900, 40}, [2]int64{900, 400}) }, ""},
		{"one round", func() *Document { return roundsDoc(1000, [2]int64{900, 400}) }, ""},
		{"ports not known", func() *Document { return roundsDoc(-1, [2]int64{0, 40}, [2]int64{900, 400}) }, ""},
		{"the limits know them", func() *Document {
			d := pressed()
			d.Resources[0].Before.LocalPorts, d.Limits = nil, map[string]int64{"local_ports": 1000}
			return d
		}, "connect: the step takes 160 ms"},
		{"two listeners", func() *Document {
			d := pressed()
			d.EdgeList = append(d.EdgeList, EdgeDoc{From: 0, To: 0})
			return d
		}, ""},
		{"two addresses", func() *Document {
			d := pressed()
			d.Addresses = []AddressDoc{{Proc: 0, Data: []string{"10.0.0.1", "10.0.0.2"}}, {Proc: 1, Data: []string{"10.0.0.3"}}}
			return d
		}, ""},
		{"one address each", func() *Document {
			d := pressed()
			d.Addresses = []AddressDoc{{Proc: 0, Data: []string{"10.0.0.1"}}, {Proc: 1, Data: []string{"10.0.0.3"}}}
			return d
		}, "connect: the step takes 160 ms"},
		{"another transport", func() *Document { d := pressed(); d.Transport = "rdma"; return d }, ""},
		{"stages", func() *Document { d := pressed(); d.Topology.Stages = 2; return d }, ""},
		{"unknown in between", func() *Document { d := pressed(); d.RoundsHeld = nil; return d }, ""},
		{"crowded", func() *Document {
			d := pressed()
			one := int64(1)
			d.Hosts[0] = Host{Host: "a", Workers: 24, CPUs: &one}
			return d
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			causes := Diagnose(c.doc())
			switch {
			case c.want == "" && len(causes) > 0:
				t.Errorf("%+v", causes)
			case c.want != "" && (len(causes) != 1 || causes[0].Kind != "ports" || !strings.HasPrefix(causes[0].Evidence, c.want) || !strings.Contains(causes[0].Fix, "tcp_tw_reuse")):
				t.Errorf("%+v\nwant %q", causes, c.want)
			}
		})
	}
}

// Ports that ran out are told with those that there are, and with what rests in TIME_WAIT, of the rank that lacks them.
func TestPortsThatRanOut(t *testing.T) {
	failed := func(k int64) []PhaseDoc {
		return []PhaseDoc{{Phase: "connect", Steps: []StepDoc{{
			Step: "connect", Failed: k, Failures: map[string]int64{"no ports": k}, PerRank: []PerRankDoc{{Rank: 0}, {Rank: 1, Failed: k}},
		}}}}
	}
	d := roundsDoc(10, [2]int64{0, 40})
	little, many := int64(3), int64(9)
	d.Limits = map[string]int64{"local_ports": 28_232}
	d.Resources = append(d.Resources, ResourceDoc{
		Proc: 1, Host: "b", Before: &Held{TimeWait: &little, LocalPorts: &[2]int64{2000, 2019}},
		Peak: &Held{TimeWait: &many, LocalPorts: &[2]int64{2000, 2019}}, After: &Held{TimeWait: &little},
	})
	d.Phases = failed(5)
	causes := Diagnose(d)
	want := "connect: 5 failures for want of local ports (rank 1 has 20, 2000 to 2019; 9 sockets in TIME_WAIT there), 5 at rank 1 (b)"
	if len(causes) != 1 || causes[0].Evidence != want || *causes[0].Rank != rank.Rank(1) || !strings.HasPrefix(causes[0].Fix, "there are 20 and at least 25 are needed: widen net.ipv4.ip_local_port_range") {
		t.Errorf("%+v\nwant %s", causes, want)
	}
	d.Resources = nil
	want = "connect: 5 failures for want of local ports (rank 0 has 28,232), 5 at rank 1 (b)"
	if causes = Diagnose(d); len(causes) != 1 || causes[0].Evidence != want {
		t.Errorf("%+v\nwant %s", causes, want)
	}
	if got := fmt.Sprint((&Document{}).destinations()); got != "1" {
		t.Errorf("%s destinations of nothing", got)
	}
}
