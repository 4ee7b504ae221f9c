package transporttest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// recorder takes the kit's complaints instead of the test that runs it.
type recorder struct {
	testing.TB
	faults []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// broken is sim with a defect in what the workers do.
type broken struct {
	transport.Endpoint
	d       *defect
	workers []*brokenWorker
}

type brokenWorker struct {
	transport.Worker
	d     *defect
	extra []transport.Event
}

// defect says how a provider breaks the contract.
type defect struct {
	name  string
	test  string // subtest that has to notice
	event func(e *transport.Event) (copies int)
	wait  bool // Wait returns before until
	wake  bool // Wake does nothing
	leak  bool // counters never fall
	sloth bool // absent steps are taken for granted
}

func (b *broken) Worker(i int) transport.Worker { return b.workers[i] }

func (b *broken) Counters() transport.Counters {
	c := b.Endpoint.Counters()
	if b.d.leak {
		c.Mappings = 1
	}
	return c
}

func (w *brokenWorker) Poll(ev []transport.Event) int {
	n := 0
	for n < len(ev) {
		if len(w.extra) > 0 {
			ev[n], w.extra = w.extra[0], w.extra[1:]
			n++
			continue
		}
		if w.Worker.Poll(ev[n:n+1]) == 0 {
			break
		}
		copies := 1
		if w.d.event != nil {
			copies = w.d.event(&ev[n])
		}
		for range copies - 1 {
			w.extra = append(w.extra, ev[n])
		}
		n += min(copies, 1)
	}
	return n
}

func (w *brokenWorker) Wait(until int64, ev []transport.Event) (int, error) {
	if w.d.wait {
		return 0, nil
	}
	return w.Worker.Wait(until, ev)
}

func (w *brokenWorker) Wake() {
	if !w.d.wake {
		w.Worker.Wake()
	}
}

func (w *brokenWorker) Start(s transport.Step, first transport.Conn, n int, due []int64) (int, error) {
	if w.d.sloth && !sim.StepsTCP.Has(s) {
		return n, nil
	}
	return w.Worker.Start(s, first, n, due)
}

func on(s transport.Step, kind transport.EventKind, f func(e *transport.Event) int) func(*transport.Event) int {
	return func(e *transport.Event) int {
		if e.Step == s && e.Kind == kind {
			return f(e)
		}
		return 1
	}
}

func lose(*transport.Event) int  { return 0 }
func twice(*transport.Event) int { return 2 }

var defects = []defect{
	{name: "an event is lost", test: "Life2", event: on(transport.StepProbe, transport.StepDone, lose)},
	{name: "an event comes twice", test: "Life2", event: on(transport.StepBindAddr, transport.StepDone, twice)},
	{name: "the target's step is lost", test: "Life2", event: on(transport.StepProbeAnswer, transport.StepDone, lose)},
	{name: "a step ends before it begins", test: "Life1", event: on(transport.StepConnect, transport.StepDone, func(e *transport.Event) int {
		e.End = e.Begin - 1
		return 1
	})},
	{name: "a step begins before the one before it ended", test: "Life1", event: on(transport.StepProbe, transport.StepDone, func(e *transport.Event) int {
		e.Begin = 1
		return 1
	})},
	{name: "full connect counts from elsewhere", test: "Life1", event: on(transport.StepFullConnect, transport.StepDone, func(e *transport.Event) int {
		e.Begin++
		return 1
	})},
	{name: "an event of a step that the provider has not", test: "Life1", event: on(transport.StepProbe, transport.StepDone, func(e *transport.Event) int {
		e.Step = transport.StepRTR
		return 1
	})},
	{name: "the last byte of the hello is lost", test: "Hello", event: on(transport.StepAccept, transport.EventRequest, func(e *transport.Event) int {
		e.Hello[transport.HelloSize-1] ^= 1
		return 1
	})},
	{name: "the reason is lost", test: "Reject", event: on(transport.StepEstablish, transport.StepFailed, func(e *transport.Event) int {
		e.Reason = 0
		return 1
	})},
	{name: "a failure has no cause", test: "NobodyThere", event: on(transport.StepConnect, transport.StepFailed, func(e *transport.Event) int {
		e.Cause = transport.CauseNone
		return 1
	})},
	{name: "the peer's close is lost", test: "KilledWhileIdle", event: on(transport.StepCount, transport.EventPeerClosed, lose)},
	{name: "the peer's close comes twice", test: "TargetDestroys", event: on(transport.StepCount, transport.EventPeerClosed, twice)},
	{name: "Wait returns early", test: "WaitUntil", wait: true},
	{name: "Wake is deaf", test: "WakeEndsRunningWait", wake: true},
	{name: "a counter stays", test: "Counters", leak: true},
	{name: "absent steps are accepted", test: "AbsentSteps", sloth: true},
}

// TestKitNotices plants one defect at a time and wants the subtest made for it
// to complain. The same subtest must be content without the defect.
func TestKitNotices(t *testing.T) {
	tests := map[string]subtest{}
	for _, list := range [][]subtest{lifeTests, refusalTests, failureTests, workerTests, resourceTests} {
		for _, st := range list {
			tests[st.name] = st
		}
	}
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			st, ok := tests[d.test]
			if !ok {
				t.Fatalf("there is no subtest %s", d.test)
			}
			if faults := try(t, st, &defect{}); len(faults) > 0 {
				t.Errorf("%s complains without a defect: %s", d.test, faults[0])
			}
			faults := try(t, st, &d)
			if len(faults) == 0 {
				t.Fatalf("%s did not notice", d.test)
			}
			if !strings.Contains(faults[0], "the rule: "+st.rule) {
				t.Errorf("the complaint does not name the rule: %s", faults[0])
			}
		})
	}
}

// try runs one subtest over a sim with a defect and returns the complaints.
func try(t *testing.T, st subtest, d *defect) []string {
	r := &recorder{TB: t}
	var f *sim.Fabric
	h := &Harness{
		Steps: sim.StepsTCP,
		Many:  20,
		Begin: func(testing.TB) { f = sim.NewFabric(sim.FabricConfig{}) },
		Open: func(_ testing.TB, name string, workers int) (transport.Endpoint, transport.Clock) {
			clk := sim.NewClock(0)
			ep, err := sim.New(f).Open(transport.Config{Clock: clk, Name: name, Workers: workers})
			if err != nil {
				t.Error(err)
				runtime.Goexit()
			}
			b := &broken{Endpoint: ep, d: d}
			for i := range workers {
				b.workers = append(b.workers, &brokenWorker{Worker: ep.Worker(i), d: d})
			}
			return b, clk
		},
	}
	synctest.Test(t, func(*testing.T) { // waiting in vain takes no time here
		done := make(chan struct{})
		go func() {
			defer close(done)
			runOne(r, h, st)
		}()
		<-done
	})
	return r.faults
}
