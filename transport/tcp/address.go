package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

// addr is a numeric address in the two forms that are needed: to print and,
// prepared, for the kernel.
type addr struct {
	ip    netip.Addr // unmapped
	port  uint16
	scope uint32 // interface index of a link-local address
	sa4   unix.SockaddrInet4
	sa6   unix.SockaddrInet6
}

// parseAddr takes "ip", "ip:port", "[ip%zone]:port" and "ip%zone".
func parseAddr(s string) (addr, error) {
	if s == "" {
		return addr{}, errors.New("is empty")
	}
	var port uint16
	ip, err := netip.ParseAddr(s)
	if err != nil {
		ap, err2 := netip.ParseAddrPort(s)
		if err2 != nil {
			return addr{}, errors.New("is no IP address (names are not looked up here)")
		}
		ip, port = ap.Addr(), ap.Port()
	}
	return newAddr(ip, port)
}

func newAddr(ip netip.Addr, port uint16) (addr, error) {
	a := addr{ip: ip.Unmap(), port: port}
	if a.ip.Is6() && a.ip.IsLinkLocalUnicast() {
		if a.ip.Zone() == "" {
			return addr{}, errors.New("is link-local: say on which interface, as in fe80::1%eth0")
		}
		scope, err := interfaceIndex(a.ip.Zone())
		if err != nil {
			return addr{}, err
		}
		a.scope = scope
	}
	a.prepare()
	return a, nil
}

func (a *addr) prepare() {
	if a.ip.Is4() {
		a.sa4 = unix.SockaddrInet4{Addr: a.ip.As4(), Port: int(a.port)}
		return
	}
	a.sa6 = unix.SockaddrInet6{Addr: a.ip.As16(), Port: int(a.port), ZoneId: a.scope}
}

func (a *addr) setPort(p uint16) {
	a.port = p
	a.sa4.Port, a.sa6.Port = int(p), int(p)
}

func (a *addr) domain() int {
	if a.ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (a *addr) sockaddr() unix.Sockaddr {
	if a.ip.Is4() {
		return &a.sa4
	}
	return &a.sa6
}

func (a *addr) wildcard() addr {
	w := addr{ip: netip.IPv6Unspecified()}
	if a.ip.Is4() {
		w.ip = netip.IPv4Unspecified()
	}
	w.prepare()
	return w
}

func (a *addr) String() string { return netip.AddrPortFrom(a.ip, a.port).String() }

// interfaceIndex finds a zone's interface; a zone may also be the number itself.
func interfaceIndex(zone string) (uint32, error) {
	if n, err := strconv.ParseUint(zone, 10, 31); err == nil && n > 0 {
		return uint32(n), nil
	}
	req, err := unix.NewIfreq(zone)
	if err != nil {
		return 0, fmt.Errorf("has a zone %q that is no interface name", zone)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, opError("socket", nil, nil, err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, fmt.Errorf("has a zone %q that is no interface of this machine", zone)
	}
	return req.Uint32(), nil
}

// The published form: version, family (4 or 6), port (big endian), 16 bytes of
// address, then the zone's name if the address is link-local. The zone is the
// name at the publisher: a peer uses it only if it has no better (see peer).
const (
	addrVersion = 1
	addrFixed   = 4 + 16
	zoneMax     = unix.IFNAMSIZ - 1
	addrMax     = addrFixed + zoneMax
)

func (a *addr) encode() transport.Address {
	b := make([]byte, addrFixed, addrMax)
	b[0], b[1] = addrVersion, 6
	binary.BigEndian.PutUint16(b[2:], a.port)
	if a.ip.Is4() {
		b[1] = 4
		ip := a.ip.As4()
		copy(b[4:], ip[:])
	} else {
		ip := a.ip.As16()
		copy(b[4:], ip[:])
	}
	return append(b, a.ip.Zone()...)
}

// decodeAddr checks everything that a foreign rank could get wrong; zone is
// the publisher's.
func decodeAddr(b []byte) (ip netip.Addr, port uint16, zone string, err error) {
	bad := func(what string) (netip.Addr, uint16, string, error) {
		return netip.Addr{}, 0, "", misuse("address", "published address of %d bytes: %s", len(b), what)
	}
	if len(b) < addrFixed || len(b) > addrMax {
		return bad("wrong length")
	}
	if b[0] != addrVersion {
		return bad(fmt.Sprintf("version %d, this build speaks %d", b[0], addrVersion))
	}
	port = binary.BigEndian.Uint16(b[2:])
	if port == 0 {
		return bad("no port")
	}
	switch b[1] {
	case 4:
		ip = netip.AddrFrom4([4]byte(b[4:8]))
		if [12]byte(b[8:20]) != [12]byte{} || len(b) != addrFixed {
			return bad("an IPv4 address with something behind it")
		}
	case 6:
		ip = netip.AddrFrom16([16]byte(b[4:20]))
		if ip.Is4In6() {
			return bad("an IPv4 address in IPv6 form")
		}
	default:
		return bad(fmt.Sprintf("family %d", b[1]))
	}
	if ip.IsUnspecified() || ip.IsMulticast() {
		return bad("not an address of one rank")
	}
	for _, c := range b[addrFixed:] {
		if c <= ' ' || c >= 127 || c == '/' || c == '%' {
			return bad("a zone that is no interface name")
		}
	}
	return ip, port, string(b[addrFixed:]), nil
}

func sockaddrString(sa unix.Sockaddr) string {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String()
	}
	return ""
}
