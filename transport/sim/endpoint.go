package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rankstorm/transport"
)

var (
	errClosed       = errors.New("the endpoint is closed")
	errWorkerClosed = errors.New("the worker is closed")
	errKilled       = errors.New("the endpoint was killed")
)

// ReasonNoRoom is the reason of a reject when more requests come than Reserve
// was told of.
const ReasonNoRoom = 0xffff

// Endpoint is one rank's presence on a fabric.
type Endpoint struct {
	f       *Fabric
	cfg     transport.Config
	host    string
	ident   uint64
	workers []*Worker

	// Guarded by f.mu.
	site           *site // nil: not listening
	backlog        int
	waiting        int       // requests in the backlog: orphans and those at the workers
	orphans        ring[ref] // requests that no worker could take on arrival
	turn           int       // worker the next request goes to
	paused         bool
	gone           error // errClosed or errKilled
	conns          int64
	pairs          int64
	mimic          transport.Mimic
	listenDrops    int64
	requestRetries int64
	foreign        int64 // requests rejected for want of room
}

// Listen makes the endpoint reachable at an address of its own. backlog ≤ 0
// or too large means FabricConfig.MaxBacklog.
func (e *Endpoint) Listen(backlog int) (addr transport.Address, begin, end int64, err error) {
	f := e.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.gone != nil {
		return nil, 0, 0, e.error("listen", e.gone)
	}
	if e.site != nil {
		return nil, 0, 0, e.error("listen", errors.New("listens already, one listener is enough for an endpoint"))
	}
	begin = e.cfg.Clock.Now()
	f.ports[e.host]++
	s, _ := f.site(transport.Address("sim/" + e.host + "/" + strconv.Itoa(f.ports[e.host])))
	s.ep = e
	e.site = s
	e.backlog = min(backlog, f.cfg.MaxBacklog)
	if backlog <= 0 {
		e.backlog = f.cfg.MaxBacklog
	}
	return transport.Address(s.addr), begin, begin + int64(f.cfg.Costs[transport.StepListen]), nil
}

// parseAddress finds the host in "sim/host/port".
func parseAddress(a transport.Address) (host string, ok bool) {
	parts := strings.Split(string(a), "/")
	if len(a) > 256 || len(parts) != 3 || parts[0] != "sim" || parts[1] == "" {
		return "", false
	}
	if p, err := strconv.Atoi(parts[2]); err != nil || p < 1 {
		return "", false
	}
	return parts[1], true
}

// Name is Config.Name, by which the fabric's faults are given.
func (e *Endpoint) Name() string { return e.cfg.Name }

// Workers is how many workers there are.
func (e *Endpoint) Workers() int { return len(e.workers) }

// Worker returns the i-th worker.
func (e *Endpoint) Worker(i int) transport.Worker { return e.workers[i] }

// Counters may be called from any goroutine. IDs and QPs are counted with
// StepsRDMA only.
func (e *Endpoint) Counters() transport.Counters {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	c := transport.Counters{Conns: e.conns, ListenDrops: e.listenDrops, SYNRetries: e.requestRetries, Foreign: e.foreign}
	if e.site != nil {
		c.Listeners = 1
	}
	if e.f.rdma {
		c.IDs, c.QPs = e.conns+c.Listeners, e.pairs
	}
	return c
}

// Close aborts what is open: the peers see a reset.
func (e *Endpoint) Close() error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	e.teardown(errClosed)
	e.f.advance(e.f.now())
	return nil
}

// Mimic makes the connections of the next round without queue pairs, with
// StepsRDMA only.
func (e *Endpoint) Mimic(m transport.Mimic) error {
	e.f.mu.Lock()
	defer e.f.mu.Unlock()
	switch {
	case e.gone != nil:
		return e.error("mimic", e.gone)
	case !e.f.rdma:
		return e.error("mimic", errors.New("these steps have no queue pairs to play"))
	case e.conns > 0:
		return e.error("mimic", fmt.Errorf("%d connections of the last round are not destroyed yet", e.conns))
	case m.Delay < 0 || uint64(m.First)+uint64(m.Count) > 1<<24:
		return e.error("mimic", fmt.Errorf("numbers %d and %d more with a delay of %s: numbers have 24 bits, a delay is not negative", m.First, m.Count, m.Delay))
	}
	e.mimic = m
	return nil
}

// pairSteps are those that Mimic plays.
var pairSteps = transport.Steps(
	transport.StepCreateQP, transport.StepInitQP, transport.StepRTR, transport.StepRTS,
	transport.StepAcceptCreateQP, transport.StepAcceptInitQP, transport.StepAcceptRTR, transport.StepAcceptRTS,
)

// cost of a step in worker time, ns.
func (e *Endpoint) cost(s transport.Step) int64 {
	if e.mimic.On && pairSteps.Has(s) {
		return int64(e.mimic.Delay)
	}
	return int64(e.f.cfg.Costs[s])
}

// pair counts queue pairs, which there are none of with Mimic.
func (e *Endpoint) pair(n int64) {
	if !e.mimic.On {
		e.pairs += n
	}
}

// teardown ends everything at once; mu is held.
func (e *Endpoint) teardown(why error) {
	if e.gone != nil {
		return
	}
	f, now := e.f, e.f.now()
	e.gone = why
	if e.site != nil {
		e.site.ep = nil
		e.site = nil
	}
	for e.orphans.len() > 0 {
		e.turnAway(e.orphans.pop(), now)
	}
	for _, w := range e.workers {
		for w.pending.len() > 0 {
			e.turnAway(w.pending.pop(), now)
		}
		w.shut(now)
	}
	e.waiting, e.conns, e.pairs = 0, 0, 0
	f.endpoints = slices.DeleteFunc(f.endpoints, func(x *Endpoint) bool { return x == e })
	e.nudgeAll()
	if len(f.endpoints) == 0 { // nobody is left to deliver to
		clear(f.queue)
		f.queue = f.queue[:0]
		f.armed = 0
		if f.timer != nil {
			f.timer.Stop()
		}
	}
}

// turnAway resets a request that nobody will take.
func (e *Endpoint) turnAway(r ref, now int64) {
	if c := r.get(); c != nil {
		e.f.queue.push(packet{at: now + e.f.delay(c), key: c.id, to: r, kind: pktReset, cause: transport.CauseReset})
	}
}

// assign gives an arrived request to the workers in turn.
func (e *Endpoint) assign(r ref) {
	for range e.workers {
		w := e.workers[e.turn]
		e.turn = (e.turn + 1) % len(e.workers)
		if w.accepting && w.pending.len() < w.room() {
			w.pending.push(r)
			w.nudge()
			return
		}
	}
	e.orphans.push(r)
	e.nudgeAll() // one of them may have to refuse it
}

func (e *Endpoint) nudgeAll() {
	for _, w := range e.workers {
		w.nudge()
	}
}

func (e *Endpoint) error(op string, err error) *transport.OpError {
	cause := transport.CauseOther
	if errors.Is(err, errClosed) || errors.Is(err, errKilled) || errors.Is(err, errWorkerClosed) {
		cause = transport.CauseAborted
	}
	o := &transport.OpError{Op: op, Provider: "sim", Cause: cause, Err: fmt.Errorf("%s: %w", orUnnamed(e.cfg.Name), err)}
	return o
}
