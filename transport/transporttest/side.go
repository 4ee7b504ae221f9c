package transporttest

import (
	"encoding/binary"
	"errors"
	"slices"

	"rankstorm/transport"
)

// side is one worker under the kit: what was begun, and what it reported.
type side struct {
	r       *rank
	index   int
	w       transport.Worker
	out, in int

	log      []transport.Event // everything since Reserve, in order
	steps    []transport.StepSet
	failed   []transport.Event // per connection; Kind 0: it did not fail
	gaveUp   []bool            // Abandon was called
	closed   []int             // EventPeerClosed per connection
	requests []transport.Conn
	done     [transport.StepCount]int
	arrived  int            // requests so far
	rejects  map[int]uint16 // requests to reject, by order of arrival
	turn     []int          // order of arrival, by connection
}

// reserve starts a round.
func (s *side) reserve(out, in int) {
	s.r.k.t.Helper()
	s.r.k.ok(s.w.Reserve(out, in))
	s.forget(out, in)
}

func (s *side) forget(out, in int) {
	s.out, s.in = out, in
	n := out + in
	if cap(s.steps) < n {
		s.steps, s.failed = make([]transport.StepSet, n), make([]transport.Event, n)
		s.gaveUp, s.closed = make([]bool, n), make([]int, n)
		s.requests = make([]transport.Conn, 0, n)
		s.turn = make([]int, n)
		s.log = make([]transport.Event, 0, int(transport.StepCount)*n)
	}
	s.steps, s.failed, s.gaveUp, s.closed = s.steps[:n], s.failed[:n], s.gaveUp[:n], s.closed[:n]
	clear(s.steps)
	clear(s.failed)
	clear(s.gaveUp)
	clear(s.closed)
	s.requests, s.log, s.arrived = s.requests[:0], s.log[:0], 0
	s.done = [transport.StepCount]int{}
}

// take checks an event against what may come and answers requests.
func (s *side) take(e *transport.Event) {
	k := s.r.k
	if e.Conn < 0 || int(e.Conn) >= s.out+s.in {
		k.broken("%s: an event for connection %d, %d are reserved: %+v", s.r.name, e.Conn, s.out+s.in, *e)
		return
	}
	c := int(e.Conn)
	s.log = append(s.log, *e)
	if e.Begin > e.End {
		k.broken("%s: connection %d: %v began at %d and ended before, at %d", s.r.name, c, e.Step, e.Begin, e.End)
	}
	if e.Kind != transport.EventRequest && e.Hello != (transport.Hello{}) {
		k.broken("%s: connection %d: an event that is no request carries a hello", s.r.name, c)
	}
	late := s.gaveUp[c] || s.failed[c].Kind != 0
	if late && e.Step != transport.StepDestroyID && e.Step != transport.StepDestroyQP {
		k.broken("%s: connection %d: event %+v after the connection had failed or was abandoned", s.r.name, c, *e)
	}
	switch e.Kind {
	case transport.StepDone:
		if !k.h.Steps.Has(e.Step) {
			k.broken("%s: connection %d: an event of %v, which Provider.Steps does not have", s.r.name, c, e.Step)
		}
		if s.steps[c].Has(e.Step) {
			k.broken("%s: connection %d: a second event of %v", s.r.name, c, e.Step)
		}
		s.steps[c] |= transport.Steps(e.Step)
		s.done[e.Step]++
		if e.Cause != transport.CauseNone || e.Err != nil {
			k.broken("%s: connection %d: %v is done and yet has a cause (%v, %v)", s.r.name, c, e.Step, e.Cause, e.Err)
		}
	case transport.StepFailed:
		s.failed[c] = *e
		if e.Cause == transport.CauseNone || e.Cause >= transport.CauseCount {
			k.broken("%s: connection %d: %v failed without a cause", s.r.name, c, e.Step)
		}
	case transport.EventRequest:
		if c < s.out {
			k.broken("%s: a request on connection %d, accepted ones begin at %d", s.r.name, c, s.out)
		}
		s.requests = append(s.requests, e.Conn)
		s.turn[c] = s.arrived
		s.arrived++
		if !s.r.hold {
			s.answer(e.Conn)
		}
	case transport.EventPeerClosed:
		s.closed[c]++
		if s.closed[c] > 1 {
			k.broken("%s: connection %d: the peer's close was told %d times", s.r.name, c, s.closed[c])
		}
	default:
		k.broken("%s: connection %d: an event of unknown kind %d", s.r.name, c, e.Kind)
	}
}

// answer accepts, unless the request is among those to reject.
func (s *side) answer(c transport.Conn) {
	s.r.k.t.Helper()
	reason, reject := s.rejects[s.turn[c]]
	if reject { // it is over, and its index may come again
		i := slices.Index(s.requests, c)
		s.requests = slices.Delete(s.requests, i, i+1)
	}
	s.r.k.ok(s.w.Answer(c, !reject, reason))
}

// assign sends the connections first … first+n-1 to a rank, each with a hello of its own.
func (s *side) assign(first, n int, to transport.Address) {
	s.r.k.t.Helper()
	for c := first; c < first+n; c++ {
		h := hello(s.r.name, s.index, c)
		s.r.k.ok(s.w.Assign(transport.Conn(c), to, &h))
	}
}

// hello is different in every byte position for every connection.
func hello(name string, worker, c int) (h transport.Hello) {
	x := uint64(worker)<<32 | uint64(c)
	for _, b := range []byte(name) {
		x = x*1099511628211 + uint64(b) + 1
	}
	for i := 0; i < len(h); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(h[i:], x+uint64(i))
	}
	return h
}

// begin starts a step on n connections, polling while the queue is full.
func (s *side) begin(st transport.Step, first, n int, due []int64) {
	k := s.r.k
	k.t.Helper()
	for n > 0 {
		got, err := s.w.Start(st, transport.Conn(first), n, due)
		if got < 0 || got > n {
			k.fatal("Start(%v) began %d of %d", st, got, n)
		}
		if err == nil && got < n {
			k.fatal("Start(%v) began %d of %d and gave no error", st, got, n)
		}
		if err != nil && !errors.Is(err, transport.ErrAgain) {
			k.fatal("Start(%v) of connection %d: %v", st, first+got, err)
		}
		first, n = first+got, n-got
		if due != nil {
			due = due[got:]
		}
		if n > 0 && !k.poll() {
			s.r.clk.SleepUntil(s.r.clk.Now()+20_000, 0)
		}
	}
}

// run starts a step and waits until all n connections have reported it or failed.
func (s *side) run(st transport.Step, first, n int) {
	s.r.k.t.Helper()
	s.begin(st, first, n, nil)
	s.await(st, first, n)
}

func (s *side) await(st transport.Step, first, n int) {
	s.r.k.t.Helper()
	last := st
	if st == transport.StepConnect {
		last = transport.StepFullConnect
	}
	destroy := st == transport.StepDestroyQP || st == transport.StepDestroyID
	s.r.k.until(last.String()+" of "+s.r.name, func() bool {
		for c := first; c < first+n; c++ {
			if s.steps[c].Has(last) || !destroy && (s.failed[c].Kind != 0 || s.gaveUp[c]) {
				continue
			}
			return false
		}
		return true
	})
}

// setUpSteps lead an initiated connection up to connect.
var setUpSteps = []transport.Step{
	transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute,
	transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP,
}

// prepare takes the steps before connect that the provider has.
func (s *side) prepare(first, n int, to transport.Address) {
	s.r.k.t.Helper()
	s.assign(first, n, to)
	for _, st := range setUpSteps {
		if s.r.k.h.Steps.Has(st) {
			s.run(st, first, n)
		}
	}
}

// connect sets up n connections completely.
func (s *side) connect(first, n int, to transport.Address) {
	s.r.k.t.Helper()
	s.prepare(first, n, to)
	s.run(transport.StepConnect, first, n)
}

// established requires that connections first … first+n-1 are.
func (s *side) established(first, n int) {
	s.r.k.t.Helper()
	for c := first; c < first+n; c++ {
		if !s.steps[c].Has(transport.StepFullConnect) {
			s.r.k.fatal("%s: connection %d is not established: %+v", s.r.name, c, s.failed[c])
		}
	}
}

// destroy takes both destroy steps on n connections.
func (s *side) destroy(first, n int) {
	s.r.k.t.Helper()
	for _, st := range []transport.Step{transport.StepDestroyQP, transport.StepDestroyID} {
		if s.r.k.h.Steps.Has(st) {
			s.run(st, first, n)
		}
	}
}

// destroyAccepted destroys what was accepted on every worker.
func (r *rank) destroyAccepted() {
	r.k.t.Helper()
	for _, s := range r.sides {
		for _, c := range s.requests {
			s.destroy(int(c), 1)
		}
	}
}
