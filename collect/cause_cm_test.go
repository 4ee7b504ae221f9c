package collect

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"rankstorm/rank"
)

// Where the kernel's formula puts the timer: 2 × 2^(18−8) + 2^(20−8) ms = 6,144 ms.
func TestREQTimers(t *testing.T) {
	for i, life := range []int{18, 16} {
		want := int64(2*(1<<(life-8))+(1<<(20-8))) * 1e6
		got := reqTimers[i].teeth()
		for k := range 15 {
			if got[k] != want*int64(k+1) {
				t.Errorf("packet life time %d: tooth %d at %d ns, want %d", life, k, got[k], want*int64(k+1))
			}
		}
	}
}

// cmDoc is an incast 1 → 0 over RDMA, with the counters of both ports: lines of
// "rank phase name count".
func cmDoc(accepted int64, connectsMS []int64, lines string) *Document {
	d := &Document{
		Transport: "rdma", Size: 2, RanksPerProc: 1, Ranks: []RankDoc{{Rank: 0, Host: "a"}, {Rank: 1, Proc: 1, Host: "b"}},
		Phases: []PhaseDoc{{Phase: "connect"}},
	}
	if accepted >= 0 { // below 0: the target's figures are missing
		d.Phases[0].Steps = []StepDoc{{Step: "accept", Side: SideTarget, Count: accepted, PerRank: []PerRankDoc{{Rank: 0, Count: accepted}}}}
	}
	if connectsMS != nil {
		ns := slices.Clone(connectsMS)
		for i := range ns {
			ns[i] *= 1e6
		}
		d.Phases[0].Steps = append(d.Phases[0].Steps, histStep("connect", ns))
	}
	if accepted >= 0 {
		d.Phases[0].Ranks = []RankPhaseDoc{{Rank: 0}, {Rank: 1}}
	}
	var b portBuild
	for phase := range slices.Values([]string{"connect", "probe", "destroy"}) {
		s := &Summary{Phase: phase}
		for r := range rank.Rank(2) {
			p := PortSum{Proc: rank.Proc(r), Device: fmt.Sprintf("rxe%d", r), Port: 1, Ranks: []rank.Rank{r}}
			for line := range strings.Lines(lines) {
				var who rank.Rank
				var when, name string
				var n int64
				if _, err := fmt.Sscan(line, &who, &when, &name, &n); err == nil && who == r && when == phase {
					p.Counts = append(p.Counts, Count{name, n})
				}
			}
			s.Ports = append(s.Ports, p)
		}
		b.add(s)
	}
	d.DeviceCounters = b.finish(map[rank.Proc]string{0: "a", 1: "b"})
	return d
}

func TestCommunicationCauses(t *testing.T) {
	quiet := `
1 connect cm_tx_msgs/req 100
0 connect cm_rx_msgs/req 100
0 connect cm_tx_msgs/rep 60
0 probe cm_tx_msgs/rep 40
1 connect cm_rx_msgs/rep 100
1 connect cm_tx_msgs/rtu 100
0 probe cm_rx_msgs/rtu 100
`
	for _, c := range []struct {
		name     string
		accepted int64
		connects []int64
		lines    string
		kinds    string
		want     []string
	}{
		{"quiet", 100, []int64{1, 2, 3}, quiet, "", nil},
		// cmtime -c 100 with max_backlog=2 on soft-RoCE: 266 received, 201 accepted.
		{"backlog", 201, []int64{3, 6150, 6160, 12300}, `
1 connect cm_tx_msgs/req 266
1 connect cm_tx_retries/req 65
0 connect cm_rx_msgs/req 266`, "backlog", []string{
			"connect: 3 connects waited for the REQ timer (6.14 s: 2, 12.3 s: 1): backlog drops at rank 0 (a, rxe0 port 1): 65 (266 requests received, 201 accepted, 0 rejected, 0 received twice)",
		}},
		{"the target's figures are missing", -1, nil, `
1 connect cm_tx_msgs/req 6982
0 connect cm_rx_msgs/req 6982`, "", nil},
		{"rejected and repeated requests are not dropped", 90, nil, `
1 connect cm_tx_msgs/req 100
0 connect cm_rx_msgs/req 100
0 connect cm_rx_duplicates/req 4
0 connect cm_tx_msgs/rej 6
1 connect cm_rx_msgs/rej 6`, "", nil},
		{"slow accept", 1000, []int64{5, 9000}, `
1 connect cm_tx_msgs/req 1086
1 connect cm_tx_retries/req 86
0 connect cm_rx_msgs/req 1086
0 connect cm_rx_duplicates/req 86
0 connect cm_tx_msgs/mra 79
1 connect cm_rx_msgs/mra 79`, "slow_accept", []string{
			"connect: rank 0 (a, rxe0 port 1) accepted slower than the REQ timer: 86 requests came again before the answer, initiators were asked 79 times for patience (MRA)",
		}},
		{"repeated without MRA says nothing of the target", 100, nil, `
1 connect cm_tx_msgs/req 103
0 connect cm_rx_msgs/req 103
0 connect cm_rx_duplicates/req 3`, "", nil},
		// recv_queue_size=64, 2,000 connections: drep 4001 sent, 3939 received.
		{"lost", 2000, []int64{40}, `
1 connect cm_tx_msgs/req 2000
0 connect cm_rx_msgs/req 2000
0 destroy cm_tx_msgs/drep 4001
1 destroy cm_rx_msgs/drep 3939
1 destroy cm_tx_retries/dreq 62
1 destroy cm_tx_msgs/dreq 2062
0 destroy cm_rx_msgs/dreq 2062`, "lost_mads", []string{
			"disconnect: 62 CM messages lost between the ports (drep 62): 8,063 sent, 62 of them again (CM retries: dreq 62); rank 1 (b, rxe1 port 1) did not receive 62 of them",
		}},
		// The same, more of it, with the packets that soft-RoCE counts: all came, so the queue at rank 0 was full.
		{"lost in the receive queue", 2000, []int64{40}, `
1 connect cm_tx_msgs/req 2774
1 connect cm_tx_retries/req 774
0 connect cm_rx_msgs/req 2650
0 connect cm_rx_duplicates/req 650
1 connect hw/sent_pkts 10781
0 connect hw/rcvd_pkts 10781
0 connect hw/sent_pkts 8000
1 connect hw/rcvd_pkts 8000`, "lost_mads", []string{
			"connect: 124 CM messages lost between the ports (req 124): 2,774 sent, 774 of them again (CM retries: req 774); rank 0 (a, rxe0 port 1) did not receive 124 of them; 18,781 packets were sent and 18,781 came to a port: the ports' receive queues were full",
		}},
		// The kernel counts an MRA that answers a request that came again as two sent ones: the driver sent 291, which all came.
		{"answers given again", 2000, []int64{40}, `
1 connect cm_tx_msgs/req 2295
1 connect cm_tx_retries/req 295
0 connect cm_rx_msgs/req 2295
0 connect cm_rx_duplicates/req 295
0 connect cm_tx_msgs/mra 582
0 connect cm_tx_retries/mra 291
1 connect cm_rx_msgs/mra 291`, "slow_accept", []string{
			"connect: rank 0 (a, rxe0 port 1) accepted slower than the REQ timer: 295 requests came again before the answer, initiators were asked 291 times for patience (MRA)",
		}},
		{"lost in both phases", 2000, []int64{40, 6150}, `
1 connect cm_tx_msgs/req 2001
1 connect cm_tx_retries/req 1
0 connect cm_rx_msgs/req 2000
1 destroy cm_tx_retries/dreq 2
1 destroy cm_tx_msgs/dreq 2002
0 destroy cm_rx_msgs/dreq 2000`, "lost_mads", []string{
			"disconnect: 3 CM messages lost between the ports (req 1, dreq 2): 4,003 sent, 3 of them again (CM retries: req 1, dreq 2); rank 0 (a, rxe0 port 1) did not receive 3 of them; 1 connect waited for the REQ timer (6.14 s: 1)",
		}},
		{"lost on the wire", 40, []int64{40}, `
1 connect cm_tx_msgs/req 43
1 connect cm_tx_retries/req 3
0 connect cm_rx_msgs/req 40
0 connect cm_tx_msgs/rep 44
0 connect cm_tx_retries/rep 4
1 connect cm_rx_msgs/rep 42
1 connect hw/sent_pkts 500
0 connect hw/rcvd_pkts 480`, "lost_mads", []string{
			"connect: 5 CM messages lost between the ports (req 3, rep 2): 87 sent, 7 of them again (CM retries: req 3, rep 4); rank 0 (a, rxe0 port 1) did not receive 3 of them; 20 of 500 packets did not come to any port",
		}},
		{"fewer received but none sent again: read too early", 2000, nil, `
1 connect cm_tx_msgs/rtu 2000
0 connect cm_rx_msgs/rtu 1999`, "", nil},
		{"a comb alone", 100, []int64{3, 4610}, `
1 connect cm_tx_msgs/req 101
1 connect cm_tx_retries/req 1
0 connect cm_rx_msgs/req 101
0 connect cm_rx_duplicates/req 1`, "comb", []string{
			"connect: 1 connect waited for the REQ timer (4.61 s: 1), 1 request sent again; neither a full backlog nor lost messages are seen at the ports",
		}},
		{"long, but nothing was sent again", 100, []int64{6150}, quiet, "", nil},
	} {
		causes := Diagnose(cmDoc(c.accepted, c.connects, c.lines))
		var kinds, evidence []string
		for _, cause := range causes {
			kinds, evidence = append(kinds, cause.Kind), append(evidence, cause.Evidence)
		}
		if strings.Join(kinds, " ") != c.kinds || !slices.Equal(evidence, c.want) {
			t.Errorf("%s: kinds %q\n%s\nwant %q\n%s", c.name, kinds, strings.Join(evidence, "\n"), c.kinds, strings.Join(c.want, "\n"))
		}
	}
}

// Requests that come to the port of a rank to which nobody connects did not find its backlog full.
func TestNoBacklogWithoutTargets(t *testing.T) {
	const lines = "0 connect cm_rx_msgs/req 9\n1 connect cm_tx_msgs/req 9\n"
	for to, want := range map[rank.Rank]int{0: 1, 1: 0} {
		d := cmDoc(0, nil, lines)
		d.EdgeList = []EdgeDoc{{From: 1 - to, To: to, Planned: 9, Rounds: 1}}
		got := slices.DeleteFunc(communication(d), func(c Cause) bool { return c.Kind != "backlog" })
		if len(got) != want {
			t.Errorf("an edge to rank %d: %+v", to, got)
		}
	}
}

// The count of backlog drops is in the cause itself, with the rank and the knob.
func TestBacklogCauseNames(t *testing.T) {
	c := Diagnose(cmDoc(201, nil, "1 connect cm_tx_msgs/req 266\n0 connect cm_rx_msgs/req 266"))[0]
	if c.Kind != "backlog" || *c.Count != 65 || c.Rank == nil || *c.Rank != 0 || c.Host != "a" || !strings.Contains(c.Fix, "net.rdma_ucm.max_backlog") {
		t.Errorf("%+v", c)
	}
}

// Ports add up over slots of one phase, and the list is bounded while the sums are not.
func TestPortsAddUp(t *testing.T) {
	var b portBuild
	for range 2 {
		s := &Summary{Phase: "connect"}
		for i := range MaxPorts + 3 {
			s.Ports = append(s.Ports, PortSum{Proc: rank.Proc(i), Device: "mlx5_0", Port: 1, Counts: []Count{{"cm_rx_msgs/req", 5}}})
		}
		b.add(s)
	}
	d := b.finish(nil)
	if d.Ports != MaxPorts+3 || len(d.List) != MaxPorts || d.LeftOut != 3 || d.Phases[0].Counts["cm_rx_msgs/req"] != 2*5*(MaxPorts+3) || d.List[7].Phases[0].Counts["cm_rx_msgs/req"] != 10 {
		t.Errorf("%d ports, %d listed, %d left out, %v", d.Ports, len(d.List), d.LeftOut, d.Phases)
	}
	if (&portBuild{}).finish(nil) != nil {
		t.Error("counters of no port")
	}
}

func TestGrowth(t *testing.T) {
	got := Growth(map[string]int64{"a": 1, "b": 5, "c": 9, "gone": 1}, map[string]int64{"c": 4, "b": 5, "a": 3, "new": 8})
	if want := []Count{{"a", 2}, {"c", 4}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestValidatePorts(t *testing.T) {
	one := func(edit func(*PortSum)) []PortSum {
		p := PortSum{Proc: 1, Device: "rxe0", Port: 1, Ranks: []rank.Rank{1, 2}, Counts: []Count{{"a", 1}, {"b", 2}}}
		edit(&p)
		return []PortSum{p}
	}
	if err := validatePorts(one(func(*PortSum) {})); err != nil {
		t.Error(err)
	}
	for i, bad := range [][]PortSum{
		one(func(p *PortSum) { p.Proc = -1 }),
		one(func(p *PortSum) { p.Device = strings.Repeat("x", 65) }),
		one(func(p *PortSum) { p.Ranks = []rank.Rank{2, 1} }),
		one(func(p *PortSum) { p.Ranks = []rank.Rank{-1} }),
		one(func(p *PortSum) { p.Counts[0].Count = 0 }),
		one(func(p *PortSum) { p.Counts[0].Count = 1 << 54 }),
		one(func(p *PortSum) { p.Counts[1].Name = "a" }),
		one(func(p *PortSum) { p.Counts = make([]Count, maxPortCounts+1) }),
		{{Proc: 2}, {Proc: 1}},
	} {
		if validatePorts(bad) == nil {
			t.Errorf("case %d passes", i)
		}
	}
}

// A document with counters keeps the schema, over the wire and back.
func TestPortsInTheDocument(t *testing.T) {
	s := &Summary{Phase: "connect", Covers: []uint64{1}, Ports: []PortSum{
		{Proc: 0, Device: "rxe1", Port: 1},
		{Proc: 0, Device: "rxe0", Port: 1, Ranks: []rank.Rank{0}, Counts: []Count{{"cm_rx_msgs/req", 4}, {"hw/rdma_sends", 9}}},
	}}
	b, err := EncodeSummary(s)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = DecodeSummary(b); err != nil {
		t.Fatal(err)
	}
	d := NewDocument(Meta{
		RunID: "r", StartedUTC: "2026-01-02T03:04:05Z", Transport: "rdma", Connect: "burst", Topology: rank.Params{Name: "incast"}, Stages: 1,
		Connections: 1, Procs: 1, RanksPerProc: 1, Ranks: []RankMeta{{Host: "a"}},
	})
	if err := d.AddSlot(s); err != nil {
		t.Fatal(err)
	}
	d.Finish(Exit{})
	var out bytes.Buffer
	if err := d.Encode(&out); err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiledSchema(t).Validate(parsed); err != nil {
		t.Error(err)
	}
	back, err := Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	if c := back.DeviceCounters; c == nil || c.Ports != 2 || c.List[0].Device != "rxe0" || c.List[0].Host != "a" || c.Phases[0].Counts["hw/rdma_sends"] != 9 {
		t.Errorf("%+v", back.DeviceCounters)
	}
}

// What the provider counts must come back, what the kernel counts must not grow;
// what is not known is not judged.
func TestRDMALeaks(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after RDMAHeld
		want          []string
	}{
		{"nothing left", RDMAHeld{KernelMRs: 1}, RDMAHeld{}, nil},
		{"an id", RDMAHeld{}, RDMAHeld{IDs: 1, KernelIDs: 1}, []string{"ids", "ids in the kernel"}},
		{"a queue pair that only the kernel knows", RDMAHeld{}, RDMAHeld{KernelQPs: 3}, []string{"queue pairs in the kernel"}},
		{"not known before", RDMAHeld{KernelCQs: -1}, RDMAHeld{KernelCQs: 2}, nil},
		{"completion queues and regions", RDMAHeld{CQs: 2}, RDMAHeld{MRs: 1}, []string{"completion queues", "regions"}},
	} {
		d := NewDocument(Meta{Procs: 1, RanksPerProc: 1, Ranks: []RankMeta{{Host: "a"}}})
		for i, h := range []RDMAHeld{c.before, c.after} {
			s := &Summary{Seq: int32(i), Phase: []string{"create", "destroy"}[i], Covers: []uint64{1}}
			s.Resources = []ProcResources{{Moment: []string{"before", "after"}[i], ProcFDs: -1, Goroutines: -1, RSSBytes: -1, RDMA: &h}}
			b, err := EncodeSummary(s)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = DecodeSummary(b); err != nil {
				t.Fatal(err)
			}
			if err := d.AddSlot(s); err != nil {
				t.Fatal(err)
			}
		}
		d.Finish(Exit{})
		var got []string
		for _, l := range d.Leaks() {
			got = append(got, l.What)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: leaks %q, want %q", c.name, got, c.want)
		}
	}
}

// Connects that timed out while a backlog dropped requests are not blamed on a
// firewall: the connection manager would have gone on.
func TestTimeoutsOfDroppedRequests(t *testing.T) {
	d := cmDoc(96, []int64{3, 6150, 6160}, "1 connect cm_tx_msgs/req 266\n1 connect cm_tx_retries/req 65\n0 connect cm_rx_msgs/req 266")
	d.Phases[0].Steps[1].Failures, d.Phases[0].Steps[1].Failed = map[string]int64{"timeout": 4}, 4
	d.Connections.Planned = 100
	got := Diagnose(d)
	if len(got) != 2 || got[0].Kind != "failed" || got[1].Kind != "backlog" || !strings.Contains(got[0].Fix, "--phase-timeout 2m") {
		t.Errorf("%+v", got)
	}
	d.DeviceCounters = nil
	if got := Diagnose(d); len(got) != 1 || got[0].Fix != timeoutFix {
		t.Errorf("without counters: %+v", got)
	}
}

// With more than two ports the lost messages are looked for at the ports that
// such messages go to; where these are alike, nobody is named.
func TestWhereMessagesWereLost(t *testing.T) {
	for _, c := range []struct {
		name     string
		takes    []int64   // connections that each rank took
		begins   []int64   // … and began
		received [][]int64 // REQs and REPs of each rank's port
		lost     string
		rank     rank.Rank // -1: nobody
		how      string
	}{
		{"requests of an incast", []int64{100, 0, 0}, []int64{0, 50, 50}, [][]int64{{100, 0}, {0, 50}, {0, 50}}, "req", 0, "rank 0 (n0, rxe port 1) is the port of all targets, to which 7 of them were on their way"},
		{"answers of an incast", []int64{100, 0, 0}, []int64{0, 50, 50}, [][]int64{{100, 0}, {0, 50}, {0, 50}}, "rep", -1, ""},
		{"answers of a fanout", []int64{0, 50, 50}, []int64{100, 0, 0}, [][]int64{{0, 100}, {50, 0}, {50, 0}}, "rep", 0, "rank 0 (n0, rxe port 1) is the port of all initiators, to which 7 of them were on their way"},
		{"requests to a hot target", []int64{60, 20, 20}, []int64{30, 30, 40}, [][]int64{{60, 30}, {20, 30}, {20, 40}}, "req", 0, "rank 0 (n0, rxe port 1) received 60 % of what came to targets, to which 7 of them were on their way"},
		{"all to all", []int64{30, 30, 30}, []int64{30, 30, 30}, [][]int64{{30, 30}, {30, 30}, {30, 30}}, "req", -1, ""},
	} {
		accept, connect := StepDoc{Step: "accept", Side: SideTarget}, histStep("connect", []int64{1e6})
		d := &Document{
			Transport: "rdma", Phases: []PhaseDoc{{Phase: "connect"}}, Limits: map[string]int64{"rdma_recv_queue": 64},
			DeviceCounters: &DeviceCountersDoc{Phases: []PortPhaseDoc{{Phase: "connect", Counts: map[string]int64{"cm_tx_msgs/" + c.lost: 107, "cm_rx_msgs/" + c.lost: 100, "cm_tx_retries/req": 7}}}},
		}
		for i := range c.takes {
			r := rank.Rank(i)
			host := fmt.Sprintf("n%d", i)
			d.Ranks = append(d.Ranks, RankDoc{Rank: r, Proc: rank.Proc(i), Host: host})
			accept.PerRank = append(accept.PerRank, PerRankDoc{Rank: r, Count: c.takes[i]})
			connect.PerRank = append(connect.PerRank, PerRankDoc{Rank: r, Count: c.begins[i]})
			d.DeviceCounters.List = append(d.DeviceCounters.List, PortDoc{
				Proc: rank.Proc(i), Host: host, Device: "rxe", Port: 1, Ranks: []rank.Rank{r},
				Phases: []PortPhaseDoc{{Phase: "connect", Counts: map[string]int64{"cm_rx_msgs/req": c.received[i][0], "cm_rx_msgs/rep": c.received[i][1]}}},
			})
		}
		d.Phases[0].Steps = []StepDoc{accept, connect}
		got := lostMessages(d, d.taken())
		if len(got) != 1 {
			t.Fatalf("%s: %d causes", c.name, len(got))
		}
		named := rank.Rank(-1)
		if got[0].Rank != nil {
			named = *got[0].Rank
		}
		if named != c.rank || !strings.HasSuffix(got[0].Evidence, c.how) || c.how == "" && strings.Contains(got[0].Evidence, "rank") {
			t.Errorf("%s: rank %d named: %s", c.name, named, got[0].Evidence)
		}
		if !strings.Contains(got[0].Fix, "ib_core.recv_queue_size (64 at rank 0)") {
			t.Errorf("%s: fix %s", c.name, got[0].Fix)
		}
	}
}
