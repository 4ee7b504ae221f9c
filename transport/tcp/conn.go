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
