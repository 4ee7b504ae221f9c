package rendezvous

import (
	"context"
	"net"
	"net/netip"
)

// zoned is a Network whose link-local peers are all on one link: the one on
// which this host reaches the controller. A zone is the name of an interface
// of this host, so that of a peer's record means nothing here.
type zoned struct {
	Network
	zone string
}

func (z zoned) Dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	if linkLocal(addr.Addr()) {
		addr = netip.AddrPortFrom(addr.Addr().WithZone(z.zone), addr.Port())
	}
	return z.Network.Dial(ctx, addr)
}

func (z zoned) ListenPacket(addr netip.AddrPort) (net.PacketConn, error) {
	pc, err := z.Network.ListenPacket(addr)
	if err != nil {
		return nil, err
	}
	return zonedPacket{pc, z.zone}, nil
}

type zonedPacket struct {
	net.PacketConn
	zone string
}

func (p zonedPacket) WriteTo(b []byte, to net.Addr) (int, error) {
	if a := addrPortOf(to); linkLocal(a.Addr()) {
		to = net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.Addr().WithZone(p.zone), a.Port()))
	}
	return p.PacketConn.WriteTo(b, to)
}

// linkLocal says that an address needs a zone.
func linkLocal(a netip.Addr) bool { return a.Is6() && !a.Is4In6() && a.IsLinkLocalUnicast() }

// zoneOK says that a zone from another process is harmless: it is printed.
func zoneOK(zone string) bool {
	const most = 15 // an interface's name
	if len(zone) > most {
		return false
	}
	for _, c := range []byte(zone) {
		if c <= ' ' || c >= 0x7f || c == '/' || c == '%' {
			return false
		}
	}
	return true
}
