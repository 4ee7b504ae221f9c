package rendezvous

import (
	"context"
	"net"
	"net/netip"
	"time"

	"rankstorm/rank"
)

// Network is where sockets come from: the real one, or memnet in a bubble.
type Network interface {
	// Listen on a TCP address (port 0: any).
	Listen(addr netip.AddrPort) (net.Listener, error)
	// ListenPacket on a UDP address, for gossip.
	ListenPacket(addr netip.AddrPort) (net.PacketConn, error)
	Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
	// Resolve a host name; a failure may be temporary.
	Resolve(ctx context.Context, host string) ([]netip.Addr, error)
	// LocalAddrs of this host (getifaddrs).
	LocalAddrs() ([]netip.Addr, error)
	// SourceAddr is the local address from which to is reached.
	SourceAddr(to netip.AddrPort) (netip.Addr, error)
	// HostSocket binds (or, if it is taken, dials) the host-wide socket of that name. Exactly one of the two is returned.
	HostSocket(ctx context.Context, name string) (net.Listener, net.Conn, error)
}

// Clock gives monotonic ns; transport.Clock fits.
type Clock interface {
	Now() int64
}

// Config of Join. Zero values are the documented defaults.
type Config struct {
	Network    Network // nil: the machine's
	Clock      Clock
	Controller string       // host, host:port, [v6]:port
	Port       int          // used when Controller names none; default 7471
	Procs      int          // P ≥ 1
	K          int          // ranks per process, ≥ 1
	JobKey     string       // what the job calls itself; everybody must say the same
	Secret     []byte       // protects gossip, control links and data connections; everybody must have the same; empty: an open job
	Record     rank.Record  // Nonce, Control and BuildID are filled in by Join if empty
	Settings   []rank.KV    // job-wide, sorted by key; compared by the knock
	BindAddrs  []netip.Addr // local addresses for the control link and gossip; empty: the loopback of a loopback controller, else all
	// Listener and Packet are inherited sockets on the controller port (--spawn); the process that has them is the controller.
	Listener net.Listener
	Packet   net.PacketConn

	// Lead makes the controller's process number 0, and with it the root, wherever its host stands in the order. It counts
	// at the controller.
	Lead bool

	JoinTimeout     time.Duration // default 60 s
	LivenessTimeout time.Duration // default 10 s
	TreeArity       int           // default 16
	ProcsPerAgent   int           // default 64
	AgentsAbove     int           // processes above which one agent per host gossips; default 16

	// Launch is what the launcher said, for messages about who is missing; the zero value says nothing.
	Launch Launch

	// Notice tells the user something while gathering (who is missing, retries); may be nil. Called from one goroutine.
	Notice func(text string)
}

// EventKind of a Group event.
type EventKind uint8

// Events of a group.
const (
	FromParent EventKind = iota + 1 // Payload came down
	FromChild                       // Payload came up from Proc
	ChildLost                       // the link to child Proc is gone: Err
	ParentLost                      // the link to the parent (Proc) is gone: Err
	Suspected                       // gossip thinks that Proc is dead; a hint, to be confirmed
	Refused                         // the controller refused a late process: Err, for display only
	Orphan                          // Proc has lost its parent and asks for this one, with Payload: Adopt it or TurnAway
	Attached                        // after Reattach: Proc is the parent now
	Successor                       // after Reattach: nobody with a lower number answers (Procs); this process is the root now
	GivenUp                         // after Reattach: there is no way to the root: Err
)

// Event of a group. Payload belongs to the receiver.
type Event struct {
	Kind    EventKind
	Proc    rank.Proc
	Procs   []rank.Proc // Successor
	Payload []byte
	At      int64 // Clock.Now when it was read from the link
	Err     error
}

// Stats of gathering and gossip, for the document.
type Stats struct {
	Members     int // gossip members
	Agents      int // of them agents of several processes
	Suspicions  int
	Refutations int
	GatherNS    int64 // own start of Join → table known
	SealNS      int64 // table known here → everybody acknowledged
	Controller  string
	Root        bool
}
