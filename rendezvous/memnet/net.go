package memnet

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Config of a network. The zero value has no delay and no loss.
type Config struct {
	Seed    uint64        // of jitter and loss
	Latency time.Duration // one way, between different hosts; within a host it is 0
	Jitter  time.Duration // up to this much is added to Latency
	Loss    float64       // share of packets between different hosts that is lost, 0 … 1; streams lose nothing
}

// Net is a set of hosts that reach each other. Safe for concurrent use.
type Net struct {
	cfg Config

	mu    sync.Mutex
	rng   *rand.Rand
	hosts map[string]*Host
	addrs map[netip.Addr]*Host
	names map[string][]netip.Addr
	cuts  map[[2]*Host]bool
	// moved is closed and replaced whenever a link is cut or healed, or a host killed.
	moved chan struct{}
}

// New makes an empty network.
func New(cfg Config) *Net {
	return &Net{
		cfg:   cfg,
		rng:   rand.New(rand.NewPCG(cfg.Seed, 0x6d656d6e6574)),
		hosts: make(map[string]*Host),
		addrs: make(map[netip.Addr]*Host),
		names: make(map[string][]netip.Addr),
		cuts:  make(map[[2]*Host]bool),
		moved: make(chan struct{}),
	}
}

// Host is one machine.
type Host struct {
	net   *Net
	name  string
	addrs []netip.Addr

	// Guarded by net.mu.
	dead      bool
	nextPort  uint16
	listeners map[netip.AddrPort]*listener
	packets   map[netip.AddrPort]*packetConn
	sockets   map[string]*listener
	procs     []*Proc
}

// AddHost adds a machine with these addresses (besides the loopback ones); its
// name resolves to them from now on. A name or address that is taken already
// is taken over.
func (n *Net) AddHost(name string, addrs ...netip.Addr) *Host {
	h := &Host{
		net: n, name: name, addrs: addrs, nextPort: 32768,
		listeners: make(map[netip.AddrPort]*listener),
		packets:   make(map[netip.AddrPort]*packetConn),
		sockets:   make(map[string]*listener),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = h
	for _, a := range addrs {
		n.addrs[a] = h
	}
	n.names[name] = addrs
	return h
}

// Name gives a name to addresses, or, without any, takes it away: it does not
// resolve any more.
func (n *Net) Name(name string, addrs ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(addrs) == 0 {
		delete(n.names, name)
		return
	}
	n.names[name] = addrs
}

// Cut silences the link between two hosts, in both directions: packets are
// lost, streams stand still.
func (n *Net) Cut(a, b *Host) { n.setCut(a, b, true) }

// Heal ends Cut.
func (n *Net) Heal(a, b *Host) { n.setCut(a, b, false) }

// Sever cuts the link between two hosts so that both notice: every stream
// between them fails at once, and nothing passes any more.
func (n *Net) Sever(a, b *Host) {
	n.mu.Lock()
	type end struct {
		procs []*Proc
		peer  *Host
	}
	ends := []end{{a.procs, b}, {b.procs, a}}
	n.mu.Unlock()
	for _, e := range ends {
		for _, p := range e.procs {
			p.mu.Lock()
			var broken []io.Closer
			for c := range p.open {
				if c, ok := c.(*conn); ok && c.peer == e.peer {
					broken = append(broken, c)
				}
			}
			p.mu.Unlock()
			for _, c := range broken {
				c.Close()
			}
		}
	}
	n.Cut(a, b)
}

func (n *Net) setCut(a, b *Host, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cut {
		n.cuts[[2]*Host{a, b}], n.cuts[[2]*Host{b, a}] = true, true
	} else {
		delete(n.cuts, [2]*Host{a, b})
		delete(n.cuts, [2]*Host{b, a})
	}
	n.stir()
}

// stir wakes everybody who waits for a link. n.mu is held.
func (n *Net) stir() {
	close(n.moved)
	n.moved = make(chan struct{})
}

// link says whether data passes between two hosts now, and gives a channel
// that closes when that may have changed.
func (n *Net) link(a, b *Host) (up bool, moved <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.upLocked(a, b), n.moved
}

func (n *Net) upLocked(a, b *Host) bool {
	return a == b && !a.dead || !a.dead && !b.dead && !n.cuts[[2]*Host{a, b}]
}

// delay draws the one-way delay between two hosts.
func (n *Net) delay(a, b *Host) time.Duration {
	if a == b {
		return 0
	}
	d := n.cfg.Latency
	if n.cfg.Jitter > 0 {
		n.mu.Lock()
		d += time.Duration(n.rng.Int64N(int64(n.cfg.Jitter) + 1))
		n.mu.Unlock()
	}
	return d
}

// lost draws whether a packet is lost. n.mu is held.
func (n *Net) lost(a, b *Host) bool {
	return a != b && n.cfg.Loss > 0 && n.rng.Float64() < n.cfg.Loss
}

// Kill is a power cut: the host's own sockets fail at once, and nobody else
// hears anything of it.
func (h *Host) Kill() {
	n := h.net
	n.mu.Lock()
	h.dead = true
	procs := h.procs
	n.stir()
	n.mu.Unlock()
	for _, p := range procs {
		p.Kill()
	}
}

// String is the host's name.
func (h *Host) String() string { return h.name }

// owns says whether an address is the host's own.
func (h *Host) owns(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(h.addrs, a)
}

// find looks the bound address up that takes what is sent to addr.
func find[T any](bound map[netip.AddrPort]T, addr netip.AddrPort) (T, bool) {
	for _, a := range []netip.Addr{addr.Addr(), unspecified(addr.Addr()), netip.IPv6Unspecified()} {
		if t, ok := bound[netip.AddrPortFrom(a, addr.Port())]; ok {
			return t, true
		}
	}
	var none T
	return none, false
}

// clash says whether binding addr conflicts with what is bound.
func clash[T any](bound map[netip.AddrPort]T, addr netip.AddrPort) bool {
	for a := range bound {
		if a.Port() == addr.Port() && (a.Addr() == addr.Addr() || a.Addr().IsUnspecified() || addr.Addr().IsUnspecified()) {
			return true
		}
	}
	return false
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// bind chooses the address to bind, with an ephemeral port if none is asked
// for. net.mu is held.
func bind[T any](h *Host, bound map[netip.AddrPort]T, addr netip.AddrPort, network string) (netip.AddrPort, error) {
	fail := func(errno syscall.Errno) (netip.AddrPort, error) {
		return addr, &net.OpError{Op: "listen", Net: network, Addr: net.TCPAddrFromAddrPort(addr), Err: os.NewSyscallError("bind", errno)}
	}
	if h.dead {
		return fail(syscall.ENETDOWN)
	}
	if !addr.Addr().IsValid() {
		addr = netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port())
	}
	if !addr.Addr().IsUnspecified() && !h.owns(addr.Addr()) {
		return fail(syscall.EADDRNOTAVAIL)
	}
	if addr.Port() != 0 {
		if clash(bound, addr) {
			return fail(syscall.EADDRINUSE)
		}
		return addr, nil
	}
	for range 1 << 15 {
		a := netip.AddrPortFrom(addr.Addr(), h.ephemeral())
		if !clash(bound, a) {
			return a, nil
		}
	}
	return fail(syscall.EADDRINUSE)
}

// ephemeral gives the next port of 32768 … 65535. net.mu is held.
func (h *Host) ephemeral() uint16 {
	p := h.nextPort
	h.nextPort++
	if h.nextPort == 0 {
		h.nextPort = 32768
	}
	return p
}

func dialError(network string, to net.Addr, err error) error {
	return &net.OpError{Op: "dial", Net: network, Addr: to, Err: err}
}

// noHost is what resolving an unknown name gives.
func noHost(name string) error {
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

// unixAddr names a host-wide socket.
func unixAddr(name string) net.Addr {
	return &net.UnixAddr{Name: fmt.Sprintf("@%s", name), Net: "unix"}
}
