package tcp

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/internal/epoll"
	"rankstorm/transport/internal/eventring"
)

const (
	listenSlot = -2 // of the listener among the epoll events

	batch       = 256 // descriptors looked at in one poll
	acceptBatch = 8   // requests taken in one poll: more would keep the first from its answer, fewer cost calls
	perReady    = 4   // events that one ready descriptor can give

	spare         = 256              // half-open sockets beside the expected connections
	spareTable    = 64               // as many of them the descriptor table is grown for
	helloDeadline = 10 * time.Second // for an accepted socket to say its hello
	acceptRest    = 10 * time.Millisecond
	// A set-up that took longer than this had time for a retransmission (the
	// smallest timeout is 200 ms); only then the kernel is asked for it.
	slowSetUp = 150 * time.Millisecond

	maxConns = 1 << 26
)

// worker carries the connections of one goroutine; see transport.Worker.
type worker struct {
	e       *endpoint
	idx, of int
	clock   transport.Clock
	set     *epoll.Set
	router  *router // nil: this system lets nobody ask for routes

	conns    []conn
	out, in  int
	slotOf   []int32 // of accepted connection i; -1 destroyed
	accepted int
	rejected []int32 // indices of accepted connections that a reject gave back
	free     []int32 // slots for accepted sockets
	waiting  []int32 // slots with a complete hello that have no place yet, in order of their hellos
	open     int     // requests that the caller has not answered
	oldest   int32   // half-open sockets in order of acceptance, -1 none
	newest   int32
	peers    []peer
	peerOf   map[peerKey]int32

	ring      eventring.Ring
	ready     []epoll.Event
	woken     bool
	resting   int64 // accept found no descriptor: try again at this moment, 0 not resting
	accepting bool  // under endpoint.mu
	closed    bool
	promised  int // descriptors in the account of the table

	scratch [256]byte        // read into
	short   [shortFrame]byte // written from; a local would escape through x/sys in race builds
	info    unix.TCPInfo
	count   struct{ fds, conns, retries, foreign, starved, cramped atomic.Int64 }
}

func newWorker(e *endpoint, idx, of int) (*worker, error) {
	set, err := epoll.New(1)
	if err != nil {
		return nil, opError("epoll_create", nil, nil, err)
	}
	if e.park {
		if err := set.Park(); err != nil {
			set.Close()
			return nil, opError("epoll park", nil, nil, err)
		}
	}
	w := &worker{
		e: e, idx: idx, of: of, clock: e.clock, set: set, accepting: true,
		oldest: -1, newest: -1, peerOf: make(map[peerKey]int32),
	}
	w.count.fds.Add(epoll.FDs)
	if r, err := newRouter(); err == nil {
		w.router = r
		w.count.fds.Add(1)
	} else if c := causeOf(err); c == transport.CauseNoFDs || c == transport.CauseNoMemory {
		w.Close()
		return nil, opError("netlink socket", nil, nil, err)
	}
	if err := w.Reserve(0, 0); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Reserve makes the tables for out and in connections and touches them, and
// grows the process's descriptor table. Half-open sockets of the time before
// are closed, and requests that nobody answered: their initiators gave them up
// while they waited in the backlog.
func (w *worker) Reserve(out, in int) error {
	if w.closed {
		return errClosed
	}
	if out < 0 || in < 0 || out > maxConns || in > maxConns {
		return misuse("reserve", "%d + %d connections: each must be 0 to %d", out, in, maxConns)
	}
	if n := w.count.conns.Load() - int64(w.open); n > 0 {
		return misuse("reserve", "%d connections of the round before are not destroyed", n)
	}
	for w.oldest >= 0 {
		w.turnAway(w.oldest)
	}
	for _, slot := range w.waiting {
		w.turnAway(slot)
	}
	for _, slot := range w.slotOf[:w.accepted] {
		if slot >= 0 {
			w.reject(slot, &w.conns[slot], ReasonNoRoom)
		}
	}
	w.ring.Clear()
	slots := out + in + spare
	if slots > cap(w.conns) {
		w.conns = make([]conn, slots)
	}
	w.conns = w.conns[:slots]
	for i := range w.conns {
		c := &w.conns[i]
		*c = conn{fd: -1, id: transport.Conn(i), gen: c.gen + 1, peer: -1, prev: -1, next: -1}
	}
	w.slotOf = resize(w.slotOf, in)
	w.rejected = resize(w.rejected, in)[:0]
	w.waiting = resize(w.waiting, in+spare)[:0]
	w.free = resize(w.free, in+spare)
	for i := range w.free {
		w.free[i] = int32(slots - 1 - i) // lowest on top
	}
	w.out, w.in, w.accepted, w.open = out, in, 0, 0
	w.peers = w.peers[:0]
	clear(w.peerOf)

	ready := min(slots, batch)
	if ready > len(w.ready) {
		w.ready = make([]epoll.Event, ready)
		w.set.Grow(ready)
	}
	// Twice what a poll can give, so that Start has its half (see Start).
	size := 64
	for size < 2*(perReady*ready+acceptBatch) {
		size *= 2
	}
	w.ring.Grow(size)

	fds := out + in + spareTable
	w.e.table.expect(w.promised, fds)
	w.promised = fds
	return nil
}

func resize(s []int32, n int) []int32 {
	if n > cap(s) {
		s = make([]int32, n)
	}
	s = s[:n]
	for i := range s {
		s[i] = -1
	}
	return s
}

var errClosed = misuse("worker", "is closed")

// Assign notes where c goes and what it says.
func (w *worker) Assign(id transport.Conn, to transport.Address, hello *transport.Hello) error {
	if id < 0 || int(id) >= w.out {
		return misuse("assign", "connection %d is not one of the %d reserved", id, w.out)
	}
	c := &w.conns[id]
	if c.state > stCreated && c.state != stDead {
		return misuse("assign", "connection %d has been connected already", id)
	}
	putHello(&c.buf, hello)
	if c.peer >= 0 && string(w.peers[c.peer].raw[:w.peers[c.peer].rawLen]) == string(to) {
		return nil
	}
	if len(to) > addrMax {
		return misuse("assign", "published address of %d bytes: wrong length", len(to))
	}
	k := peerKey{n: uint8(len(to))}
	copy(k.raw[:], to)
	i, ok := w.peerOf[k]
	if !ok {
		if _, _, _, err := decodeAddr(to); err != nil {
			return err
		}
		i = int32(len(w.peers))
		w.peers = append(w.peers, peer{raw: k.raw, rawLen: len(to)})
		w.peerOf[k] = i
	}
	c.peer = i
	return nil
}

// slot finds a connection by its index.
func (w *worker) slot(id transport.Conn) (int32, bool) {
	switch {
	case id < 0:
		return -1, false
	case int(id) < w.out:
		return int32(id), true
	case int(id) < w.out+w.accepted:
		s := w.slotOf[int(id)-w.out]
		return s, s >= 0
	}
	return -1, false
}

// Poll hands out what has happened.
func (w *worker) Poll(ev []transport.Event) int {
	n, _ := w.poll(0, ev) // an error shows in Wait again
	return n
}

// poll looks at the sockets for at most ns and hands out events.
func (w *worker) poll(ns int64, ev []transport.Event) (int, error) {
	if len(w.waiting) > 0 && !w.closed {
		w.admit()
	}
	n := w.ring.Drain(ev)
	if w.closed || n == len(ev) && n+w.ring.Len() > 0 {
		return n, nil
	}
	if n > 0 {
		ns = 0
	}
	// The ring is empty now and holds what a whole batch can give.
	got, woken, err := w.set.Wait(ns, w.ready)
	w.woken = w.woken || woken
	for i := range got {
		r := &w.ready[i]
		if r.Slot == listenSlot {
			w.accept()
			continue
		}
		if c := &w.conns[r.Slot]; c.gen == r.Gen {
			w.handle(r.Slot, c, r.Bits)
		}
	}
	if w.oldest >= 0 || w.resting > 0 {
		w.overdue()
	}
	n += w.ring.Drain(ev[n:])
	if err != nil {
		return n, opError("epoll_wait", nil, nil, err)
	}
	return n, nil
}

// Wait polls, first busily for Config.Busy, then asleep. Without Busy a call
// that finds something ready costs one system call, like Poll.
func (w *worker) Wait(until int64, ev []transport.Event) (int, error) {
	if w.closed {
		return 0, errClosed
	}
	spin := int64(-1) // busy until then; -1: not known yet
	for {
		ns, last := int64(math.MaxInt64), false
		if t := min(until, w.nextDeadline()); t < math.MaxInt64 || w.e.busy > 0 {
			now := w.clock.Now()
			if spin < 0 {
				spin = now + w.e.busy
			}
			switch {
			case now >= until:
				ns, last = 0, true
			case now < spin:
				ns = 0
			case t < math.MaxInt64:
				ns = max(t-now, 1)
			}
		}
		n, err := w.poll(ns, ev)
		// takeWake comes first: events do not leave a wake behind for the next Wait.
		if w.takeWake() || n > 0 || w.ring.Len() > 0 || err != nil || last {
			return n, err
		}
	}
}

func (w *worker) takeWake() bool {
	was := w.woken
	w.woken = false
	return was
}

// Wake ends the running or the next Wait.
func (w *worker) Wake() { w.set.Wake() }

// Abandon gives a connection up; its socket stays until destroy.
func (w *worker) Abandon(id transport.Conn) {
	s, ok := w.slot(id)
	if !ok {
		return
	}
	c := &w.conns[s]
	if c.state == stNone {
		return
	}
	w.askRetransmits(c, w.clock.Now())
	if c.state == stRequest {
		w.open--
	}
	c.state = stDead
}

// Close aborts all connections and releases the worker; idempotent.
func (w *worker) Close() error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	for i := range w.conns {
		if c := &w.conns[i]; c.fd >= 0 {
			unix.Close(int(c.fd))
			c.fd = -1
		}
	}
	if w.router != nil {
		w.router.close()
	}
	w.set.Close()
	w.count.fds.Store(0)
	w.count.conns.Store(0)
	w.e.table.expect(w.promised, 0)
	w.promised = 0
	return nil
}
