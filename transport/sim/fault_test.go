package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// pair is an initiator prepared to connect n times to a target that listens
// and accepts on a goroutine of its own.
func pair(t *testing.T, f *sim.Fabric, steps transport.StepSet, n, backlog int) (from, to *rank, stop func()) {
	t.Helper()
	from, to = open(t, f, "from"), openBacklog(t, f, "to", backlog)
	if err := to.w.Reserve(0, n); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); to.accept() }()
	if err := from.w.Reserve(n, 0); err != nil {
		t.Fatal(err)
	}
	var h transport.Hello
	for c := range n {
		if err := from.w.Assign(transport.Conn(c), to.adr, &h); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range setUp[:len(setUp)-1] {
		if steps.Has(s) {
			from.do(s, n)
		}
	}
	return from, to, func() {
		to.w.Wake()
		<-done
		from.ep.Close()
		to.ep.Close()
	}
}

// took gives the durations of a step in order of connections; failed ones are 0.
func took(events []transport.Event, s transport.Step, n int) []time.Duration {
	d := make([]time.Duration, n)
	for _, e := range events {
		if e.Kind == transport.StepDone && e.Step == s {
			d[e.Conn] = time.Duration(e.End - e.Begin)
		}
	}
	return d
}

// near finds the tooth that lies at most a round trip below d, -1 if none.
func near(d, trip time.Duration, teeth []time.Duration) int {
	return slices.IndexFunc(teeth, func(t time.Duration) bool { return d >= t && d <= t+trip })
}

func TestLostRequestsFormAComb(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps transport.StepSet
		teeth []time.Duration
	}{
		{"tcp", sim.StepsTCP, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second, 63 * time.Second}},
		{"rdma", sim.StepsRDMA, []time.Duration{0, 6144 * time.Millisecond, 12288 * time.Millisecond, 18432 * time.Millisecond, 24576 * time.Millisecond, 30720 * time.Millisecond, 36864 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 400
				f := sim.NewFabric(sim.FabricConfig{Seed: 7, Steps: c.steps, Latency: time.Millisecond, Loss: 0.25, DataRetry: time.Microsecond})
				from, _, stop := pair(t, f, c.steps, n, 0)
				defer stop()
				count := make([]int64, len(c.teeth))
				var retries int64
				for i, d := range took(from.do(transport.StepConnect, n), transport.StepConnect, n) {
					k := near(d, 3*time.Millisecond, c.teeth)
					if k < 0 {
						t.Fatalf("connection %d took %v, between the teeth %v", i, d, c.teeth)
					}
					count[k]++
					retries += int64(k)
				}
				if count[0] < 250 || count[1] < 50 || count[2] < 5 {
					t.Errorf("teeth %v, want about 300, 75, 19 for a loss of a quarter", count)
				}
				if got := from.ep.Counters().SYNRetries; got != retries {
					t.Errorf("%d retries are counted, the comb shows %d", got, retries)
				}
			})
		})
	}
}

// Slow is of one direction only, named by endpoint or by host, and adds up.
func TestSlowWay(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     time.Duration
	}{{"from", "to", 34 * time.Millisecond}, {"from", "host-to", 34 * time.Millisecond}, {"to", "from", 4 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			f := sim.NewFabric(sim.FabricConfig{Steps: sim.StepsTCP, Latency: time.Millisecond})
			from, _, stop := pair(t, f, sim.StepsTCP, 1, 8)
			defer stop()
			f.Slow([]string{c.from}, []string{c.to}, 10*time.Millisecond)
			f.Slow([]string{c.from}, []string{c.to}, 20*time.Millisecond)
			if d := took(from.do(transport.StepConnect, 1), transport.StepFullConnect, 1)[0]; d != c.want {
				t.Errorf("%s to %s: full connect took %v, want %v", c.from, c.to, d, c.want)
			}
		})
	}
}

func TestPausedTargetOverflowsItsBacklog(t *testing.T) {
	for name, steps := range map[string]transport.StepSet{"tcp": sim.StepsTCP, "rdma": sim.StepsRDMA} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, backlog = 16, 8 // the second wave fits
				f := sim.NewFabric(sim.FabricConfig{Steps: steps, Latency: time.Millisecond, Retry: time.Second})
				from, to, stop := pair(t, f, steps, n, backlog)
				defer stop()
				f.Pause("to")
				time.AfterFunc(300*time.Millisecond, func() { f.Resume("to") })
				full := took(from.do(transport.StepConnect, n), transport.StepFullConnect, n)
				early := 0
				for c, d := range full {
					switch near(d, 10*time.Millisecond, []time.Duration{299 * time.Millisecond, time.Second}) {
					case 0:
						early++
					case 1:
					default:
						t.Errorf("connection %d took %v, want 300 ms from the backlog or 1 s by the retry", c, d)
					}
				}
				if early != backlog {
					t.Errorf("%d connections waited in a backlog of %d", early, backlog)
				}
				if got := to.ep.Counters().ListenDrops; got != n-backlog {
					t.Errorf("%d drops are counted, want %d", got, n-backlog)
				}
			})
		})
	}
}

func TestPartition(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps transport.StepSet
		heal  time.Duration // 0: never
		want  time.Duration
		cause transport.Cause
	}{
		{"tcp healed", sim.StepsTCP, 2500 * time.Millisecond, 3 * time.Second, transport.CauseNone},
		{"tcp for good", sim.StepsTCP, 0, 127 * time.Second, transport.CauseTimeout},
		{"rdma healed", sim.StepsRDMA, 2500 * time.Millisecond, 6144 * time.Millisecond, transport.CauseNone},
		{"rdma for good", sim.StepsRDMA, 0, 16 * 6144 * time.Millisecond, transport.CauseTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := sim.NewFabric(sim.FabricConfig{Steps: c.steps, Latency: time.Millisecond})
				from, _, stop := pair(t, f, c.steps, 1, 0)
				defer stop()
				f.Partition([]string{"from"}, []string{"host-to", "somebody else"})
				if c.heal > 0 {
					time.AfterFunc(c.heal, f.Heal)
				}
				ev := from.do(transport.StepConnect, 1)
				last := ev[len(ev)-1]
				if d := time.Duration(last.End - last.Begin); last.Cause != c.cause || near(d, 10*time.Millisecond, []time.Duration{c.want}) < 0 {
					t.Errorf("%v ended after %v as %q, want %v and %q", last.Step, d, last.Cause, c.want, c.cause)
				}
			})
		})
	}
}

func TestPartitionOfAnIdleConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sim.NewFabric(sim.FabricConfig{Latency: time.Millisecond})
		from, _, stop := pair(t, f, sim.StepsTCP, 2, 0)
		defer stop()
		from.do(transport.StepConnect, 2)
		f.Partition([]string{"from"}, []string{"to"})
		time.AfterFunc(time.Second, f.Heal)
		d := took(from.do(transport.StepProbe, 2), transport.StepProbe, 2)
		if d[0] < time.Second || d[0] > 2*time.Second {
			t.Errorf("the probe took %v through a partition of 1 s that retries outlive", d[0])
		}
		f.Partition([]string{"from"}, []string{"to"})
		for _, e := range from.do(transport.StepProbe, 2) {
			if e.Kind != transport.StepFailed || e.Cause != transport.CauseTimeout {
				t.Errorf("a probe into a lasting partition: %+v, want a timeout", e)
			}
		}
	})
}

// TestSeedReplays runs a storm with loss and a small backlog twice.
func TestSeedReplays(t *testing.T) {
	runs := map[uint64][]string{}
	for _, seed := range []uint64{1, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			cfg := sim.FabricConfig{Seed: seed, Steps: sim.StepsRDMA, Latency: 100 * time.Microsecond, Jitter: 80 * time.Microsecond, Loss: 0.05}
			cfg.Costs[transport.StepAccept] = 30 * time.Microsecond
			f := sim.NewFabric(cfg)
			const ranks, each = 20, 10
			to := openBacklog(t, f, "to", 16)
			to.w.Reserve(0, ranks*each)
			stopped := make(chan struct{})
			go func() { defer close(stopped); to.accept() }()
			lines := make(chan string)
			for i := range ranks {
				go func() {
					r := open(t, f, fmt.Sprint("rank ", i))
					defer r.ep.Close()
					r.w.Reserve(each, 0)
					var h transport.Hello
					for c := range each {
						r.w.Assign(transport.Conn(c), to.adr, &h)
					}
					var b strings.Builder
					for _, s := range setUp {
						for _, e := range r.do(s, each) {
							fmt.Fprintln(&b, i, e.Conn, e.Step, e.Kind, e.Begin, e.End)
						}
					}
					lines <- b.String()
				}()
			}
			var all []string
			for range ranks {
				all = append(all, <-lines)
			}
			slices.Sort(all)
			drops := to.ep.Counters().ListenDrops
			if drops == 0 {
				t.Error("nothing was dropped, the scenario is too tame to show anything")
			}
			all = append(all, fmt.Sprint("drops ", drops))
			to.w.Wake()
			<-stopped
			to.ep.Close()
			if before, ok := runs[seed]; ok && !slices.Equal(before, all) {
				t.Errorf("seed %d gave other events the second time", seed)
			}
			runs[seed] = all
		})
	}
	if slices.Equal(runs[1], runs[2]) {
		t.Error("another seed gave the same events")
	}
}

func TestCostsQueueUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sim.FabricConfig{PerConnCost: 10 * time.Microsecond, Steps: sim.StepsRDMA}
		cfg.Costs[transport.StepResolveAddr] = 5 * time.Millisecond
		f := sim.NewFabric(cfg)
		from, to := open(t, f, "from"), open(t, f, "to")
		defer from.ep.Close()
		defer to.ep.Close()
		const n = 50
		from.w.Reserve(n, 0)
		var h transport.Hello
		for c := range n {
			from.w.Assign(transport.Conn(c), to.adr, &h)
		}
		begin := from.clk.Now()
		for _, e := range from.do(transport.StepCreateID, n) {
			if want := begin + int64(e.Conn)*10_000; e.Begin != want || e.End != want+10_000 {
				t.Errorf("connection %d was created from %d to %d, want %d and 10 µs", e.Conn, e.Begin, e.End, want)
			}
		}
		from.do(transport.StepBindAddr, n)
		begin = from.clk.Now()
		for _, e := range from.do(transport.StepResolveAddr, n) {
			if e.Begin != begin || e.End != begin+5_000_000 {
				t.Errorf("connection %d was resolved from %d to %d, want all of them side by side in 5 ms", e.Conn, e.Begin, e.End)
			}
		}
	})
}

func TestClocksMayDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sim.NewFabric(sim.FabricConfig{Latency: time.Millisecond})
		from, to, stop := pair(t, f, sim.StepsTCP, 1, 0)
		defer stop()
		clk := sim.NewClock(-time.Hour)
		ep, err := sim.New(f).Open(transport.Config{Clock: clk, Name: "early", Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		from.ep, from.w, from.clk = ep, ep.Worker(0), clk
		from.w.Reserve(1, 0)
		var h transport.Hello
		from.w.Assign(0, to.adr, &h)
		for _, s := range setUp {
			if sim.StepsTCP.Has(s) {
				for _, e := range from.do(s, 1) {
					if e.End > -int64(50*time.Minute) || e.End-e.Begin > int64(5*time.Millisecond) {
						t.Errorf("%v from %d to %d by a clock an hour behind", e.Step, e.Begin, e.End)
					}
				}
			}
		}
	})
}

func TestNoRoomIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sim.NewFabric(sim.FabricConfig{Latency: time.Millisecond, Jitter: time.Millisecond})
		from, to, stop := pair(t, f, sim.StepsTCP, 6, 0)
		defer stop()
		more := open(t, f, "more")
		defer more.ep.Close()
		more.w.Reserve(3, 0)
		var h transport.Hello
		for c := range transport.Conn(3) {
			more.w.Assign(c, to.adr, &h)
		}
		from.do(transport.StepConnect, 6)
		rejected := 0
		for _, s := range setUp {
			if sim.StepsTCP.Has(s) {
				for _, e := range more.do(s, 3) {
					if e.Cause == transport.CauseRejected && e.Reason == sim.ReasonNoRoom {
						rejected++
					}
				}
			}
		}
		if got := to.ep.Counters().Foreign; rejected != 3 || got != 3 {
			t.Errorf("%d rejected for want of room and %d counted, want 3", rejected, got)
		}
	})
}

func TestKilledWorkerSaysSo(t *testing.T) {
	f := sim.NewFabric(sim.FabricConfig{})
	r := open(t, f, "victim")
	f.Kill("victim")
	var op *transport.OpError
	if _, err := r.w.Wait(1<<62, r.ev); !errors.As(err, &op) || op.Cause != transport.CauseAborted || !strings.Contains(err.Error(), "victim") {
		t.Errorf("Wait of a killed endpoint: %v, want a typed error that names it", err)
	}
	if err := r.ep.Close(); err != nil {
		t.Error(err)
	}
}

func TestBadConfig(t *testing.T) {
	p := sim.New(sim.NewFabric(sim.FabricConfig{}))
	good := transport.Config{Clock: sim.NewClock(0), Name: "rank 0", Workers: 1}
	for want, bad := range map[string]func(*transport.Config){
		"Config.Clock":     func(c *transport.Config) { c.Clock = nil },
		"at least 1":       func(c *transport.Config) { c.Workers = 0 },
		"no devices":       func(c *transport.Config) { c.Device = "mlx5_0" },
		"slash":            func(c *transport.Config) { c.Advertise = "a/b" },
		"at most 200":      func(c *transport.Config) { c.Advertise = strings.Repeat("x", 201) },
		"unknown option b": func(c *transport.Config) { c.Options = map[string]string{"b": "1"} },
	} {
		c := good
		bad(&c)
		var op *transport.OpError
		if _, err := p.Open(c); !errors.As(err, &op) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "rank 0") {
			t.Errorf("got %v, want a typed error with %q and the name", err, want)
		}
	}
	if err := p.Probe(good); err != nil {
		t.Error(err)
	}
}
