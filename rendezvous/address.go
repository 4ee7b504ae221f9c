package rendezvous

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"rankstorm/rank"
)

// DefaultPort of the controller.
const DefaultPort = 7471

// controllerAddress is where the controller is said to be.
type controllerAddress struct {
	host    string
	port    uint16
	literal bool // the host is an address, or localhost: meant as written
}

func (a controllerAddress) String() string {
	return net.JoinHostPort(a.host, strconv.Itoa(int(a.port)))
}

// key is the address as it names a job: without a zone, which is the name of an
// interface of one host.
func (a controllerAddress) key() string {
	if ip, err := netip.ParseAddr(a.host); err == nil {
		a.host = ip.WithZone("").String()
	}
	return a.String()
}

// parseController reads host, host:port, [v6], [v6]:port or a bare v6 address.
// port is used if the text names none.
func parseController(text string, port int) (controllerAddress, error) {
	bad := func(what string) (controllerAddress, error) {
		return controllerAddress{}, rank.Errorf(rank.KindUsage, "controller %q: %s; give host, host:port or [v6]:port", text, what)
	}
	if port == 0 {
		port = DefaultPort
	}
	a := controllerAddress{host: text}
	bare := text
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		bare = text[1 : len(text)-1]
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		a.host = ip.Unmap().String()
	} else if strings.Contains(text, ":") {
		host, portText, err := net.SplitHostPort(text)
		if err != nil {
			return bad("not host:port")
		}
		if port, err = strconv.Atoi(portText); err != nil {
			return bad("the port is no number")
		}
		a.host = host
	}
	switch {
	case a.host == "":
		return bad("no host")
	case strings.ContainsAny(a.host, " \t\r\n/@[]"):
		return bad("not a host name")
	case port < 1 || port > 65535:
		return bad(fmt.Sprintf("port %d is not within 1 … 65535", port))
	}
	a.port = uint16(port)
	ip, err := netip.ParseAddr(a.host)
	if err == nil {
		switch v := ip.WithZone("").Unmap(); {
		case v.IsMulticast():
			return bad("a multicast address belongs to no host")
		case v == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return bad("a broadcast address belongs to no host")
		case v.IsUnspecified():
			return bad("this address means another host wherever it is read")
		case v.Is6() && v.IsLinkLocalUnicast() && ip.Zone() == "":
			return bad("a link-local address needs the interface that leads to it, like " + ip.String() + "%eth0")
		}
	}
	a.literal = err == nil || a.host == "localhost"
	return a, nil
}

// familyOrder puts IPv4 before IPv6, as the addresses of a record are.
func familyOrder(a netip.Addr) int {
	if a.Unmap().Is4() {
		return 0
	}
	return 1
}

// isOwn says whether an address belongs to this host. Every 127.x.y.z does,
// though interfaces list only one of them.
func isOwn(a netip.Addr, local []netip.Addr) bool {
	return a.IsLoopback() || a.IsUnspecified() || slices.Contains(local, a.WithZone(""))
}

// controlAddrs puts the addresses of the own port in the order in which others
// should try them: the one this host reaches the controller from comes first.
// A loopback one, though, leads only if the controller was written as one:
// some hosts resolve their own name to 127.0.1.1, which is no use to others.
// A link-local source is no address of own, but where it is the way to the
// controller it is the way to the others as well.
func controlAddrs(own []netip.AddrPort, source netip.Addr, literal bool) []netip.AddrPort {
	source = source.Unmap()
	ordered := slices.Clone(own)
	if linkLocal(source) && len(own) > 0 {
		return slices.Insert(ordered, 0, netip.AddrPortFrom(source, own[0].Port()))
	}
	source = source.WithZone("")
	leads := func(a netip.AddrPort) bool {
		if source.IsLoopback() {
			return literal && a.Addr().IsLoopback() && a.Addr().Is4() == source.Is4()
		}
		return a.Addr() == source
	}
	slices.SortStableFunc(ordered, func(a, b netip.AddrPort) int {
		switch la, lb := leads(a), leads(b); {
		case la && !lb:
			return -1
		case lb && !la:
			return 1
		}
		return 0
	})
	return ordered
}

// backoff is the pause between attempts: short at first, growing, jittered so
// that many processes do not come in step.
type backoff struct {
	next, max time.Duration
}

func newBackoff(first, most time.Duration) backoff { return backoff{next: first, max: most} }

// wait sleeps for the next pause or until ctx ends.
func (b *backoff) wait(ctx context.Context) error {
	d := b.next
	b.next = min(b.next*3/2, b.max)
	return pause(ctx, d/2+rand.N(d)) // d/2 … 3d/2
}
