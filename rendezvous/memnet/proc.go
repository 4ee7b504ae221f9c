package memnet

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// unreachableAfter is how long a dial to an address that nobody has takes to
// fail, as on a LAN where ARP goes unanswered.
const unreachableAfter = 3 * time.Second

// Proc is one process on a host: the view of the network whose sockets close
// together when the process is killed. It has the methods of
// rendezvous.Network and is safe for concurrent use.
type Proc struct {
	host *Host

	mu     sync.Mutex
	killed bool
	halt   chan struct{} // not nil: stopped; closed when it goes on
	open   map[io.Closer]struct{}
}

// Proc starts a process on the host.
func (h *Host) Proc() *Proc {
	p := &Proc{host: h, open: make(map[io.Closer]struct{})}
	h.net.mu.Lock()
	h.procs = append(h.procs, p)
	h.net.mu.Unlock()
	return p
}

// Host of the process.
func (p *Proc) Host() *Host { return p.host }

// Kill closes all sockets of the process, as the kernel does when it dies; its
// later calls fail.
func (p *Proc) Kill() {
	p.mu.Lock()
	p.killed = true
	p.goOn()
	open := make([]io.Closer, 0, len(p.open))
	for c := range p.open {
		open = append(open, c)
	}
	p.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// Stop is SIGSTOP: the process's own calls stand still, while its kernel goes
// on taking streams and data. Its goroutines run on until they call: a clock
// that stands still as well has to be the caller's.
func (p *Proc) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halt == nil && !p.killed {
		p.halt = make(chan struct{})
	}
}

// Continue ends Stop.
func (p *Proc) Continue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goOn()
}

func (p *Proc) goOn() {
	if p.halt != nil {
		close(p.halt)
		p.halt = nil
	}
}

// run returns while the process is not stopped.
func (p *Proc) run() {
	for {
		p.mu.Lock()
		halt := p.halt
		p.mu.Unlock()
		if halt == nil {
			return
		}
		<-halt
	}
}

// Open counts the sockets that are not closed yet.
func (p *Proc) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

func (p *Proc) add(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *Proc) remove(c io.Closer) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

func (p *Proc) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// Listen on a stream address; port 0 takes a free one.
func (p *Proc) Listen(addr netip.AddrPort) (net.Listener, error) {
	h := p.host
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	addr, err := bind(h, h.listeners, addr, "tcp")
	if err != nil {
		return nil, err
	}
	l := newListener(p, net.TCPAddrFromAddrPort(addr))
	l.forget = func() {
		h.net.mu.Lock()
		delete(h.listeners, addr)
		h.net.mu.Unlock()
	}
	if !p.add(l) {
		return nil, dialError("tcp", l.Addr(), net.ErrClosed)
	}
	h.listeners[addr] = l
	return l, nil
}

// Dial a stream address. It takes one round trip.
func (p *Proc) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	h, n := p.host, p.host.net
	to := net.TCPAddrFromAddrPort(addr)
	p.run()
	if p.dead() {
		return nil, dialError("tcp", to, net.ErrClosed)
	}
	n.mu.Lock()
	target := n.addrs[addr.Addr()]
	if h.owns(addr.Addr()) {
		target = h
	}
	local := netip.AddrPortFrom(h.sourceLocked(addr.Addr()), h.ephemeral())
	n.mu.Unlock()
	if target == nil {
		if err := sleep(ctx, unreachableAfter); err != nil {
			return nil, dialError("tcp", to, err)
		}
		return nil, dialError("tcp", to, os.NewSyscallError("connect", syscall.EHOSTUNREACH))
	}
	for { // a SYN over a silent link waits for it
		up, moved := n.link(h, target)
		if up {
			break
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, dialError("tcp", to, ctx.Err())
		}
	}
	if err := sleep(ctx, n.delay(h, target)); err != nil {
		return nil, dialError("tcp", to, err)
	}
	n.mu.Lock()
	l, ok := find(target.listeners, addr)
	n.mu.Unlock()
	var c *conn
	if ok {
		c = l.connect(p, net.TCPAddrFromAddrPort(local), to)
	}
	if err := sleep(ctx, n.delay(target, h)); err != nil {
		if c != nil {
			c.Close()
		}
		return nil, dialError("tcp", to, err)
	}
	if c == nil {
		return nil, dialError("tcp", to, os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	return c, nil
}

// Resolve a host's name, one given with Net.Name, or a literal address.
func (p *Proc) Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if addrs, ok := n.names[host]; ok {
		return append([]netip.Addr(nil), addrs...), nil
	}
	return nil, noHost(host)
}

// LocalAddrs of the host, loopback first.
func (p *Proc) LocalAddrs() ([]netip.Addr, error) {
	return append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, p.host.addrs...), nil
}

// SourceAddr is the local address from which to is reached.
func (p *Proc) SourceAddr(to netip.AddrPort) (netip.Addr, error) {
	h := p.host
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.sourceLocked(to.Addr()), nil
}

func (h *Host) sourceLocked(to netip.Addr) netip.Addr {
	if h.owns(to) {
		return to
	}
	for _, a := range h.addrs {
		if a.Is4() == to.Is4() {
			return a
		}
	}
	return unspecified(to)
}

// HostSocket binds the host-wide socket of that name or, if another process of
// the host has it, dials that.
func (p *Proc) HostSocket(ctx context.Context, name string) (net.Listener, net.Conn, error) {
	h := p.host
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if l, ok := h.sockets[name]; ok {
		if c := l.connect(p, unixAddr(""), l.Addr()); c != nil {
			return nil, c, nil
		}
		return nil, nil, dialError("unix", l.Addr(), os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	l := newListener(p, unixAddr(name))
	l.forget = func() {
		h.net.mu.Lock()
		delete(h.sockets, name)
		h.net.mu.Unlock()
	}
	if !p.add(l) {
		return nil, nil, dialError("unix", l.Addr(), net.ErrClosed)
	}
	h.sockets[name] = l
	return l, nil, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
