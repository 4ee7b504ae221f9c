package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/rendezvous/memnet"
	"rankstorm/test/printed"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// bubble is a whole job on a fake clock: processes over the in-memory network
// and the simulated transport, through the real knock, gossip, tree and runner.
type bubble struct {
	t      *testing.T
	net    *memnet.Net
	hosts  []*memnet.Host
	fabric *sim.Fabric
	procs  []*bubbleProc
	dir    string
	wg     sync.WaitGroup
}

type bubbleProc struct {
	i      int
	net    *memnet.Proc
	clock  *haltClock
	host   int
	joined atomic.Bool
	over   atomic.Bool
	cancel context.CancelCauseFunc
	err    error
	ended  time.Duration // since the start of the job
	stderr printed.Text
	stdout printed.Text
	out    string
}

// haltClock stands still while its process is stopped, and with it all that asks for the time.
type haltClock struct {
	transport.Clock
	mu     sync.Mutex
	halt   chan struct{} // not nil: stopped; closed when it goes on
	since  int64
	halted int64 // ns, in all stops that are over
}

func (c *haltClock) wait() {
	for {
		c.mu.Lock()
		halt := c.halt
		c.mu.Unlock()
		if halt == nil {
			return
		}
		<-halt
	}
}

func (c *haltClock) Now() int64 {
	c.wait()
	return c.Clock.Now()
}

func (c *haltClock) SleepUntil(t int64, spin time.Duration) {
	c.wait()
	c.Clock.SleepUntil(t, spin)
	c.wait()
}

func (c *haltClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halt == nil {
		c.halt, c.since = make(chan struct{}), c.Clock.Now()
	}
}

func (c *haltClock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halt != nil {
		close(c.halt)
		c.halt = nil
		c.halted += c.Clock.Now() - c.since
	}
}

// threads is what a scheduler counts of a process with this clock. waits: it stands still because it gets no CPU.
func (c *haltClock) threads(waits bool) SchedStat {
	return func(thread func(id int, runNS, waitNS int64)) bool {
		c.mu.Lock()
		halted := c.halted
		c.mu.Unlock()
		ran := c.Clock.Now() - halted
		thread(1, ran/100, 0)
		if waits {
			thread(2, ran/100, halted)
		}
		return true
	}
}

// runningClock keeps the fabric's time going for a stopped process: its kernel works on.
type runningClock struct{ transport.Provider }

func (p runningClock) Open(c transport.Config) (transport.Endpoint, error) {
	if h, ok := c.Clock.(*haltClock); ok {
		c.Clock = h.Clock
	}
	return p.Provider.Open(c)
}

// start begins a job of spec.Procs processes on so many hosts; change sees each one's configuration before.
func start(t *testing.T, hosts int, spec phases.Spec, fc sim.FabricConfig, change ...func(i int, cfg *Config)) *bubble {
	return startOver(t, hosts, spec, fc, memnet.Config{Seed: 1, Latency: 50 * time.Microsecond}, change...)
}

// startOver is start with a control network of its own kind.
func startOver(t *testing.T, hosts int, spec phases.Spec, fc sim.FabricConfig, mc memnet.Config, change ...func(i int, cfg *Config)) *bubble {
	if fc.Latency == 0 {
		fc.Latency = 20 * time.Microsecond
	}
	b := &bubble{t: t, net: memnet.New(mc), fabric: sim.NewFabric(fc), dir: t.TempDir()}
	for i := range hosts {
		b.hosts = append(b.hosts, b.net.AddHost(fmt.Sprintf("n%d", i), netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)})))
	}
	begun := time.Now()
	for i := range spec.Procs {
		h := i * hosts / spec.Procs
		ctx, cancel := context.WithCancelCause(context.Background())
		p := &bubbleProc{i: i, net: b.hosts[h].Proc(), host: h, clock: &haltClock{Clock: sim.NewClock(0)}, cancel: cancel, out: filepath.Join(b.dir, fmt.Sprintf("%d.json", i))}
		b.procs = append(b.procs, p)
		cfg := Config{
			Spec: spec, Provider: runningClock{sim.New(b.fabric)}, Clock: p.clock, Joined: func() { p.joined.Store(true) },
			Rendezvous: rendezvous.Config{
				Network: p.net, Controller: "n0", Port: 7471, JobKey: "test",
				Record: rank.Record{Host: fmt.Sprintf("n%d", h), HostID: [16]byte{byte(h + 1)}, PID: 1000 + i, LauncherProc: i, LocalIndex: -1},
			},
			Bind: []string{fmt.Sprintf("p%d", i)},
			Out:  p.out, Stdout: &p.stdout, Stderr: &p.stderr, Columns: 160, CPUs: 1, Shared: true,
		}
		for _, f := range change {
			f(i, &cfg)
		}
		b.wg.Go(func() {
			p.err = Run(ctx, cfg)
			p.ended = time.Since(begun)
			p.over.Store(true)
			cancel(nil)
		})
	}
	return b
}

// kill ends a process as SIGKILL would: its sockets close, its connections are reset, and it says nothing more.
func (b *bubble) kill(i int) {
	b.fabric.Kill(fmt.Sprintf("p%d", i))
	b.procs[i].net.Kill()
	b.procs[i].cancel(rank.Errorf(rank.KindInternal, "killed by the test"))
}

// stop is SIGSTOP: everything of the process stands still, the kernels go on.
func (b *bubble) stop(i int) {
	p := b.procs[i]
	p.clock.stop()
	p.net.Stop()
	b.fabric.Pause(fmt.Sprintf("p%d", i))
}

// goOn is SIGCONT.
func (b *bubble) goOn(i int) {
	p := b.procs[i]
	b.fabric.Resume(fmt.Sprintf("p%d", i))
	p.net.Continue()
	p.clock.goOn()
}

// cut separates one host from all others, on both networks; seen: its kernels notice.
func (b *bubble) cut(host int, seen bool) {
	var here, there []string
	for _, p := range b.procs {
		if p.host == host {
			here = append(here, fmt.Sprintf("p%d", p.i))
		} else {
			there = append(there, fmt.Sprintf("p%d", p.i))
		}
	}
	b.fabric.Partition(here, there)
	for h, other := range b.hosts {
		switch {
		case h == host:
		case seen:
			b.net.Sever(b.hosts[host], other)
		default:
			b.net.Cut(b.hosts[host], other)
		}
	}
}

// wait ends with the last process; the gossip library lets a probe under way run into its timeout.
func (b *bubble) wait() {
	b.wg.Wait()
	time.Sleep(time.Minute)
}

func (b *bubble) document(i int) *collect.Document {
	b.t.Helper()
	f, err := os.Open(b.procs[i].out)
	if err != nil {
		b.t.Fatalf("%v\nstderr: %s", err, b.procs[i].stderr.String())
	}
	defer f.Close()
	d, err := collect.Decode(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// clean fails the test unless every process ended without an error.
func (b *bubble) clean() *collect.Document {
	b.t.Helper()
	b.wait()
	for _, p := range b.procs {
		if p.err != nil {
			b.t.Errorf("process %d: %v\nstderr: %s", p.i, p.err, p.stderr.String())
		}
		if p.i > 0 && p.stdout.String() != "" {
			b.t.Errorf("process %d wrote to stdout: %s", p.i, p.stdout.String())
		}
	}
	if b.t.Failed() {
		b.t.FailNow()
	}
	return b.document(0)
}

func spec(procs int, change func(*phases.Spec)) phases.Spec {
	s := phases.DefaultSpec()
	s.Procs = procs
	s.Topology.Name = "all_to_all"
	s.Transport = "sim"
	if change != nil {
		change(&s)
	}
	return s
}

// whole holds the connections of a clean document against the plan.
func whole(t *testing.T, d *collect.Document, want int64) {
	t.Helper()
	c := d.Connections
	if c.Planned != want || c.Started != want || c.Established != want || c.Accepted != want || c.Dead != 0 || c.Failed != 0 || c.Broken != 0 {
		t.Errorf("connections %+v, want %d planned, started, established and accepted", c, want)
	}
}

func TestJobs(t *testing.T) {
	tests := []struct {
		name  string
		hosts int
		spec  phases.Spec
		fc    sim.FabricConfig
		want  int64
	}{
		{"one rank", 1, spec(1, nil), sim.FabricConfig{}, 0},
		{"four on two hosts", 2, spec(4, func(s *phases.Spec) { s.Connections = 5 }), sim.FabricConfig{}, 60},
		{"virtual ranks and threads", 3, spec(3, func(s *phases.Spec) { s.RanksPerProc, s.Threads, s.Connections = 4, 3, 2 }), sim.FabricConfig{}, 12 * 11 * 2},
		{"rounds", 2, spec(4, func(s *phases.Spec) { s.Rounds = 7 }), sim.FabricConfig{}, 12 * 7},
		{"stages", 2, spec(5, func(s *phases.Spec) { s.Topology.Name, s.Topology.Offsets, s.Threads = "shift", "all", 2 }), sim.FabricConfig{}, 20},
		{"rdma steps", 2, spec(4, func(s *phases.Spec) { s.Connections = 3 }), sim.FabricConfig{Steps: sim.StepsRDMA}, 36},
		{"parallel", 2, spec(4, func(s *phases.Spec) {
			s.Connections, s.Threads, s.Shape = 9, 3, phases.Shape{Kind: phases.Parallel, Slots: 2}
		}), sim.FabricConfig{}, 12 * 9},
		{"rate", 2, spec(4, func(s *phases.Spec) {
			s.Connections, s.Threads, s.Shape = 9, 2, phases.Shape{Kind: phases.Rate, PerS: 100}
		}), sim.FabricConfig{}, 12 * 9},
		{"a tree of depth two", 4, spec(40, func(s *phases.Spec) { s.Topology.Name, s.TreeArity = "ring", 4 }), sim.FabricConfig{}, 40},
		{"lossy", 2, spec(4, func(s *phases.Spec) { s.Connections = 4 }), sim.FabricConfig{Loss: 0.05, Seed: 7}, 48},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := start(t, test.hosts, test.spec, test.fc).clean()
				whole(t, d, test.want)
			})
		})
	}
}

// The k-th connection of the whole job is due at T + k/R: 108 connections at 100/s take 1.07 s of the job's own clock.
func TestRateHoldsOverTheWholeJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, 2, spec(4, func(s *phases.Spec) {
			s.Connections, s.Shape = 9, phases.Shape{Kind: phases.Rate, PerS: 100}
		}), sim.FabricConfig{}).clean()
		st := step(t, d, "connect", "full connect")
		if want := 1070 * time.Millisecond; time.Duration(*st.WallNS) < want || time.Duration(*st.WallNS) > want+5*time.Millisecond {
			t.Errorf("wall of full connect %v, want %v", time.Duration(*st.WallNS), want)
		}
	})
}

func TestMimicIsSleptExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, 1, spec(2, func(s *phases.Spec) { s.Connections, s.Mimic = 3, 20*time.Millisecond }), sim.FabricConfig{}).clean()
		for phase, names := range map[string][]string{
			"qp": {collect.MimicName(transport.StepCreateQP.String()), collect.MimicName(transport.StepInitQP.String())}, "connect": {collect.MimicName(transport.StepRTR.String()), collect.MimicName(transport.StepRTS.String())},
		} {
			for _, name := range names {
				st := step(t, d, phase, name)
				if st.Count != 6 || *st.SumNS != int64(6*20*time.Millisecond) {
					t.Errorf("%s: count %d sum %v, want 6 times 20 ms", name, st.Count, time.Duration(*st.SumNS))
				}
			}
		}
	})
}

func step(t *testing.T, d *collect.Document, phase, name string) collect.StepDoc {
	t.Helper()
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			if p.Phase == phase && s.Step == name {
				return s
			}
		}
	}
	t.Fatalf("no step %q in phase %q", name, phase)
	return collect.StepDoc{}
}

func TestDelayIsTheStraggler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, 2, spec(8, func(s *phases.Spec) {
			s.Delays = []phases.Delay{{Rank: 3, Phase: phases.Connect, For: 300 * time.Millisecond}}
		}), sim.FabricConfig{}).clean()
		for _, c := range d.Causes {
			if c.Phase == "connect" && c.Rank != nil && *c.Rank == 3 && *c.ValueNS >= int64(300*time.Millisecond) && *c.ValueNS < int64(315*time.Millisecond) {
				return
			}
		}
		t.Errorf("rank 3 is not named with 300 ms: %+v", d.Causes)
	})
}

// A process that dies while the storm runs: all others end with code 1 and the same name, soon.
func TestLossInConnect(t *testing.T) {
	for _, victim := range []int{0, 1, 7, 39} {
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				procs := max(8, victim+1)
				b := start(t, 4, spec(procs, func(s *phases.Spec) {
					s.Connections, s.TreeArity = 10, 4
					s.Shape = phases.Shape{Kind: phases.Rate, PerS: float64(procs*(procs-1)*10) / 4} // four seconds
				}), sim.FabricConfig{})
				time.Sleep(1500 * time.Millisecond)
				b.kill(victim)
				b.wait()
				for _, p := range b.procs {
					if p.i == victim {
						continue
					}
					if code := ExitCode(p.err); code != 1 {
						t.Errorf("process %d: exit %d, want 1: %v", p.i, code, p.err)
					}
					var e *rank.Error
					if !errors.As(p.err, &e) || e.Kind != rank.KindLost {
						t.Errorf("process %d: %v, want a lost process", p.i, p.err)
					}
					if p.ended > 8*time.Second {
						t.Errorf("process %d ended %v after the start", p.i, p.ended)
					}
				}
				if victim == 0 {
					return
				}
				if text := b.procs[0].stderr.String() + fmt.Sprint(b.procs[0].err); !strings.Contains(text, fmt.Sprintf("rank %d", victim)) {
					t.Errorf("the root does not name rank %d: %s", victim, text)
				}
				if d := b.document(0); d.Exit.Code != 1 || !d.Exit.Partial {
					t.Errorf("document: exit %+v, want a partial result and code 1", d.Exit)
				}
			})
		})
	}
}

// Two ranks that cannot reach each other: their connections fail, the job goes on and ends with code 1.
func TestPartitionFailsOnlyItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 2, spec(4, func(s *phases.Spec) { s.Connections, s.PhaseTimeout = 2, 5*time.Minute }), sim.FabricConfig{})
		b.fabric.Partition([]string{"p0"}, []string{"p3"})
		b.wait()
		d := b.document(0)
		if d.Exit.Code != 1 || d.Connections.Planned != 24 || d.Connections.Established != 20 || d.Connections.Failed != 4 {
			t.Errorf("exit %d, connections %+v; want 20 of 24 established, 4 failed, code 1", d.Exit.Code, d.Connections)
		}
		for _, p := range b.procs {
			if code := ExitCode(p.err); code != 1 {
				t.Errorf("process %d: exit %d, want 1", p.i, code)
			}
		}
	})
}

// A signal at one process ends the job everywhere with its code; what was measured is kept.
func TestCancelAtAnyProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 2, spec(6, func(s *phases.Spec) {
			s.Connections, s.Shape = 10, phases.Shape{Kind: phases.Rate, PerS: 30}
		}), sim.FabricConfig{})
		time.Sleep(3 * time.Second)
		b.procs[4].cancel(&rank.Error{Kind: rank.KindCancelled, Signal: 2, Proc: rank.NoProc, Peer: rank.None, Text: "interrupted"})
		b.wait()
		for _, p := range b.procs {
			if code := ExitCode(p.err); code != 130 {
				t.Errorf("process %d: exit %d, want 130: %v", p.i, code, p.err)
			}
			if p.ended > 6*time.Second {
				t.Errorf("process %d ended %v after the start", p.i, p.ended)
			}
		}
		d := b.document(0)
		if d.Connections.Established == 0 || !d.Exit.Partial {
			t.Errorf("nothing is kept: %+v %+v", d.Connections, d.Exit)
		}
		if at := d.Progress; at == nil || at.Phase != "connect" || at.Done == 0 || at.Done >= at.Total {
			t.Errorf("the document says it stopped at %+v", at)
		}
	})
}

// Connections whose turn did not come before the deadline have failed in connect; the probe does not count on them.
func TestPacedStormThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, spec(3, func(s *phases.Spec) {
			s.PhaseTimeout, s.Shape = 2*time.Second, phases.Shape{Kind: phases.Rate, PerS: 1}
		}), sim.FabricConfig{})
		b.wait()
		d := b.document(0)
		c := d.Connections
		if c.Planned != 6 || c.Started != 2 || c.Established != 2 || c.Accepted != 2 || c.Dead != 0 || c.Failed != 4 || d.Exit.Code != 1 {
			t.Errorf("exit %d, connections %+v; want 2 of 6 started and established, 4 failed, none dead, code 1", d.Exit.Code, c)
		}
		if st := step(t, d, "probe", "first round trip"); st.Count != 2 || len(st.Failures) != 0 {
			t.Errorf("probe: count %d, failures %v; want 2 and none", st.Count, st.Failures)
		}
	})
}

// A long sleep of --mimic does not outlive the job.
func TestMimicEndsWithTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 1, spec(2, func(s *phases.Spec) { s.Mimic, s.PhaseTimeout = time.Minute, 2*time.Second }), sim.FabricConfig{})
		b.wait()
		for _, p := range b.procs {
			if code := ExitCode(p.err); code != 1 || p.ended > 6*time.Second {
				t.Errorf("process %d: exit %d after %v, want 1 within 6 s", p.i, code, p.ended)
			}
		}
	})
}

// What only the table shows to be wrong is told once, by the root.
func TestTopologyThatDoesNotFitTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, 2, spec(4, func(s *phases.Spec) { s.Topology.Targets = "nowhere*" }), sim.FabricConfig{})
		b.wait()
		for _, p := range b.procs {
			if code := ExitCode(p.err); code != 2 || Silent(p.err) != (p.i > 0) {
				t.Errorf("process %d: exit %d, silent %v: %v; want 2, and only the root tells", p.i, code, Silent(p.err), p.err)
			}
		}
	})
}
