package tcp

import (
	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

// state of one socket.
//
//	initiator: none → created → connecting → answer → live ⇄ probe → closing → shut → none
//	target:    none → hello (→ waiting) → request → serving → shut → none
//
// From each but none a failure leads to dead; gone is live or probe after the
// peer went away. Only destroy leads back to none.
type state uint8

const (
	stNone       state = iota
	stCreated          // has a descriptor
	stConnecting       // connect called, the path has not answered
	stAnswer           // hello written
	stLive             // answer read
	stProbe            // ping written
	stClosing          // shutdown called, peer's side still open
	stGone             // peer's close seen before ours
	stHello            // accepted, hello not complete: may be a stranger
	stWaiting          // hello complete, no place before a request is answered
	stRequest          // hello delivered, Answer not called
	stServing          // answered
	stShut             // closed both ways
	stDead             // failed, rejected or abandoned
)

// conn is one slot: a socket and what it is in the middle of. Slots [0, out)
// are the initiated connections; the others are lent to accepted sockets.
type conn struct {
	fd      int32
	id      transport.Conn
	gen     int32 // tells late events of an earlier socket in this slot
	peer    int32 // initiated: index in peers, -1 not assigned
	prev    int32 // among the half-open, -1 none
	next    int32
	state   state
	got     uint8 // bytes of the frame in buf
	watched bool  // in the epoll set
	missed  bool  // something came while the request was with the caller
	asked   bool  // for retransmissions of the set-up
	slow    bool  // the set-up took long enough for some; they are asked for after the storm
	begin   int64 // of what is under way
	mark    int64 // the path answered; half-open: the accept
	due     int64
	buf     [helloFrame]byte // initiated: hello to say, then what is read; accepted: what is read
}

// peer is a distinct address that connections go to.
type peer struct {
	addr     addr
	raw      [addrMax]byte
	rawLen   int
	resolved bool // the kernel's form is prepared, or err says why not
	routed   bool // the route is known, or routeErr says why not
	local    bool // packets to it do not leave this host
	err      error
	routeErr error
}

type peerKey struct {
	raw [addrMax]byte
	n   uint8
}

// resolve prepares the address for the kernel. A link-local peer is reached
// over the interface that this rank itself is bound to, if it is bound to a
// link-local address; else over the one that has the name the peer published.
func (p *peer) resolve(own *addr) error {
	ip, port, zone, err := decodeAddr(p.raw[:p.rawLen])
	if err != nil {
		return err
	}
	if ip.Is4() != own.ip.Is4() {
		return &transport.OpError{Op: "resolve", Provider: name, Remote: ip.String(), Cause: transport.CauseUnreachable, Err: unix.EAFNOSUPPORT}
	}
	if ip.Is6() && ip.IsLinkLocalUnicast() {
		if own.scope != 0 {
			zone = own.ip.Zone()
		}
		ip = ip.WithZone(zone)
	}
	p.addr, err = newAddr(ip, port)
	return err
}

// ring is the queue of events between what happens and Poll. It is as large
// as Poll's batch needs; it grows only if a caller lets it overflow.
type ring struct {
	buf  []transport.Event // a power of two
	head int
	n    int
}

func (r *ring) room() int { return len(r.buf) - r.n }

// push gives the next event's place, to be filled but for Hello, which is zero.
func (r *ring) push() *transport.Event {
	if r.n == len(r.buf) {
		r.grow(max(2*len(r.buf), 64))
	}
	e := &r.buf[(r.head+r.n)&(len(r.buf)-1)]
	r.n++
	return e
}

func (r *ring) grow(size int) {
	if size <= len(r.buf) {
		return
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

// clear forgets what is queued.
func (r *ring) clear() {
	clear(r.buf)
	r.head, r.n = 0, 0
}

func (r *ring) drain(ev []transport.Event) int {
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
