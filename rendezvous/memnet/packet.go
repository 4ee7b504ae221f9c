package memnet

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// inbox is how many packets a socket holds before it drops more.
const inbox = 4096

type packet struct {
	data []byte
	from net.Addr
}

// packetConn is a packet socket.
type packetConn struct {
	proc *Proc
	addr netip.AddrPort
	once sync.Once
	rd   deadline

	mu      sync.Mutex
	queue   []packet
	closed  bool
	changed chan struct{} // closed and replaced at every change
}

// ListenPacket on a packet address; port 0 takes a free one.
func (p *Proc) ListenPacket(addr netip.AddrPort) (net.PacketConn, error) {
	h := p.host
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	addr, err := bind(h, h.packets, addr, "udp")
	if err != nil {
		return nil, err
	}
	c := &packetConn{proc: p, addr: addr, changed: make(chan struct{})}
	if !p.add(c) {
		return nil, dialError("udp", c.LocalAddr(), net.ErrClosed)
	}
	h.packets[addr] = c
	return c, nil
}

func (c *packetConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.addr) }

// touch wakes the readers. c.mu is held.
func (c *packetConn) touch() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		c.proc.run()
		late, dl := c.rd.get()
		c.mu.Lock()
		switch {
		case c.closed:
			c.mu.Unlock()
			return 0, nil, &net.OpError{Op: "read", Net: "udp", Source: c.LocalAddr(), Err: net.ErrClosed}
		case late:
			c.mu.Unlock()
			return 0, nil, &net.OpError{Op: "read", Net: "udp", Source: c.LocalAddr(), Err: os.ErrDeadlineExceeded}
		case len(c.queue) > 0:
			p := c.queue[0]
			c.queue = c.queue[1:]
			c.mu.Unlock()
			return copy(b, p.data), p.from, nil
		}
		changed := c.changed
		c.mu.Unlock()
		await(0, changed, nil, dl)
	}
}

// WriteTo sends a packet; like UDP it says nothing of one that is lost.
func (c *packetConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.proc.run()
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return 0, &net.OpError{Op: "write", Net: "udp", Source: c.LocalAddr(), Addr: to, Err: net.ErrClosed}
	}
	udp, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, &net.OpError{Op: "write", Net: "udp", Source: c.LocalAddr(), Addr: to, Err: net.UnknownNetworkError(to.Network())}
	}
	dst := udp.AddrPort()
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	h, n := c.proc.host, c.proc.host.net

	n.mu.Lock()
	target := n.addrs[dst.Addr()]
	if h.owns(dst.Addr()) {
		target = h
	}
	if target == nil || !n.upLocked(h, target) || n.lost(h, target) {
		n.mu.Unlock()
		return len(b), nil
	}
	from := c.addr
	if from.Addr().IsUnspecified() {
		from = netip.AddrPortFrom(h.sourceLocked(dst.Addr()), from.Port())
	}
	n.mu.Unlock()

	p := packet{data: append([]byte(nil), b...), from: net.UDPAddrFromAddrPort(from)}
	arrive := func() {
		n.mu.Lock()
		peer, ok := find(target.packets, dst)
		ok = ok && n.upLocked(h, target)
		n.mu.Unlock()
		if ok {
			peer.put(p)
		}
	}
	if d := n.delay(h, target); d > 0 {
		time.AfterFunc(d, arrive)
	} else {
		arrive()
	}
	return len(b), nil
}

func (c *packetConn) put(p packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && len(c.queue) < inbox {
		c.queue = append(c.queue, p)
		c.touch()
	}
}

func (c *packetConn) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.queue = nil
		c.touch()
		c.mu.Unlock()
		c.rd.stop()
		h := c.proc.host
		h.net.mu.Lock()
		delete(h.packets, c.addr)
		h.net.mu.Unlock()
		c.proc.remove(c)
	})
	return nil
}

func (c *packetConn) SetDeadline(t time.Time) error {
	c.rd.set(t)
	return nil
}

func (c *packetConn) SetReadDeadline(t time.Time) error {
	c.rd.set(t)
	return nil
}

// SetWriteDeadline does nothing: writing never waits.
func (c *packetConn) SetWriteDeadline(time.Time) error { return nil }
