package runner

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// diary is a Witness that writes down what it is told.
type diary struct {
	mu     sync.Mutex
	begun  []string
	own    []*collect.Summary
	whole  []*collect.Summary
	broken int
}

func (d *diary) Begins(s phases.Slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun = append(d.begun, fmt.Sprintf("%d %s", s.Round, s.Phase))
}

func (d *diary) Own(s *collect.Summary, complete bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own = append(d.own, s)
	if !complete {
		d.broken++
	}
}

func (d *diary) Ends(*collect.Document) {}

func (d *diary) Whole(s *collect.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.whole = append(d.whole, s)
}

// row of a step in a slot, nil if there is none.
func row(list []*collect.Summary, round int32, phase phases.Token, step, side string) *collect.StepSum {
	for _, s := range list {
		for i := range s.Steps {
			if st := &s.Steps[i]; s.Round == round && s.Phase == string(phase) && st.Step == step && st.Side == side {
				return st
			}
		}
	}
	return nil
}

func count(s *collect.StepSum) int64 {
	if s == nil {
		return 0
	}
	return s.Total.Count
}

// lastIsTarget is an arrangement: the last process is connected to by all others.
func lastIsTarget(t *rank.Table) (Arrangement, error) {
	last := t.Size() - 1
	return Arrangement{
		Topology: rank.Params{Name: "m2n", Initiators: fmt.Sprintf("0-%d", last-1), Targets: fmt.Sprint(last)}, FirstQPN: 5000,
	}, nil
}

// Rounds that differ: one connection per edge, then all, then all without queue
// pairs; who connects to whom comes from the table; every process is told of its
// own figures, and the root of all together.
func TestPassesWitnessAndArrangement(t *testing.T) {
	const procs, conns, delay = 3, 4, 2 * time.Millisecond
	for _, c := range []struct {
		name  string
		steps transport.StepSet
	}{{"tcp", sim.StepsTCP}, {"rdma", sim.StepsRDMA}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := spec(procs, func(s *phases.Spec) {
					s.Connections, s.Rounds, s.NoProbe, s.FromCreate = conns, 3, true, true
					s.Passes = []phases.Pass{{Connections: 1}, {Connections: conns}, {Connections: conns, NoQPs: true, Delay: delay}}
				})
				s.Topology = rank.Params{Name: "m2n"}
				diaries := make([]*diary, procs)
				b := start(t, 2, s, sim.FabricConfig{Steps: c.steps, PerConnCost: 5 * time.Microsecond}, func(i int, cfg *Config) {
					diaries[i] = &diary{}
					cfg.Witness, cfg.Arrange, cfg.Threads = diaries[i], lastIsTarget, i+1
				})
				d := b.clean()
				if d.Topology.Params["targets"] != "2" {
					t.Errorf("the document says %v about the topology", d.Topology.Params)
				}
				whole(t, d, 2*(1+conns+conns))
				if b.procs[0].stdout.String() != "" {
					t.Errorf("a table was printed beside the witness:\n%s", &b.procs[0].stdout)
				}
				for i, di := range diaries {
					if want := (i == 0); (len(di.whole) > 0) != want {
						t.Errorf("process %d was told of the whole %d times", i, len(di.whole))
					}
					if len(di.begun) != len(di.own) || di.broken > 0 || slices.ContainsFunc(di.begun, func(s string) bool { return strings.HasSuffix(s, "probe") }) {
						t.Errorf("process %d: begun %v, told of %d, %d broken off", i, di.begun, len(di.own), di.broken)
					}
				}
				for round, want := range []int64{1, conns, conns} {
					r := int32(round)
					for i := range 2 {
						if got := count(row(diaries[i].own, r, phases.Create, "create id", collect.SideInitiator)); got != want {
							t.Errorf("round %d: initiator %d created %d ids, want %d", round, i, got, want)
						}
						all, full := row(diaries[i].own, r, phases.Connect, collect.FromCreate, collect.SideInitiator), row(diaries[i].own, r, phases.Connect, "full connect", collect.SideInitiator)
						made := row(diaries[i].own, r, phases.Create, "create id", collect.SideInitiator)
						switch {
						case count(all) != want || count(full) != want:
							t.Errorf("round %d: %d of %d connections counted from their creation", round, count(all), count(full))
						case all.FirstBegin < made.FirstBegin || all.FirstBegin > full.FirstBegin || all.LastEnd != full.LastEnd:
							t.Errorf("round %d: from creation counts %d to %d, want from %d or later to %d", round, all.FirstBegin, all.LastEnd, made.FirstBegin, full.LastEnd)
						}
						// On the fabric's clock the steps of one connection take 5 µs each, and nothing waits for
						// anything but the others of its phase; the barriers between phases take 10 ms each.
						if rest := all.Total.MaxNS - full.Total.MaxNS; c.name == "tcp" && round < 2 && rest > int64(time.Millisecond) {
							t.Errorf("round %d: %d ns before connect, the waits between phases are in it", round, rest)
						}
					}
					if got := count(row(diaries[2].own, r, phases.Connect, "accept", collect.SideTarget)); got != 2*want {
						t.Errorf("round %d: the target accepted %d, want %d", round, got, 2*want)
					}
				}
				sums(t, diaries)
				played := row(diaries[0].own, 2, phases.QP, "create qp", collect.SideInitiator)
				if c.name == "tcp" {
					played = row(diaries[0].own, 2, phases.QP, collect.MimicName(transport.StepCreateQP.String()), collect.SideInitiator)
					if row(diaries[0].own, 1, phases.QP, collect.MimicName(transport.StepCreateQP.String()), collect.SideInitiator) != nil {
						t.Error("the round with queue pairs slept as well")
					}
				} else {
					if got := row(diaries[2].own, 2, phases.Connect, "accept rts qp", collect.SideTarget); count(got) != 2*conns || got.Total.MinNS < int64(delay) {
						t.Errorf("the target played %+v", got)
					}
					if row(diaries[0].own, 2, phases.Destroy, "destroy qp", collect.SideInitiator) != nil {
						t.Error("queue pairs were destroyed that there were none of")
					}
					if got := row(diaries[0].own, 1, phases.QP, "create qp", collect.SideInitiator); got.Total.MaxNS >= int64(delay) {
						t.Errorf("the round with queue pairs took %+v", got.Total)
					}
				}
				if count(played) != conns || played.Total.MinNS < int64(delay) {
					t.Errorf("create qp without queue pairs: %+v, want %d of %s", played, conns, delay)
				}
			})
		})
	}
}

// sums compares what the root is told with the processes' own figures, added up.
func sums(t *testing.T, diaries []*diary) {
	t.Helper()
	type key struct {
		slot       int32
		step, side string
	}
	counts, durations := map[key]int64{}, map[key]int64{}
	for _, d := range diaries {
		for _, s := range d.own {
			for _, st := range s.Steps {
				counts[key{s.Seq, st.Step, st.Side}] += st.Total.Count
				durations[key{s.Seq, st.Step, st.Side}] += st.Total.SumNS
			}
		}
	}
	for _, s := range diaries[0].whole {
		for _, st := range s.Steps {
			k := key{s.Seq, st.Step, st.Side}
			if st.Total.Count != counts[k] || st.Total.SumNS != durations[k] {
				t.Errorf("%+v: whole %d in %d ns, own together %d in %d ns", k, st.Total.Count, st.Total.SumNS, counts[k], durations[k])
			}
			delete(counts, k)
		}
	}
	if len(counts) > 0 {
		t.Errorf("the root was not told of %v", counts)
	}
}

func TestNumbersOfRanksAndRounds(t *testing.T) {
	topo, err := rank.NewTopology(rank.NewLayout(4, 1), rank.Params{Name: "m2n", M: 3, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNumbers(topo, 4, 10, 1000)
	if err != nil {
		t.Fatal(err)
	}
	taken := map[uint32]string{}
	for round := range int32(2) {
		for r := range rank.Rank(4) {
			first, count := n.of(r, round)
			if count < 30 {
				t.Fatalf("%d numbers at rank %d, the target has 30 connections", count, r)
			}
			for q := first; q < first+count; q++ {
				if who := taken[q]; who != "" {
					t.Fatalf("%d goes to %s and to rank %d in round %d", q, who, r, round)
				}
				taken[q] = fmt.Sprintf("rank %d in round %d", r, round)
			}
		}
	}
	if a, _ := n.of(1, 0); a != 1030 {
		t.Errorf("rank 1 begins at %d, want 1000 + 1 × 30", a)
	}
	if a, _ := n.of(1, 2); a != 1030 {
		t.Errorf("round 2 begins at %d, want what round 0 had", a)
	}
	// 4 ranks of 30 × 100,000 / 3 … fit once, not twice; of ten times as many not at all.
	if n, err = newNumbers(topo, 4, 1_000_000, 1000); err != nil || n.turns != 1 {
		t.Errorf("%+v, %v, want one turn", n, err)
	}
	if _, err = newNumbers(topo, 4, 1_500_000, 1000); rank.ExitCode(err) != 2 || !strings.Contains(err.Error(), "4 ranks with up to 4500000 connections each") {
		t.Errorf("error %v", err)
	}
	if _, err = newNumbers(topo, 4, 1, endOfQPNs-11); err == nil {
		t.Error("12 numbers were found among the last 11")
	}
}
