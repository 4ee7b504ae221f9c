package transporttest

import (
	"errors"
	"fmt"
	"time"

	"rankstorm/transport"
)

var workerTests = []subtest{
	{"WakeEndsNextWait", "Wake before Wait ends that Wait, once", wakeBefore},
	{"WakeEndsRunningWait", "Wake from another goroutine ends a Wait that sleeps", wakeDuring},
	{"WaitUntil", "Wait returns at until, not before, and at once if that has passed", waitUntil},
	{"WaitSeesEvents", "an event ends a Wait", waitSees},
	{"Due", "full connect counts from the due moment where one is given", due},
	{"SmallPoll", "Poll never gives more events than there is room for and keeps the rest", smallPoll},
	{"Storm", "workers that sleep in Wait, a goroutine each, lose nothing", storm},
}

func wakeBefore(k *kit) {
	r := k.open("rank", 1)
	s := r.sides[0]
	s.reserve(1, 0)
	s.w.Wake()
	s.w.Wake()
	n, err := s.w.Wait(r.clk.Now()+int64(time.Hour), k.ev)
	k.ok(err)
	if n != 0 {
		k.broken("Wait gave %d events where nothing happened", n)
	}
	begin := r.clk.Now()
	n, err = s.w.Wait(begin+int64(10*time.Millisecond), k.ev)
	k.ok(err)
	if n != 0 || r.clk.Now() < begin+int64(10*time.Millisecond) {
		k.broken("the second Wait gave %d events after %v; the wake-ups were used up, it has to sleep 10ms", n, time.Duration(r.clk.Now()-begin))
	}
}

func wakeDuring(k *kit) {
	r := k.open("rank", 1)
	s := r.sides[0]
	s.reserve(1, 0)
	begin := r.clk.Now()
	join := sleepingGoroutine(func() {
		r.clk.SleepUntil(r.clk.Now()+int64(20*time.Millisecond), 0)
		s.w.Wake()
	})
	n, err := s.w.Wait(r.clk.Now()+patience, k.ev)
	k.ok(err)
	if n != 0 {
		k.broken("Wait gave %d events where nothing happened", n)
	}
	if d := r.clk.Now() - begin; d >= patience {
		k.broken("Wait slept for %v, until its time was up", time.Duration(d))
	}
	join()
}

func waitUntil(k *kit) {
	r := k.open("rank", 1)
	s := r.sides[0]
	s.reserve(1, 0)
	for _, d := range []time.Duration{-time.Hour, 0, 100 * time.Microsecond, 30 * time.Millisecond} {
		until := r.clk.Now() + int64(d)
		n, err := s.w.Wait(until, k.ev)
		k.ok(err)
		if n != 0 || r.clk.Now() < until {
			k.broken("Wait(now + %v) gave %d events and came back %v early", d, n, time.Duration(until-r.clk.Now()))
		}
	}
}

func waitSees(k *kit) {
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, 1)
	f.reserve(1, 0)
	f.prepare(0, 1, to.addr)
	faults := make(chan string, 1)
	go func() { faults <- t.serveUntil(transport.StepAccept, 1) }()
	f.begin(transport.StepConnect, 0, 1, nil)
	fault := f.serveUntil(transport.StepFullConnect, 1)
	for _, fault := range []string{fault, <-faults} {
		if fault != "" {
			k.broken("%s", fault)
		}
	}
}

func due(k *kit) {
	const n = 6
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	t.reserve(0, n)
	f.reserve(n, 0)
	f.prepare(0, n, to.addr)
	at := make([]int64, n)
	k.quiet(2 * time.Millisecond)
	for c := range at {
		at[c] = from.clk.Now() - int64(c+1)*100_000
	}
	started := from.clk.Now()
	f.begin(transport.StepConnect, 0, n, at)
	f.await(transport.StepConnect, 0, n)
	f.established(0, n)
	for _, e := range f.log {
		switch {
		case e.Kind != transport.StepDone:
		case e.Step == transport.StepFullConnect && e.Begin != at[e.Conn]:
			k.broken("connection %d: full connect counts from %d, it was due at %d", e.Conn, e.Begin, at[e.Conn])
		case e.Step == transport.StepConnect && e.Begin < started:
			k.broken("connection %d: connect began at %d, before Start at %d; only full connect counts from the due moment", e.Conn, e.Begin, started)
		}
	}
	if n, err := f.w.Start(transport.StepConnect, 0, n, at[:1]); n != 0 || err == nil {
		k.broken("Start with fewer due moments than connections began %d, error %v", n, err)
	}
}

func smallPoll(k *kit) {
	k.ev = k.ev[:1]
	from, to := k.open("from", 1), k.open("to", 1)
	k.life(from, to, 8)
	if n := from.sides[0].w.Poll(nil); n != 0 {
		k.broken("Poll without room gave %d events", n)
	}
}

// storm runs every worker on a goroutine of its own, as a job does.
func storm(k *kit) {
	const ranks, n = 8, 25
	all := make([]*rank, ranks)
	for i := range all {
		all[i] = k.open(fmt.Sprint("rank ", i), 1)
		all[i].sides[0].reserve((ranks-1)*n, (ranks-1)*n)
	}
	for i, r := range all {
		first := 0
		for j, to := range all {
			if j != i {
				r.sides[0].prepare(first, n, to.addr)
				first += n
			}
		}
	}
	// From here on nobody but its goroutine touches a worker. Faults are
	// collected, because only the test's own goroutine may end the test.
	faults := make(chan string, ranks)
	for _, r := range all {
		go func() { faults <- r.sides[0].storm((ranks - 1) * n) }()
	}
	for range all {
		if f := <-faults; f != "" {
			k.broken("%s", f)
		}
	}
}

// storm connects, serves its share of requests and says what went wrong.
func (s *side) storm(n int) string {
	if got, err := s.w.Start(transport.StepConnect, 0, n, nil); got != n {
		for errors.Is(err, transport.ErrAgain) { // go on once the queue has drained
			if fault := s.serve(); fault != "" {
				return fault
			}
			var more int
			more, err = s.w.Start(transport.StepConnect, transport.Conn(got), n-got, nil)
			got += more
		}
		if err != nil {
			return fmt.Sprintf("%s: Start: %v", s.r.name, err)
		}
	}
	if fault := s.serveUntil(transport.StepFullConnect, n); fault != "" {
		return fault
	}
	return s.serveUntil(transport.StepAccept, n)
}

// serveUntil waits until n connections have done st.
func (s *side) serveUntil(st transport.Step, n int) string {
	for s.done[st] < n {
		if fault := s.serve(); fault != "" {
			return fault
		}
	}
	return ""
}

// serve waits once. It checks less than take, which the other tests use.
func (s *side) serve() string {
	var ev [16]transport.Event
	got, err := s.w.Wait(s.r.clk.Now()+patience, ev[:])
	if got == 0 {
		return fmt.Sprintf("%s: %d established and %d accepted, then nothing for %v: %v", s.r.name,
			s.done[transport.StepFullConnect], s.done[transport.StepAccept], time.Duration(patience), err)
	}
	for _, e := range ev[:got] {
		switch e.Kind {
		case transport.EventRequest:
			if err := s.w.Answer(e.Conn, true, 0); err != nil {
				return fmt.Sprintf("%s: Answer: %v", s.r.name, err)
			}
		case transport.StepDone:
			s.done[e.Step]++
		default:
			return fmt.Sprintf("%s: unexpected event %+v", s.r.name, e)
		}
	}
	return ""
}
