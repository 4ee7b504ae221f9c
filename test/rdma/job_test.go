package rdma

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document is what these tests read of a result.
type document struct {
	Connections struct{ Planned, Established, Accepted, Failed, Dead int64 }
	Phases      []struct {
		Phase string
		Steps []struct {
			Step, Side string
			Count      int64
			PerRank    []struct{ Rank, Count, Failed int64 } `json:"per_rank"`
		}
	}
	Clock []struct {
		BoundNS int64 `json:"bound_ns"`
	}
	Causes   []cause
	Counters *struct {
		List []struct {
			Device string
			Ranks  []int64
			Phases []struct{ Counts map[string]int64 }
		}
	} `json:"device_counters"`
	Losses []struct{ Proc int64 }
	Exit   struct {
		Code    int
		Text    string
		Partial bool
	}
}

type cause struct {
	Kind, Evidence, Fix string
	Rank, Count         *int64
}

func read(t *testing.T, name string) document {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// counted is a counter of the port behind a rank, over all phases.
func (d document) counted(rank int64, name string) (n int64) {
	if d.Counters == nil {
		return 0
	}
	for _, p := range d.Counters.List {
		if slices.Contains(p.Ranks, rank) {
			for _, phase := range p.Phases {
				n += phase.Counts[name]
			}
		}
	}
	return n
}

func (d document) step(step, side string) (count int64) {
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			if s.Step == step && s.Side == side {
				count += s.Count
			}
		}
	}
	return count
}

// guest starts scripts: the program on the machine's own disk, and the flags of a job over both devices.
const guest = `
	cp rankstorm /tmp; PATH=/tmp:$PATH
	flags="--transport rdma -b 10.66.0.1,10.66.0.2 --quiet"
	# nobody holds anything: the kernel's own count of queue pairs is one per device
	nothing() { sleep 0.2; rdma res | sed 's/pd [0-9]* cq [0-9]* //; s/ mr.*//' ; }
`

// TestStorms runs whole jobs over two devices: every step that RDMA CM has is
// measured for every connection, at both sides, and nothing is left.
func TestStorms(t *testing.T) {
	o := script(t, []string{"-t", "200"}, guest+`
		rankstorm run --spawn 4 --topology all_to_all -c 25 --rounds 2 $flags -o all.json >all.txt
		rankstorm run --spawn 4 --topology incast -c 50 $flags -o incast.json >incast.txt
		rankstorm run --spawn 3 --topology fanout -c 50 -n 2 $flags -o fanout.json >fanout.txt
		nothing
	`).clean(t)
	for _, c := range []struct {
		name  string
		conns int64
	}{{"all", 2 * 4 * 3 * 25}, {"incast", 3 * 50}, {"fanout", 2 * 50}} {
		d := read(t, c.name+".json")
		if n := d.Connections; n.Planned != c.conns || n.Established != c.conns || n.Accepted != c.conns || n.Failed != 0 || n.Dead != 0 {
			t.Errorf("%s: connections %+v, want %d", c.name, n, c.conns)
		}
		for side, steps := range map[string][]string{
			"initiator": {
				"create id", "bind addr", "resolve addr", "resolve route", "create qp", "init qp attr", "init qp", "connect", "rtr qp attr", "rtr qp",
				"rts qp attr", "rts qp", "establish", "full connect", "first round trip", "disconnect", "destroy qp", "destroy id",
			},
			"target": {
				"accept", "accept create qp", "accept init qp attr", "accept init qp", "accept rtr qp attr", "accept rtr qp", "accept rts qp attr", "accept rts qp",
				"probe answer", "peer disconnect",
			},
		} {
			for _, s := range steps {
				if n := d.step(s, side); n != c.conns {
					t.Errorf("%s: step %q of the %s is measured %d times, want %d", c.name, s, side, n, c.conns)
				}
			}
		}
		table, err := os.ReadFile(filepath.Join(folder, c.name+".txt"))
		if err != nil || !strings.Contains(string(table), "back to the baseline") {
			t.Errorf("%s: %v\n%s", c.name, err, table)
		}
		if d.Counters == nil || len(d.Counters.List) != 2 {
			t.Errorf("%s: no counters of two ports: %+v", c.name, d.Counters)
		} else if got := d.counted(0, "cm_tx_msgs/req") + d.counted(1, "cm_tx_msgs/req"); got < c.conns {
			t.Errorf("%s: the ports sent %d requests, want at least %d", c.name, got, c.conns)
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^.*qp (\d+) cm_id (\d+).*$`).FindAllStringSubmatch(o.stdout, -1) {
		if line[1] != "1" || line[2] != "0" {
			t.Errorf("left after the jobs: %s", line[0])
		}
	}
	if !strings.Contains(o.stdout, "cm_id 0") {
		t.Errorf("rdma res says:\n%s", o.stdout)
	}
}

// TestBacklogDrops: a target that does not read requests for a second, behind a
// backlog of two. The kernel drops the rest without a word, their initiators
// wait for the REQ timer, and the cause line says how many, where and why.
func TestBacklogDrops(t *testing.T) {
	script(t, []string{"-t", "200", "--sysctl", "net.rdma_ucm.max_backlog=2"}, guest+`
		rankstorm run --spawn 2 --topology incast -c 30 --delay rank=0,phase=connect,ms=1000 --phase-timeout 100s $flags -o backlog.json >backlog.txt
	`).clean(t)
	d := read(t, "backlog.json")
	var accepted int64
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			if s.Step == "accept" && s.Side == "target" {
				accepted = s.Count
			}
		}
	}
	want := d.counted(0, "cm_rx_msgs/req") - accepted - d.counted(0, "cm_rx_duplicates/req") - d.counted(0, "cm_tx_msgs/rej")
	if want < 1 || accepted != 30 {
		t.Fatalf("%d requests dropped, %d accepted: the trap did not work", want, accepted)
	}
	for _, c := range d.Causes {
		if c.Kind != "backlog" {
			continue
		}
		if c.Rank == nil || *c.Rank != 0 || *c.Count != want || !strings.Contains(c.Evidence, fmt.Sprintf("backlog drops at rank 0 (lab, rxe0 port 1): %d", want)) ||
			!strings.Contains(c.Evidence, "waited for the REQ timer (6.14 s: ") || !strings.Contains(c.Fix, "net.rdma_ucm.max_backlog") {
			t.Errorf("want %d drops at rank 0 and the comb: %+v", want, c)
		}
		return
	}
	t.Errorf("no cause of kind backlog: %+v", d.Causes)
}

// TestKilledInEachPhase kills a process in each phase: the others end, name it,
// write a partial document, and leave no id and no queue pair.
func TestKilledInEachPhase(t *testing.T) {
	phases := []string{"create", "resolve", "qp", "connect", "probe", "disconnect"}
	o := script(t, []string{"-t", "200"}, guest+`
		for phase in `+strings.Join(phases, " ")+`; do
			timeout 60 rankstorm run --spawn 3 -c 10 --transport rdma -b 10.66.0.1,10.66.0.2 --hold $phase=1s -o $phase.json >$phase.out 2>$phase.err & job=$!
			pid=
			while [ -z "$pid" ]; do
				kill -0 $job; sleep 0.05
				pid=$(sed -n "s/.*holding rank 2 pid \([0-9]*\) phase $phase .*/\1/p" $phase.err)
			done
			kill -9 $pid
			code=0; wait $job || code=$?
			echo "$phase exit $code"
			nothing
		done
	`).clean(t)
	for _, phase := range phases {
		if !strings.Contains(o.stdout, phase+" exit 1\n") {
			t.Errorf("%s: want exit 1", phase)
		}
		d := read(t, phase+".json")
		if d.Exit.Code != 1 || !d.Exit.Partial || !strings.Contains(d.Exit.Text, "rank 2") || len(d.Losses) != 1 || d.Losses[0].Proc != 2 {
			t.Errorf("%s: exit %+v, losses %+v: want a partial document that names rank 2", phase, d.Exit, d.Losses)
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^.*qp (\d+) cm_id (\d+).*$`).FindAllStringSubmatch(o.stdout, -1) {
		if line[1] != "1" || line[2] != "0" {
			t.Errorf("left: %s", line[0])
		}
	}
	if t.Failed() {
		t.Log(o.stdout, o.stderr)
	}
}

// TestTwoMachines: a job across two kernels, whose clocks have to be compared,
// first on a good wire, then on one that loses packets: retries are counted.
func TestTwoMachines(t *testing.T) {
	o := script(t, []string{"--vms", "2", "-t", "200"}, `
		cp rankstorm /tmp; PATH=/tmp:$PATH
		here=RDMALAB_IP$RDMALAB_VM
		job() { rankstorm run -C $RDMALAB_IP0 -P 2 --job $1 --host m$RDMALAB_VM --transport rdma -b ${!here} -c 20 --quiet "${@:2}"; }
		job good -o good.json
		meet between
		tc qdisc add dev lab$RDMALAB_VM root netem loss 5%
		job lossy -o lossy.json || [ $? = 1 ] # a disconnect may fail: both its messages can be lost
	`).clean(t)
	for _, name := range []string{"good", "lossy"} {
		d := read(t, name+".json")
		if n := d.Connections; n.Established != 40 || n.Dead != 0 || name == "good" && n.Failed != 0 {
			t.Errorf("%s: %+v\n%s", name, n, o.stderr)
		}
		if len(d.Clock) != 2 || d.Clock[1].BoundNS <= 0 {
			t.Errorf("%s: clocks %+v: want the second with a bound", name, d.Clock)
		}
		if d.Counters == nil || len(d.Counters.List) != 2 {
			t.Errorf("%s: counters of both machines: %+v", name, d.Counters)
		}
	}
	d := read(t, "lossy.json")
	var again int64
	for _, m := range []string{"req", "rep", "dreq"} {
		again += d.counted(0, "cm_tx_retries/"+m) + d.counted(1, "cm_tx_retries/"+m)
	}
	if again == 0 {
		t.Errorf("no message was sent again on a wire that loses 5 %%: %+v", d.Counters)
	}
	if !slices.ContainsFunc(d.Causes, func(c cause) bool {
		return c.Kind == "lost_mads" && strings.Contains(c.Evidence, "of them again")
	}) {
		t.Errorf("no cause says that messages were lost: %+v", d.Causes)
	}
}
