package main

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"rankstorm/phases/runner"
)

// link is one network interface as the choice of addresses needs to know it.
type link struct {
	name  string
	addrs []netip.Addr // link-local IPv6 addresses carry their zone
}

// localLinks reads the machine's interfaces (getifaddrs).
func localLinks() ([]link, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, usagef("the network interfaces of this host cannot be read: %w", err)
	}
	links := make([]link, 0, len(interfaces))
	for _, i := range interfaces {
		l := link{name: i.Name}
		if i.Flags&(net.FlagLoopback|net.FlagUp) == net.FlagLoopback {
			links = append(links, l) // its addresses reach nobody
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, usagef("the addresses of interface %s cannot be read: %w", i.Name, err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // not an IP address
			}
			addr := prefix.Addr().Unmap()
			if addr.Is6() && addr.IsLinkLocalUnicast() {
				addr = addr.WithZone(i.Name)
			}
			l.addrs = append(l.addrs, addr)
		}
		links = append(links, l)
	}
	return links, nil
}

// chooseAddresses turns -B or -b into the local addresses that the data
// connections use, in the order given. Addresses with {local_rank} stay as they
// are: the local ranks are known once the table is sealed. Pure; links are what
// the host has.
func chooseAddresses(iface, bind string, ipv6 bool, links []link) ([]string, error) {
	switch {
	case iface != "" && bind != "":
		return nil, usagef("run: -B/--interface and -b/--bind both choose the local address: give one of them")
	case ipv6 && iface == "":
		return nil, usagef("run: --ipv6 chooses among the addresses of an interface: give one with -B, or an IPv6 address with -b instead")
	}
	var chosen []localAddr
	var err error
	switch {
	case iface != "":
		chosen, err = interfaceAddresses(iface, ipv6, links)
	case bind != "":
		chosen, err = boundAddresses(bind, links)
	}
	if err != nil {
		return nil, err
	}
	out := make([]string, len(chosen))
	for i, a := range chosen {
		if a.Is4() != chosen[0].Is4() {
			return nil, usagef("run: %s and %s are of different families: use only IPv4 or only IPv6 addresses", chosen[0].text, a.text)
		}
		out[i] = a.text
	}
	return out, nil
}

// localAddr is an address and how it is passed on.
type localAddr struct {
	netip.Addr
	text string
}

func interfaceAddresses(list string, ipv6 bool, links []link) ([]localAddr, error) {
	var chosen []localAddr
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		at := slices.IndexFunc(links, func(l link) bool { return l.name == name })
		if at < 0 {
			if _, err := netip.ParseAddr(name); err == nil {
				return nil, usagef("run: -B/--interface: %s is an address: give it with -b, or the name of its interface: there are %s", name, linkNames(links))
			}
			return nil, usagef("run: -B/--interface: no interface %q on this host: there are %s", name, linkNames(links))
		}
		addr, ok := preferred(links[at].addrs, ipv6)
		if !ok {
			if ipv6 && len(links[at].addrs) > 0 {
				return nil, usagef("run: -B/--interface: interface %s has no IPv6 address: leave out --ipv6 to use %s", name, links[at].addrs[0])
			}
			return nil, usagef("run: -B/--interface: interface %s has no address: give it one (ip addr add ADDRESS/PREFIX dev %s) or choose another of %s", name, name, linkNames(links))
		}
		chosen = append(chosen, localAddr{addr, addr.String()})
	}
	return chosen, nil
}

// preferred address of an interface: IPv4, or with ipv6 an IPv6 address of the
// widest scope; without ipv6 an interface that has only IPv6 gives that.
func preferred(addrs []netip.Addr, ipv6 bool) (netip.Addr, bool) {
	pick := func(want func(netip.Addr) bool) (netip.Addr, bool) {
		if at := slices.IndexFunc(addrs, want); at >= 0 {
			return addrs[at], true
		}
		return netip.Addr{}, false
	}
	if !ipv6 {
		if a, ok := pick(netip.Addr.Is4); ok {
			return a, true
		}
	}
	if a, ok := pick(func(a netip.Addr) bool { return a.Is6() && !a.IsLinkLocalUnicast() }); ok {
		return a, true
	}
	return pick(netip.Addr.Is6)
}

func boundAddresses(list string, links []link) ([]localAddr, error) {
	var chosen []localAddr
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		bare := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
		template := strings.Contains(bare, runner.LocalRank)
		addr, err := netip.ParseAddr(strings.ReplaceAll(bare, runner.LocalRank, "1"))
		switch {
		case err != nil && strings.ContainsAny(bare, "{}"):
			return nil, usagef("run: -b/--bind: %q is not an IP address: {local_rank} may stand for a number in it, as in 10.0.{local_rank}.1", text)
		case err != nil && slices.ContainsFunc(links, func(l link) bool { return l.name == bare }):
			return nil, usagef("run: -b/--bind: %s is an interface: give it with -B, or one of the addresses %s", text, linkAddresses(links))
		case err != nil:
			return nil, usagef("run: -b/--bind: %q is not an IP address: give one of this host: %s", text, linkAddresses(links))
		case addr.Unmap().IsUnspecified(), addr.IsMulticast():
			return nil, usagef("run: -b/--bind: %s is not the address of one interface: give one of this host: %s", text, linkAddresses(links))
		case template:
			chosen = append(chosen, localAddr{addr, bare})
			continue
		}
		local, ok := findLocal(addr.Unmap(), links)
		if !ok {
			return nil, usagef("run: -b/--bind: %s is not an address of this host: there are %s", text, linkAddresses(links))
		}
		chosen = append(chosen, localAddr{local, local.String()})
	}
	return chosen, nil
}

// findLocal finds addr on this host. A link-local address without a zone gets
// that of the only interface that has it. All of 127.0.0.0/8 is local.
func findLocal(addr netip.Addr, links []link) (netip.Addr, bool) {
	for _, l := range links {
		for _, a := range l.addrs {
			if a == addr || (addr.Zone() == "" && a.WithZone("") == addr) {
				return a, true
			}
		}
	}
	return addr, addr.Is4() && addr.IsLoopback()
}

func linkNames(links []link) string {
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.name
	}
	return strings.Join(names, ", ")
}

func linkAddresses(links []link) string {
	var addrs []string
	for _, l := range links {
		for _, a := range l.addrs {
			addrs = append(addrs, a.String())
		}
	}
	if len(addrs) == 0 {
		return "none"
	}
	return strings.Join(addrs, ", ")
}

// hasLoopback says that the spawned processes of a job can meet.
func hasLoopback(links []link) bool {
	for _, l := range links {
		if slices.Contains(l.addrs, netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
			return true
		}
	}
	return false
}
