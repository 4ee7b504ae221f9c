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

// Ports that ran out are told with those that there are, of the rank that lacks them, and with who has them: sockets in
// TIME_WAIT if rounds left some, others if the connections of the job cannot have taken all.
func TestPortsThatRanOut(t *testing.T) {
	const lack = "connect: 5 failures for want of local ports (rank 1 has "
	numbers := "there are 20 and at least 25 are needed: widen net.ipv4.ip_local_port_range"
	little, many := int64(3), int64(90)
	job := func(change func(*Document)) *Document {
		d := roundsDoc(10, [2]int64{0, 40})
		d.Limits = map[string]int64{"local_ports": 28_232}
		ports := &[2]int64{2000, 2019}
		d.Resources = append(d.Resources, ResourceDoc{
			Proc: 1, Host: "b", Before: &Held{TimeWait: new(int64), LocalPorts: ports}, Peak: &Held{TimeWait: &little, LocalPorts: ports}, After: &Held{TimeWait: &many},
		})
		d.Addresses = []AddressDoc{{Proc: 0, Data: []string{"10.0.0.1"}}, {Proc: 1, Data: []string{"10.0.0.2"}}}
		d.EdgeList = []EdgeDoc{{From: 1, To: 0, Planned: 25, Failed: 5}}
		d.Phases = []PhaseDoc{{Phase: "connect", Steps: []StepDoc{{
			Step: "connect", Failed: 5, Failures: map[string]int64{"no ports": 5}, PerRank: []PerRankDoc{{Rank: 0}, {Rank: 1, Failed: 5}},
		}}}}
		change(d)
		return d
	}
	for _, c := range []struct {
		name      string
		change    func(*Document)
		want, fix string
	}{
		{"too few for the job", func(*Document) {}, lack + "20, 2000 to 2019), 5 at rank 1 (b)", numbers},
		{
			"others have some", func(d *Document) { d.EdgeList[0].Planned = 17 },
			lack + "20, 2000 to 2019; at least 8 of them are other sockets', the job's listeners among them), 5 at rank 1 (b)", numbers,
		},
		{
			"a rank with the same address has some", func(d *Document) {
				d.EdgeList = []EdgeDoc{{From: 1, To: 0, Planned: 17, Failed: 5}, {From: 0, To: 0, Planned: 8}}
				d.Addresses[0].Data = d.Addresses[1].Data
			},
			lack + "20, 2000 to 2019), 5 at rank 1 (b)", numbers,
		},
		{
			"others have some, towards the target with most", func(d *Document) {
				d.EdgeList = []EdgeDoc{{From: 1, To: 0, Planned: 17, Failed: 3}, {From: 1, To: 1, Planned: 15, Failed: 2}}
			},
			lack + "20, 2000 to 2019; at least 6 of them are other sockets', the job's listeners among them), 5 at rank 1 (b)", numbers,
		},
		{
			"several addresses", func(d *Document) { d.EdgeList[0].Planned, d.Addresses[1].Data = 17, []string{"10.0.0.2", "10.0.0.3"} },
			lack + "20, 2000 to 2019), 5 at rank 1 (b)", numbers,
		},
		{
			"edges that are not listed", func(d *Document) { d.EdgeList[0].Planned, d.EdgesMore = 17, 1 },
			lack + "20, 2000 to 2019), 5 at rank 1 (b)", numbers,
		},
		{
			"rounds", func(d *Document) { d.RoundsRun = 3 },
			lack + "20, 2000 to 2019; 3 sockets in TIME_WAIT there), 5 at rank 1 (b)", "each port rests in TIME_WAIT",
		},
		{
			"rounds that left nothing", func(d *Document) { d.RoundsRun, little = 3, 0 },
			lack + "20, 2000 to 2019), 5 at rank 1 (b)", numbers,
		},
		{
			"rounds over RDMA", func(d *Document) { d.RoundsRun, d.Transport, little = 3, "rdma", 3 },
			lack + "20, 2000 to 2019), 5 at rank 1 (b)", numbers,
		},
		{
			"nothing known of it", func(d *Document) { d.Resources = nil },
			"connect: 5 failures for want of local ports (rank 0 has 28,232), 5 at rank 1 (b)", "widen net.ipv4.ip_local_port_range",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			causes := Diagnose(job(c.change))
			if len(causes) != 1 || causes[0].Evidence != c.want || *causes[0].Rank != rank.Rank(1) || !strings.HasPrefix(causes[0].Fix, c.fix) {
				t.Fatalf("%+v\nwant %s", causes, c.want)
			}
			if others := strings.Contains(c.want, "other sockets"); others != strings.Contains(causes[0].Fix, "ss -tan") {
				t.Errorf("fix %q", causes[0].Fix)
			}
		})
	}
	if got := fmt.Sprint((&Document{}).destinations()); got != "1" {
		t.Errorf("%s destinations of nothing", got)
	}
}
