//go:build cgo

package rdma

import (
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/internal/epoll"
	"rankstorm/transport/internal/eventring"
	"rankstorm/transport/rdma/internal/verbs"
)

// Slots of an epoll set.
const (
	listenSlot  = 0
	channelSlot = 1
	notifySlot  = 2 // and following: completion channels, a device each
)

const (
	batch       = 32  // events of the connection manager read in one crossing
	acceptBatch = 8   // requests taken in one poll: more would keep the first from its answer, fewer cost crossings
	startBatch  = 64  // connections whose step is begun in one crossing
	spare       = 256 // requests that wait for a place beside those expected
	perEvent    = 8   // events for the caller that one of the connection manager can give

	followsWithin = 2_000_000  // ns between two requests of a burst
	longestRead   = 50_000_000 // ns that answers wait for the end of a burst

	maxConns = 1 << 24 // there are no more queue pair numbers
)

// conn is what Go knows of one connection.
type conn struct {
	state    state
	tries    uint8
	assigned bool
	gen      uint32
	peer     int32 // in peers, -1: accepted, or not assigned
	begin    int64 // of what is under way
	due      int64
	hello    transport.Hello // initiated: to say
}

// worker carries the connections of one goroutine; see transport.Worker.
type worker struct {
	e       *endpoint
	idx, of int
	clock   transport.Clock
	set     *epoll.Set
	table   *verbs.Table

	conns    []conn
	out, in  int
	accepted int
	rejected []int32 // indices of accepted connections that a reject gave back
	gen      uint32
	peers    []netip.AddrPort
	targets  []verbs.Sockaddr // the same for the kernel
	peerOf   map[netip.AddrPort]int32

	ring      eventring.Ring
	ready     []epoll.Event
	woken     bool
	mimic     transport.Mimic // of this round
	readBatch int
	waiting   []pending // requests without a place yet
	open      int       // requests that the caller has not answered
	pressed   bool      // the listen queue may have been full, and what was read of it still waits
	armed     bool      // a completion will be notified of
	accepting bool      // under endpoint.mu
	closed    bool

	// Of a crossing, made once.
	slots   []int32
	gens    []uint32
	stamps  []verbs.Stamp
	stages  []verbs.Stages
	events  []verbs.Event
	done    []verbs.Done
	moved   []int32 // connections that await Establish
	ends    []int32 // … the answer to a disconnect
	pings   []int32 // … a pong
	pingAt  []int64
	endAt   []int64
	one     [1]int32
	stamp   [1]verbs.Stamp
	refusal [6]byte
	private [verbs.PrivateSize]byte

	count struct{ fds, conns, ids, qps, cqs, foreign, cramped atomic.Int64 }
}

var errClosed = misuse("worker", "is closed")

func newWorker(e *endpoint, idx, of int) (*worker, error) {
	set, err := epoll.New(8)
	if err != nil {
		return nil, opError("epoll_create", netip.AddrPort{}, netip.AddrPort{}, err)
	}
	if e.park {
		if err := set.Park(); err != nil {
			set.Close()
			return nil, opError("epoll park", netip.AddrPort{}, netip.AddrPort{}, err)
		}
	}
	w := &worker{
		e: e, idx: idx, of: of, clock: e.clock, set: set, accepting: true, peerOf: make(map[netip.AddrPort]int32),
		ready: make([]epoll.Event, 8), slots: make([]int32, startBatch), gens: make([]uint32, startBatch), stamps: make([]verbs.Stamp, startBatch),
		stages: make([]verbs.Stages, batch), events: make([]verbs.Event, batch), done: make([]verbs.Done, batch),
		moved: make([]int32, 0, batch), ends: make([]int32, 0, batch), endAt: make([]int64, 0, batch),
		pings: make([]int32, 0, batch), pingAt: make([]int64, 0, batch),
	}
	w.count.fds.Add(epoll.FDs)
	table, which, err := verbs.NewTable(e.knobs, e.sockaddrs)
	if err != nil {
		set.Close()
		return nil, e.tableError(which, err)
	}
	w.table = table
	w.count.fds.Add(1)
	err = set.Add(table.FD(), channelSlot, 0, epoll.In)
	for r := 0; r < table.Rails() && err == nil; r++ {
		if fd := table.NotifyFD(r); fd >= 0 {
			w.count.fds.Add(1)
			w.count.cqs.Add(1)
			err = set.Add(fd, notifySlot+int32(r), 0, epoll.In)
		}
	}
	if err != nil {
		w.Close()
		return nil, opError("epoll_ctl", netip.AddrPort{}, netip.AddrPort{}, err)
	}
	if err := w.Reserve(0, 0); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// tableError says which address a worker could not be made for.
func (e *endpoint) tableError(which int, err error) error {
	switch {
	case which < 0:
		return opError("rdma_create_event_channel", netip.AddrPort{}, netip.AddrPort{}, err)
	case which < len(e.local):
		return bindError(e.local[which].Addr(), err)
	}
	return bindError(e.adv.Addr(), err)
}

// Reserve makes the tables for out and in connections, the completion queue
// and the memory of their probes.
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
	for slot := w.out; slot < w.out+w.accepted; slot++ {
		if c := &w.conns[slot]; c.state == stRequested {
			w.answeredOne(c)
			w.reject(int32(slot), c, ReasonNoRoom)
		}
	}
	w.ring.Clear()
	n := out + in
	w.e.mu.Lock()
	w.mimic = w.e.mimic
	w.e.mu.Unlock()
	w.readBatch = batch
	if w.mimic.On {
		if m := w.mimic; n > 0 && uint64(n-1)*uint64(w.of)+uint64(w.idx) >= uint64(m.Count) {
			return misuse("reserve", "%d connections in each of %d workers: only %d queue pair numbers are set aside for them", n, w.of, m.Count)
		}
		if d := w.mimic.Delay; d > 0 { // each may take two delays, and nothing else happens meanwhile
			w.readBatch = int(min(batch, max(1, longestNap/(2*d))))
		}
	}
	w.table.Play(w.mimic.On, int64(w.mimic.Delay))
	if err := w.table.Resize(n); err != nil {
		if err == verbs.ErrTooMany {
			return misuse("reserve", "%d connections of one worker are %w: more workers (-n), or fewer connections", n, err)
		}
		return opError("ibv_create_cq", w.e.local[0], netip.AddrPort{}, err)
	}
	w.armed = false // the completion queue may be another one
	if n > cap(w.conns) {
		w.conns = make([]conn, n)
	}
	w.conns = w.conns[:n]
	for i := range w.conns {
		w.conns[i] = conn{peer: -1}
	}
	if in > cap(w.rejected) {
		w.rejected = make([]int32, 0, in)
	}
	w.rejected = w.rejected[:0]
	w.out, w.in, w.accepted = out, in, 0
	w.peers, w.targets = w.peers[:0], w.targets[:0]
	clear(w.peerOf)
	// Twice what a poll can give, so that Start has its half.
	for _, p := range w.waiting {
		w.turnAway(p.id)
	}
	w.waiting, w.open = w.waiting[:0], 0
	if most := in + spare; most > cap(w.waiting) {
		w.waiting = make([]pending, 0, most)
	}
	w.ring.Grow(2 * perEvent * min(max(n, 8), 2*batch))
	return nil
}

// Assign notes where c goes and what it says.
func (w *worker) Assign(id transport.Conn, to transport.Address, hello *transport.Hello) error {
	if id < 0 || int(id) >= w.out {
		return misuse("assign", "connection %d is not one of the %d reserved", id, w.out)
	}
	c := &w.conns[id]
	if c.state > stBound && c.state != stDead {
		return misuse("assign", "connection %d has been resolved already", id)
	}
	at, err := decodeAddr(to)
	if err != nil {
		return err
	}
	i, ok := w.peerOf[at]
	if !ok {
		if at.Addr().Is4() != w.e.adv.Addr().Is4() {
			return misuse("assign", "%s cannot be reached from %s: addresses of different families", at, w.e.adv.Addr())
		}
		scoped := at
		if ip := at.Addr(); ip.Is6() && ip.IsLinkLocalUnicast() {
			scoped = netip.AddrPortFrom(ip.WithZone(w.e.local[0].Addr().Zone()), at.Port())
		}
		sa, err := sockaddr(scoped)
		if err != nil {
			return misuse("assign", "%s %w", at, err)
		}
		i = int32(len(w.peers))
		w.peers, w.targets = append(w.peers, scoped), append(w.targets, sa)
		w.peerOf[at] = i
	}
	c.peer, c.assigned, c.hello = i, true, *hello
	return nil
}

// Poll hands out what has happened.
func (w *worker) Poll(ev []transport.Event) int {
	n, _ := w.poll(0, ev) // an error shows in Wait again
	return n
}

// poll looks at channels and completion queues for at most ns and hands out events.
func (w *worker) poll(ns int64, ev []transport.Event) (int, error) {
	w.pressed = w.pressed && len(w.waiting) > 0
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
	err := w.completions()
	if ns > 0 && w.ring.Len() == 0 && err == nil {
		err = w.arm()
	}
	if w.ring.Len() > 0 || err != nil {
		ns = 0
	}
	got, woken, werr := w.set.Wait(ns, w.ready)
	w.woken = w.woken || woken
	for i := range got {
		switch slot := w.ready[i].Slot; slot {
		case channelSlot:
			if e := w.read(); e != nil && err == nil {
				err = e
			}
		case listenSlot:
			w.takeRequests(false)
		default:
			w.table.Notified(int(slot - notifySlot))
			w.armed = false
			if e := w.completions(); e != nil && err == nil {
				err = e
			}
		}
	}
	n += w.ring.Drain(ev[n:])
	switch {
	case werr != nil:
		return n, opError("epoll_wait", netip.AddrPort{}, netip.AddrPort{}, werr)
	case err != nil:
		return n, opError("poll", netip.AddrPort{}, netip.AddrPort{}, err)
	}
	return n, nil
}

// arm has the next completion end a sleep. What completed meanwhile is taken at once.
func (w *worker) arm() error {
	if w.armed || w.count.qps.Load() == 0 {
		return nil
	}
	if err := w.table.Arm(); err != nil {
		return fmt.Errorf("ibv_req_notify_cq: %w", err)
	}
	w.armed = true
	return w.completions()
}

// Wait polls, first busily for Config.Busy, then asleep.
func (w *worker) Wait(until int64, ev []transport.Event) (int, error) {
	if w.closed {
		return 0, errClosed
	}
	spin := int64(-1) // busy until then; -1: not known yet
	for {
		ns, last := int64(math.MaxInt64), false
		if until < math.MaxInt64 || w.e.busy > 0 {
			now := w.clock.Now()
			if spin < 0 {
				spin = now + w.e.busy
			}
			switch {
			case now >= until:
				ns, last = 0, true
			case now < spin:
				ns = 0
			case until < math.MaxInt64:
				ns = until - now
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

// Abandon gives a connection up; its identifier and queue pair stay until destroy.
func (w *worker) Abandon(id transport.Conn) {
	if id < 0 || int(id) >= len(w.conns) || w.conns[id].state == stNone {
		return
	}
	w.answeredOne(&w.conns[id])
	w.conns[id].state = stDead
}

// Close aborts all connections and releases the worker; idempotent.
func (w *worker) Close() error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	for _, p := range w.waiting {
		w.turnAway(p.id)
	}
	w.waiting = w.waiting[:0]
	if w.table != nil {
		w.table.Close()
	}
	w.set.Close()
	for _, c := range []*atomic.Int64{&w.count.fds, &w.count.conns, &w.count.ids, &w.count.qps, &w.count.cqs} {
		c.Store(0)
	}
	return nil
}

// local is the address that a connection is bound to.
func (w *worker) local(id transport.Conn) netip.AddrPort {
	return w.e.local[w.localIndex(id)]
}

// localIndex takes the addresses in turn over the connections of all workers.
func (w *worker) localIndex(id transport.Conn) int {
	return (int(id)*w.of + w.idx) % len(w.e.local)
}

func errnoOf(n int32) error { return unix.Errno(n) }
