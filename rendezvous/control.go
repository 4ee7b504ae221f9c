package rendezvous

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"rankstorm/rank"
)

const (
	portTries  = 64                     // attempts to get TCP and UDP of one number
	refuseWait = 500 * time.Millisecond // for the other end to read why
)

// control is this process's own port: TCP and UDP of the same number, on every
// bind address or the wildcard. Gossip, knocks and control links come in there.
type control struct {
	cfg    *Config
	clock  Clock
	mux    *mux
	udp    net.PacketConn
	own    []netip.AddrPort
	offers chan offer // control links whose hello was read, for await
	quit   chan struct{}
	group  atomic.Pointer[Group] // once the table is known: whom orphans ask
	keys   *keys                 // nil: the job has no secret
	// wrap protects a control link or host socket (TLS); nil: plain. It is
	// called below everything that reads and above what queues writes.
	wrap     func(conn net.Conn, dialer bool) (net.Conn, error)
	knocking *tls.Config // of this process's knocks; nil: plain
}

// offer is a would-be parent.
type offer struct {
	out   *outbox
	conn  net.Conn // out, or what wrap made of it
	r     *bufio.Reader
	hello hello
}

// openControl opens the port. cfg.Network must be set; cfg is kept.
func openControl(cfg *Config) (*control, error) {
	c := &control{cfg: cfg, clock: cfg.Clock, mux: newMux(), offers: make(chan offer, 4), quit: make(chan struct{})}
	if c.clock == nil {
		c.clock = machineClock{}
	}
	var err error
	if len(cfg.Secret) > 0 {
		job := jobHash(cfg.JobKey)
		if c.keys, err = deriveKeys(cfg.Secret, job); err != nil {
			return nil, rank.Errorf(rank.KindInternal, "cannot derive the keys of the job: %w", err)
		}
		c.wrap, c.knocking = c.keys.wrap, c.keys.knocking(job, cfg.JobKey, &cfg.Record)
	}
	var listeners []net.Listener
	for range portTries {
		if listeners, c.udp, err = bindAll(cfg); err == nil || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return nil, rank.Errorf(rank.KindResource, "cannot open the control port: %w; check --interface and --bind", err)
	}
	port := addrPortOf(listeners[0].Addr()).Port()
	if len(cfg.BindAddrs) > 0 {
		for _, a := range cfg.BindAddrs {
			c.own = append(c.own, netip.AddrPortFrom(a, port))
		}
	} else {
		addrs, err := cfg.Network.LocalAddrs()
		if err != nil {
			closeAll(listeners, c.udp)
			return nil, rank.Errorf(rank.KindResource, "cannot list the local addresses: %w", err)
		}
		for _, a := range reachableFirst(addrs) {
			c.own = append(c.own, netip.AddrPortFrom(a, port))
		}
		if len(c.own) == 0 {
			closeAll(listeners, c.udp)
			return nil, rank.Errorf(rank.KindResource, "this host has no address: bring an interface up, for instance ip link set lo up")
		}
	}
	c.handle(kindLink, c.takeOffer)
	for _, ln := range listeners {
		c.serve(ln)
	}
	return c, nil
}

// bindAll makes one attempt: a free TCP port on the first address, the same
// number on the others, and UDP on the first.
func bindAll(cfg *Config) (listeners []net.Listener, udp net.PacketConn, err error) {
	addrs := cfg.BindAddrs
	wildcard := len(addrs) == 0
	if wildcard {
		addrs = []netip.Addr{netip.IPv6Unspecified()}
	}
	first, err := cfg.Network.Listen(netip.AddrPortFrom(addrs[0], 0))
	if err != nil && wildcard { // no IPv6 on this host
		addrs = []netip.Addr{netip.IPv4Unspecified()}
		first, err = cfg.Network.Listen(netip.AddrPortFrom(addrs[0], 0))
	}
	if err != nil {
		return nil, nil, err
	}
	listeners = []net.Listener{first}
	port := addrPortOf(first.Addr()).Port()
	if udp, err = cfg.Network.ListenPacket(netip.AddrPortFrom(addrs[0], port)); err != nil {
		closeAll(listeners, nil)
		return nil, nil, err
	}
	for _, a := range addrs[1:] {
		ln, err := cfg.Network.Listen(netip.AddrPortFrom(a, port))
		if err != nil {
			closeAll(listeners, udp)
			return nil, nil, err
		}
		listeners = append(listeners, ln)
	}
	return listeners, udp, nil
}

// stayHome keeps the port off all interfaces but the loopback if the job is said to be on this host alone: its controller
// is a loopback address, as with --spawn. Every process of such a job finds the same one.
func (j *joiner) stayHome(ctx context.Context) {
	if !j.addr.literal || len(j.cfg.BindAddrs) > 0 || len(j.cfg.Record.Control) > 0 {
		return
	}
	addrs, err := j.cfg.Network.Resolve(ctx, j.addr.host)
	if err != nil || len(addrs) == 0 || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() }) {
		return
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return familyOrder(a) - familyOrder(b) })
	// That of the interface, for 127.0.0.5 it is 127.0.0.1.
	source, err := j.cfg.Network.SourceAddr(netip.AddrPortFrom(addrs[0].Unmap(), j.addr.port))
	if err == nil && source.IsLoopback() {
		j.cfg.BindAddrs = []netip.Addr{source}
	}
}

func closeAll(listeners []net.Listener, udp net.PacketConn) {
	for _, ln := range listeners {
		ln.Close()
	}
	if udp != nil {
		udp.Close()
	}
}

// reachableFirst sorts by how likely others reach it: IPv4, IPv6, loopback.
// Link-local addresses are left out, they mean nothing without an interface.
func reachableFirst(addrs []netip.Addr) []netip.Addr {
	class := func(a netip.Addr) int {
		switch {
		case a.IsLoopback():
			return 2
		case a.Is4():
			return 0
		default:
			return 1
		}
	}
	kept := []netip.Addr{}
	for _, a := range addrs {
		if a = a.Unmap(); !a.IsLinkLocalUnicast() && !a.IsMulticast() && !a.IsUnspecified() {
			kept = append(kept, a)
		}
	}
	slices.SortStableFunc(kept, func(a, b netip.Addr) int { return class(a) - class(b) })
	return kept
}

func addrPortOf(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort()
	case *net.UDPAddr:
		return a.AddrPort()
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return ap
}

// addrs of the port, best first.
func (c *control) addrs() []netip.AddrPort { return slices.Clone(c.own) }

// packet is the UDP side, on the first bind address.
func (c *control) packet() net.PacketConn { return c.udp }

// serve takes streams of ln as well; close closes it.
func (c *control) serve(ln net.Listener) { c.mux.serve(ln) }

// handle sets who gets the streams that begin with kind. The stream belongs to
// f and stands after the first byte; f runs in its own goroutine and close
// waits for it.
func (c *control) handle(kind byte, f func(net.Conn)) { c.mux.handle(kind, f) }

func (c *control) wrapped(conn net.Conn, dialer bool) (net.Conn, error) {
	if c.wrap == nil {
		return conn, nil
	}
	return c.wrap(conn, dialer)
}

// dial opens a stream of a kind to another process's port. Knock streams come
// back protected if the job is; control links are wrapped by the caller, above
// its outbox. An error that is a *rank.Error is final, others may pass.
func (c *control) dial(ctx context.Context, kind byte, to netip.AddrPort) (net.Conn, error) {
	conn, err := c.cfg.Network.Dial(ctx, to)
	if err != nil {
		c.mux.tellScarce(err)
		return nil, err
	}
	// A new stream takes one byte at once, so this needs no deadline.
	if _, err = conn.Write([]byte{kind}); err == nil {
		if kind != kindKnock || c.knocking == nil {
			return conn, nil
		}
		if deadline, ok := ctx.Deadline(); ok {
			conn.SetDeadline(deadline)
		}
		var protected net.Conn
		if protected, err = knockOver(conn, c.knocking, to); err == nil {
			conn.SetDeadline(time.Time{})
			return protected, nil
		}
	}
	conn.Close()
	return nil, err
}

// takeOffer reads the hello of a control link and leaves the link to await.
func (c *control) takeOffer(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(helloTimeout))
	o := offer{out: newOutbox(conn)}
	var orphan *orphanHello
	err := func() (err error) {
		if o.conn, err = c.wrapped(o.out, false); err != nil {
			return err
		}
		o.r = bufio.NewReaderSize(o.conn, readBuffer)
		kind, body, err := readBody(o.r, helloLimit, frameHello, frameOrphan)
		if err != nil {
			return err
		}
		if kind == frameOrphan {
			orphan = &orphanHello{}
			return decode(body, orphan)
		}
		return decode(body, &o.hello)
	}()
	if !c.mux.settle(conn) || err != nil {
		o.out.Close()
		return
	}
	conn.SetReadDeadline(time.Time{})
	if orphan != nil {
		c.takeOrphan(o, *orphan)
		return
	}
	wait := time.NewTimer(firstByteTimeout)
	defer wait.Stop()
	select {
	case c.offers <- o:
	case <-c.quit:
		o.out.Close()
	case <-wait.C: // nobody waits for a parent here
		o.refuse("this process is not waiting for a rank table")
	}
}

func (o offer) refuse(format string, args ...any) {
	// Whoever does not listen is cut off below.
	_ = writeFrame(o.conn, frameRefuse, fmt.Appendf(nil, format, args...))
	_ = o.out.flush(refuseWait)
	// Closing with something unread would reset the stream and take the text along.
	o.conn.SetReadDeadline(time.Now().Add(refuseWait))
	_, _ = io.Copy(io.Discard, o.conn)
	o.out.Close()
}

// close ends the port: listeners, UDP and links nobody took. Call it once.
func (c *control) close() {
	close(c.quit)
	c.udp.Close()
	c.mux.close()
	for {
		select {
		case o := <-c.offers:
			o.out.Close()
		default:
			return
		}
	}
}
