package rdma

import (
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/nldev"
	"rankstorm/transport/rdma/internal/sysfs"
)

// mostHeld bounds what the kernel is asked to list: it tells of all processes.
const mostHeld = 50_000

// KernelCounts asks over RDMA netlink. An id that has no device yet is not
// counted: those of unresolved connections at the wildcard.
func (provider) KernelCounts() (transport.KernelCounts, error) {
	h, err := nldev.HeldBy(os.Getpid(), mostHeld)
	return transport.KernelCounts{IDs: h.IDs, QPs: h.QPs, CQs: h.CQs, MRs: h.MRs}, err
}

// PortCounts reads the counters of the ports that have one of these addresses:
// those of RDMA CM, and those of the driver.
func (provider) PortCounts(local []netip.Addr) []transport.PortCounts {
	return portCounts(root(), local, interfaceAddresses)
}

// portCounts is PortCounts of a file system; addresses are those of an interface.
// A RoCE port has an address as a GID, IP over InfiniBand has it at the interface.
func portCounts(fsys fs.FS, local []netip.Addr, addresses func(netdev string) []netip.Addr) []transport.PortCounts {
	var out []transport.PortCounts
	var counters []sysfs.Counters
	for _, d := range sysfs.Devices(fsys) {
		for _, p := range d.Ports {
			here := slices.DeleteFunc(slices.Clone(local), func(a netip.Addr) bool { return !carries(p, a.Unmap().WithZone(""), addresses) })
			if len(here) == 0 {
				continue
			}
			if counters == nil {
				counters = sysfs.ReadCounters(fsys)
			}
			i := slices.IndexFunc(counters, func(c sysfs.Counters) bool { return c.Device == d.Name && c.Port == p.Number })
			if i < 0 {
				continue
			}
			counts := maps.Clone(counters[i].CM)
			for name, n := range counters[i].HW {
				counts["hw/"+name] = n
			}
			out = append(out, transport.PortCounts{Device: d.Name, Port: p.Number, Addresses: here, Counts: counts})
		}
	}
	return out
}

func carries(p Port, a netip.Addr, addresses func(netdev string) []netip.Addr) bool {
	return slices.ContainsFunc(p.GIDs, func(g GID) bool { return g.Addr == a }) ||
		slices.ContainsFunc(p.Netdevs, func(name string) bool { return slices.Contains(addresses(name), a) })
}

// interfaceAddresses of this machine; none if the interface is gone.
func interfaceAddresses(netdev string) []netip.Addr {
	i, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil
	}
	list, _ := i.Addrs()
	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out
}
