package sim_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// rank drives one endpoint with one worker through a life by hand.
type rank struct {
	t   testing.TB
	ep  transport.Endpoint
	w   transport.Worker
	clk transport.Clock
	adr transport.Address
	ev  []transport.Event
}

func open(t testing.TB, f *sim.Fabric, name string) *rank {
	t.Helper()
	return openBacklog(t, f, name, 0)
}

func openBacklog(t testing.TB, f *sim.Fabric, name string, backlog int) *rank {
	t.Helper()
	clk := sim.NewClock(0)
	ep, err := sim.New(f).Open(transport.Config{Clock: clk, Name: name, Advertise: "host-" + name, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &rank{t: t, ep: ep, w: ep.Worker(0), clk: clk, ev: make([]transport.Event, 64)}
	if r.adr, _, _, err = ep.Listen(backlog); err != nil {
		t.Fatal(err)
	}
	return r
}

// do starts s on the first n connections and waits for their events.
func (r *rank) do(s transport.Step, n int) []transport.Event {
	r.t.Helper()
	if k, err := r.w.Start(s, 0, n, nil); k != n || err != nil {
		r.t.Fatalf("start %v: %d of %d: %v", s, k, n, err)
	}
	last := s
	if s == transport.StepConnect {
		last = transport.StepFullConnect
	}
	var all []transport.Event
	for done := 0; done < n; {
		k, err := r.w.Wait(r.clk.Now()+int64(time.Hour), r.ev)
		if k == 0 || err != nil {
			r.t.Fatalf("%v: %d of %d done, then silence: %v", s, done, n, err)
		}
		for _, e := range r.ev[:k] {
			if e.Kind == transport.StepFailed || e.Kind == transport.StepDone && e.Step == last {
				done++
			}
			all = append(all, e)
		}
	}
	return all
}

// accept answers every request until Wake.
func (r *rank) accept() {
	ev := make([]transport.Event, 64)
	for {
		n, err := r.w.Wait(1<<62, ev)
		if n == 0 || err != nil {
			return
		}
		for _, e := range ev[:n] {
			if e.Kind == transport.EventRequest {
				if err := r.w.Answer(e.Conn, true, 0); err != nil {
					r.t.Error(err)
				}
			}
		}
	}
}

var setUp = []transport.Step{
	transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute,
	transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP, transport.StepConnect,
}

func TestBurstInBubble(t *testing.T) {
	for name, steps := range map[string]transport.StepSet{"tcp": sim.StepsTCP, "rdma": sim.StepsRDMA} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := sim.NewFabric(sim.FabricConfig{Seed: 1, Steps: steps, Latency: 50 * time.Microsecond, Jitter: 20 * time.Microsecond})
				const ranks, each = 200, 20
				to := open(t, f, "target")
				if err := to.w.Reserve(0, ranks*each); err != nil {
					t.Fatal(err)
				}
				go to.accept()
				done := make(chan int)
				for i := range ranks {
					go func() {
						r := open(t, f, fmt.Sprint("rank ", i))
						defer r.ep.Close()
						r.w.Reserve(each, 0)
						var h transport.Hello
						for c := range each {
							r.w.Assign(transport.Conn(c), to.adr, &h)
						}
						ok := 0
						for _, s := range setUp {
							if steps.Has(s) {
								for _, e := range r.do(s, each) {
									if e.Kind == transport.StepDone && e.Step == transport.StepFullConnect {
										ok++
									}
								}
							}
						}
						done <- ok
					}()
				}
				sum := 0
				for range ranks {
					sum += <-done
				}
				if sum != ranks*each {
					t.Errorf("%d connections established, want %d", sum, ranks*each)
				}
				to.w.Wake()
				to.ep.Close()
			})
		})
	}
}

func TestFullQueueAsksToPoll(t *testing.T) {
	f := sim.NewFabric(sim.FabricConfig{QueueDepth: 10})
	r := open(t, f, "rank")
	defer r.ep.Close()
	if err := r.w.Reserve(25, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{10, 10, 5} {
		first := transport.Conn(r.ep.Counters().Conns)
		n, err := r.w.Start(transport.StepCreateID, first, 25-int(first), nil)
		if n != want || (err == nil) != (want == 5) || err != nil && !errors.Is(err, transport.ErrAgain) {
			t.Errorf("from connection %d: %d begun, %v; want %d and ErrAgain until all are", first, n, err, want)
		}
		if got := r.w.Poll(r.ev); got != want {
			t.Errorf("%d events, want %d", got, want)
		}
	}
}
