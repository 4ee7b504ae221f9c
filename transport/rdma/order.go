package rdma

import "rankstorm/transport/rdma/internal/verbs"

// state of one connection.
//
//	initiator: none → created → bound → address → resolved → route → routed → paired → fetched → ready
//	           → connecting → responded → live ⇄ probing → closing → shut → none
//	target:    none → requested → serving → shut → none
//
// Without queue pairs routed is followed by connecting. From each but none a
// failure leads to dead; gone is live or probing after the peer went away.
// Only destroy leads back to none.
type state uint8

const (
	stNone       state = iota
	stCreated          // has an identifier
	stBound            // to a local address and its device
	stAddress          // rdma_resolve_addr is under way
	stResolved         // the address is known
	stRoute            // rdma_resolve_route is under way
	stRouted           // the route is known
	stPaired           // has a queue pair
	stFetched          // has the attributes of INIT
	stReady            // its queue pair is in INIT
	stConnecting       // the request is out
	stResponded        // the target has answered, the queue pair is about to be moved
	stLive             // established
	stProbing          // ping sent
	stClosing          // rdma_disconnect called, the peer's side still open
	stGone             // the peer's end seen before ours
	stRequested        // target: the caller has not answered yet
	stServing          // target: accepted
	stShut             // closed both ways
	stDead             // failed, rejected or abandoned
	stCount
)

var stateNames = [stCount]string{
	"none", "created", "bound", "address", "resolved", "route", "routed", "paired", "fetched", "ready", "connecting",
	"responded", "live", "probing", "closing", "gone", "requested", "serving", "shut", "dead",
}

func (s state) String() string {
	if s < stCount {
		return stateNames[s]
	}
	return "unknown"
}

// move is what an event of the connection manager does to a connection.
type move uint8

const (
	ignore        move = iota
	addressKnown       // the address is resolved
	addressFailed      // not this time: again, or failed
	routeKnown
	routeFailed
	answered   // the target accepts: move the queue pair, establish
	up         // established at once, as iWARP does
	refused    // the connect has failed
	closedHere // the peer has answered our disconnect
	closeLost  // it never did
	peerCloses // target: the initiator disconnects
	peerGone   // the other side went away on its own
	failsProbe // the same while a probe is under way
	missed     // target: the request was given up before it was answered
	moves
)

var moveNames = [moves]string{
	"ignore", "address known", "address failed", "route known", "route failed", "answered", "up", "refused", "closed here",
	"close lost", "peer closes", "peer gone", "fails probe", "missed",
}

func (m move) String() string {
	if m < moves {
		return moveNames[m]
	}
	return "unknown"
}

// decide is the order of events: what an event means in a state. Whatever
// comes late, twice or out of turn is ignored here, so that the caller sees at
// most one end per step.
func decide(s state, kind verbs.EventKind, status int32) move {
	switch kind {
	case verbs.AddrResolved:
		if s == stAddress {
			return addressKnown
		}
	case verbs.AddrError:
		if s == stAddress {
			return addressFailed
		}
	case verbs.RouteResolved:
		if s == stRoute {
			return routeKnown
		}
	case verbs.RouteError:
		if s == stRoute {
			return routeFailed
		}
	case verbs.ConnectResponse:
		if s == stConnecting {
			return answered
		}
	case verbs.Established:
		// A target is established when its caller has accepted: the event only says that the initiator knows.
		if s == stConnecting {
			return up
		}
	case verbs.Rejected, verbs.Unreachable, verbs.ConnectError:
		return ended(s, refused, closeLost)
	case verbs.Disconnected:
		if s == stClosing && status == 0 {
			return closedHere
		}
		if s == stServing {
			return peerCloses
		}
		return ended(s, refused, closeLost)
	case verbs.DeviceRemoval:
		switch s {
		case stAddress:
			return addressFailed
		case stRoute:
			return routeFailed
		case stRequested:
			return missed
		}
		return ended(s, refused, closeLost)
	}
	return ignore
}

// ended is what the end of a connection means where it was not asked for.
func ended(s state, connecting, closing move) move {
	switch s {
	case stConnecting, stResponded:
		return connecting
	case stLive, stServing:
		return peerGone
	case stProbing:
		return failsProbe
	case stClosing:
		return closing
	}
	return ignore
}
