// Package transporttest is the conformance kit of the transport contract.
// Every provider runs it:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, transporttest.Harness{Open: …, Steps: provider.Steps()})
//	}
//
// Most of it drives all ranks from one goroutine with Poll, so that a failure
// is reproducible; Wait, Wake and the storm use a goroutine per worker. A
// failure names the rule of the contract that was broken.
package transporttest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/transport"
)

// Harness is what the kit has to know of a provider.
type Harness struct {
	// Begin, if given, runs before each subtest, within its bubble.
	Begin func(t testing.TB)
	// Open opens an endpoint called name with that many workers, which is able to listen, and tells its clock.
	// The kit closes it.
	Open func(t testing.TB, name string, workers int) (transport.Endpoint, transport.Clock)
	// Steps are the provider's.
	Steps transport.StepSet
	// Bubble runs each subtest on the fake clock of testing/synctest. Only for providers that sleep on channels.
	Bubble bool
	// Kill ends an endpoint as the death of its process would; nil: Endpoint.Close.
	Kill func(ep transport.Endpoint)
	// Unreachable is a well-formed address without a host behind it, which fails within a second; nil: that subtest is skipped.
	Unreachable transport.Address
	// Malformed is an address that Assign refuses; nil: four bytes that are no address anywhere.
	Malformed transport.Address
	// OpenFDs, if given, counts the process's descriptors; Counters.FDs is compared with it.
	OpenFDs func() int
	// Allocates is the reason why this provider is excused from allocating nothing per connection; "": it is not.
	Allocates string
	// Many is how many connections the large subtests set up; 0: 500.
	Many int
}

// subtest is one rule of the contract and how it is tried.
type subtest struct {
	name string
	rule string
	body func(*kit)
}

// watchdog is how long a subtest may take in real time before it counts as hung.
const watchdog = 90 * time.Second

// patience is how long, on the provider's clock, the kit waits for something that must happen.
const patience = 30 * int64(time.Second)

// Run tries every rule of the contract.
func Run(t *testing.T, h Harness) {
	if h.Many == 0 {
		h.Many = 500
	}
	if h.Malformed == nil {
		h.Malformed = transport.Address("\xff\x00\xfe!")
	}
	for _, list := range [][]subtest{lifeTests, refusalTests, failureTests, workerTests, resourceTests, mimicTests} {
		for _, st := range list {
			t.Run(st.name, func(t *testing.T) {
				if h.Bubble {
					synctest.Test(t, func(t *testing.T) { runOne(t, &h, st) })
					return
				}
				dog := time.AfterFunc(watchdog, func() {
					buf := make([]byte, 1<<20)
					fmt.Fprintf(os.Stderr, "%s\n", buf[:runtime.Stack(buf, true)])
					panic(fmt.Sprintf("transporttest: %s hangs; nothing but Wait may block. The rule: %s", st.name, st.rule))
				})
				defer dog.Stop()
				before := runtime.NumGoroutine()
				runOne(t, &h, st)
				awaitGoroutines(t, before)
			})
		}
	}
}

func runOne(t testing.TB, h *Harness, st subtest) {
	if h.Begin != nil {
		h.Begin(t)
	}
	k := &kit{t: t, h: h, rule: st.rule, ev: make([]transport.Event, 64)}
	defer k.close()
	st.body(k)
}

// awaitGoroutines gives goroutines that are about to end a moment. A bubble
// needs no such check: it fails by itself on a goroutine that stays.
func awaitGoroutines(t testing.TB, before int) {
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines before, %d after Close; Close returns after the last one of its own\n%s",
		before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

// kit drives the ranks of one subtest.
type kit struct {
	t     testing.TB
	h     *Harness
	rule  string
	ranks []*rank
	ev    []transport.Event
}

func (k *kit) broken(format string, args ...any) {
	k.t.Helper()
	k.t.Errorf("%s\n\tthe rule: %s", fmt.Sprintf(format, args...), k.rule)
}

func (k *kit) fatal(format string, args ...any) {
	k.t.Helper()
	k.t.Fatalf("%s\n\tthe rule: %s", fmt.Sprintf(format, args...), k.rule)
}

func (k *kit) ok(err error) {
	k.t.Helper()
	if err != nil {
		k.fatal("unexpected error: %v", err)
	}
}

// typed requires a refusal that says who and what.
func (k *kit) typed(what string, err error) {
	k.t.Helper()
	var op *transport.OpError
	switch {
	case err == nil:
		k.broken("%s was not refused", what)
	case !errors.As(err, &op):
		k.broken("%s was refused with a %T (%v), want a *transport.OpError", what, err, err)
	case op.Op == "" || op.Provider == "":
		k.broken("%s: the error names no call or no provider: %#v", what, op)
	case strings.Contains(err.Error(), "\n"):
		k.broken("%s: the error has several lines: %q", what, err)
	}
}

// close ends all endpoints; what they held must be gone.
func (k *kit) close() {
	for _, r := range k.ranks {
		for range 2 {
			if err := r.ep.Close(); err != nil {
				k.broken("%s: Close: %v", r.name, err)
			}
		}
		if c := held(r.ep); c != (transport.Counters{}) {
			k.broken("%s holds %+v after Close", r.name, c)
		}
	}
}

// held are the counters of what can be given back.
func held(ep transport.Endpoint) transport.Counters {
	c := ep.Counters()
	c.ListenDrops, c.SYNRetries, c.Foreign = 0, 0, 0
	return c
}

// poll lets every rank act once and says whether anything happened.
func (k *kit) poll() bool {
	active := false
	for _, r := range k.ranks {
		if r.dead {
			continue
		}
		for _, s := range r.sides {
			n := s.w.Poll(k.ev)
			for i := range n {
				s.take(&k.ev[i])
			}
			active = active || n > 0
		}
	}
	return active
}

// until polls until cond holds.
func (k *kit) until(what string, cond func() bool) {
	k.t.Helper()
	clk := k.ranks[0].clk
	deadline := clk.Now() + patience
	pause := 20 * time.Microsecond
	for !cond() {
		if k.poll() {
			pause = 20 * time.Microsecond
			continue
		}
		now := clk.Now()
		if now > deadline {
			k.fatal("waited %v in vain for: %s", time.Duration(patience), what)
		}
		clk.SleepUntil(now+int64(pause), 0)
		pause = min(2*pause, time.Millisecond)
	}
}

// quiet polls for a while, to see that nothing follows.
func (k *kit) quiet(d time.Duration) {
	clk := k.ranks[0].clk
	for end := clk.Now() + int64(d); clk.Now() < end; {
		if !k.poll() {
			clk.SleepUntil(clk.Now()+int64(500*time.Microsecond), 0)
		}
	}
}

// rank is one endpoint and its workers.
type rank struct {
	k     *kit
	name  string
	ep    transport.Endpoint
	clk   transport.Clock
	addr  transport.Address
	sides []*side
	dead  bool
	hold  bool // leave requests unanswered
}

// open makes a rank that listens.
func (k *kit) open(name string, workers int) *rank {
	k.t.Helper()
	ep, clk := k.h.Open(k.t, name, workers)
	r := &rank{k: k, name: name, ep: ep, clk: clk}
	k.ranks = append(k.ranks, r)
	if ep.Workers() != workers {
		k.fatal("%s has %d workers, %d were asked for", name, ep.Workers(), workers)
	}
	for i := range workers {
		r.sides = append(r.sides, &side{r: r, index: i, w: ep.Worker(i)})
	}
	addr, begin, end, err := ep.Listen(0)
	k.ok(err)
	if len(addr) == 0 || len(addr) > 256 {
		k.broken("Listen gave an address of %d bytes, want 1 to 256", len(addr))
	}
	if begin > end {
		k.broken("Listen began at %d and ended before, at %d", begin, end)
	}
	r.addr = addr
	return r
}

// kill ends a rank as its process's death would.
func (r *rank) kill() {
	r.dead = true
	if r.k.h.Kill != nil {
		r.k.h.Kill(r.ep)
		return
	}
	r.k.ok(r.ep.Close())
}

// requests counts the EventRequests of all workers.
func (r *rank) requests() int {
	n := 0
	for _, s := range r.sides {
		n += len(s.requests)
	}
	return n
}

// count is how many connections of all workers have done s.
func (r *rank) count(st transport.Step) int {
	n := 0
	for _, s := range r.sides {
		n += s.done[st]
	}
	return n
}

// sleepingGoroutine runs f beside the test and waits for it with join.
func sleepingGoroutine(f func()) (join func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	return func() { <-done }
}
