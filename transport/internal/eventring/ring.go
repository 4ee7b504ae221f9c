// Package eventring is the queue of events between what happens and Poll.
package eventring

import "rankstorm/transport"

// Ring is as large as Poll's batch needs; it grows only if a caller lets it overflow.
type Ring struct {
	buf  []transport.Event // a power of two
	head int
	n    int
}

// Len is how many events wait.
func (r *Ring) Len() int { return r.n }

// Cap is how many fit.
func (r *Ring) Cap() int { return len(r.buf) }

// Room is how many more fit.
func (r *Ring) Room() int { return len(r.buf) - r.n }

// Push gives the next event's place, to be filled but for Hello, which is zero.
func (r *Ring) Push() *transport.Event {
	if r.n == len(r.buf) {
		r.Grow(max(2*len(r.buf), 64))
	}
	e := &r.buf[(r.head+r.n)&(len(r.buf)-1)]
	r.n++
	return e
}

// Last is the event pushed last, which waits.
func (r *Ring) Last() *transport.Event { return &r.buf[(r.head+r.n-1)&(len(r.buf)-1)] }

// Grow makes room for at least n events.
func (r *Ring) Grow(n int) {
	if n <= len(r.buf) {
		return
	}
	size := max(len(r.buf), 64)
	for size < n {
		size *= 2
	}
	to := make([]transport.Event, size)
	for i := range to {
		to[i].Conn = -1 // touch the memory now, not in a timed phase
	}
	for i := range r.n {
		to[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
	}
	r.buf, r.head = to, 0
}

// Clear forgets what is queued.
func (r *Ring) Clear() {
	clear(r.buf)
	r.head, r.n = 0, 0
}

// Drain moves events into ev, oldest first, and says how many.
func (r *Ring) Drain(ev []transport.Event) int {
	n := min(r.n, len(ev))
	for i := range n {
		e := &r.buf[r.head]
		ev[i] = *e
		e.Err = nil
		if e.Kind == transport.EventRequest {
			e.Hello = transport.Hello{}
		}
		r.head = (r.head + 1) & (len(r.buf) - 1)
	}
	r.n -= n
	return n
}
