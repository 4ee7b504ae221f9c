package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// parseAddr takes "ip", "ip:port", "ip%zone" and "[ip%zone]:port".
func parseAddr(s string) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPort{}, errors.New("is empty")
	}
	if ip, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), 0), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, errors.New("is no IP address (names are not looked up here)")
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// sockaddr puts an address into the kernel's form.
func sockaddr(a netip.AddrPort) (verbs.Sockaddr, error) {
	scope := uint32(0)
	if ip := a.Addr(); ip.Is6() && ip.IsLinkLocalUnicast() {
		if ip.Zone() == "" {
			return verbs.Sockaddr{}, errors.New("is link-local: say on which interface, as in fe80::1%eth0")
		}
		n, err := strconv.ParseUint(ip.Zone(), 10, 31)
		if err != nil {
			ifi, err := net.InterfaceByName(ip.Zone())
			if err != nil {
				return verbs.Sockaddr{}, fmt.Errorf("has a zone %q that is no interface of this machine", ip.Zone())
			}
			n = uint64(ifi.Index)
		}
		scope = uint32(n)
	}
	return verbs.NewSockaddr(a.Addr(), a.Port(), scope), nil
}

// The published form: "RM", version, family (4 or 6), port (big endian), the
// address. A zone is not published: whoever connects to a link-local address
// reaches it over the interface that it is bound to itself.
const (
	addrVersion = 1
	addrFixed   = 6
)

func encodeAddr(a netip.AddrPort) transport.Address {
	family := byte(6)
	if a.Addr().Is4() {
		family = 4
	}
	b := []byte{'R', 'M', addrVersion, family, 0, 0}
	binary.BigEndian.PutUint16(b[4:], a.Port())
	return append(b, a.Addr().WithZone("").AsSlice()...)
}

// decodeAddr checks everything that a foreign rank could get wrong.
func decodeAddr(b []byte) (netip.AddrPort, error) {
	bad := func(what string) (netip.AddrPort, error) {
		return netip.AddrPort{}, misuse("address", "published address of %d bytes: %s", len(b), what)
	}
	if len(b) < addrFixed || b[0] != 'R' || b[1] != 'M' {
		return bad("not one of this provider")
	}
	if b[2] != addrVersion {
		return bad(fmt.Sprintf("version %d, this build speaks %d", b[2], addrVersion))
	}
	ip, ok := netip.AddrFromSlice(b[addrFixed:])
	port := binary.BigEndian.Uint16(b[4:])
	switch {
	case !ok || ip.Is4() != (b[3] == 4) || ip.Is6() != (b[3] == 6):
		return bad("wrong length")
	case ip.Is4In6():
		return bad("an IPv4 address in IPv6 form")
	case ip.IsUnspecified() || ip.IsMulticast():
		return bad("not an address of one rank")
	case port == 0:
		return bad("no port")
	}
	return netip.AddrPortFrom(ip, port), nil
}
