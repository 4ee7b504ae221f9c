package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errForeignSocket says that the host socket's owner is another user.
var errForeignSocket = errors.New("the host socket belongs to another user")

// Machine is the Network of the machine this process runs on.
func Machine() Network { return machine{} }

type machine struct{}

func (machine) Listen(addr netip.AddrPort) (net.Listener, error) {
	return net.Listen("tcp", listenString(addr))
}

func (machine) ListenPacket(addr netip.AddrPort) (net.PacketConn, error) {
	return net.ListenPacket("udp", listenString(addr))
}

// listenString keeps the family of a wildcard: ":7471" would mean both.
func listenString(addr netip.AddrPort) string {
	if !addr.Addr().IsValid() {
		return fmt.Sprintf(":%d", addr.Port())
	}
	return addr.String()
}

func (machine) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	// The links have pings of their own; keep-alives would be a second opinion.
	d := net.Dialer{KeepAlive: -1}
	return d.DialContext(ctx, "tcp", addr.String())
}

func (machine) Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}

func (machine) LocalAddrs() ([]netip.Addr, error) {
	ifaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(ifaces))
	for _, a := range ifaces {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, ip.Unmap())
			}
		}
	}
	return addrs, nil
}

// SourceAddr asks the kernel's routes: connecting a UDP socket sends nothing.
func (machine) SourceAddr(to netip.AddrPort) (netip.Addr, error) {
	if to.Port() == 0 {
		to = netip.AddrPortFrom(to.Addr(), 9)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return addrPortOf(c.LocalAddr()).Addr().Unmap(), nil
}

// hostSocketTries bounds the race between an owner that goes and one that comes.
const hostSocketTries = 20

func (machine) HostSocket(ctx context.Context, name string) (net.Listener, net.Conn, error) {
	addr := &net.UnixAddr{Name: "@" + name, Net: "unix"}
	var d net.Dialer
	for try := 0; ; try++ {
		ln, err := net.ListenUnix("unix", addr)
		if err == nil {
			return sameUser{ln}, nil, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, nil, err
		}
		c, err := d.DialContext(ctx, "unix", addr.Name)
		if err == nil {
			if !peerIsUser(c) {
				c.Close()
				return nil, nil, errForeignSocket
			}
			return nil, c, nil
		}
		if ctx.Err() != nil || try == hostSocketTries || !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, nil, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, nil, err
		}
	}
}

// sameUser takes only connections of this process's user: an abstract socket
// has no file permissions.
type sameUser struct{ *net.UnixListener }

func (l sameUser) Accept() (net.Conn, error) {
	for {
		c, err := l.UnixListener.Accept()
		if err != nil || peerIsUser(c) {
			return c, err
		}
		c.Close()
	}
}

func peerIsUser(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && int(cred.Uid) == os.Getuid()
	})
	return err == nil && same
}

// pause sleeps for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
