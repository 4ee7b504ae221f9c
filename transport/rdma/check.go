//go:build cgo

package rdma

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// check looks each address up and compares what was asked for with the device
// behind it.
func (s *settings) check() error {
	var seen []netip.Addr
	for i, sa := range s.sockaddrs {
		ip := s.adv.Addr()
		if i < len(s.local) {
			ip = s.local[i].Addr()
		}
		if slices.Contains(seen, ip) {
			continue
		}
		seen = append(seen, ip)
		b, err := verbs.Lookup(&sa)
		if err != nil {
			return bindError(ip, err)
		}
		switch {
		case s.device != "" && b.Device != s.device:
			return fmt.Errorf("rdma: %s belongs to device %s, not to %s: bind to an address of %s, or leave the device out", ip, b.Device, s.device, s.device)
		}
		s.iwarp = s.iwarp || b.IWARP
		if s.knobs.GIDIndex < 0 && s.mtu == 0 {
			continue
		}
		if err := s.checkPort(ip, b); err != nil {
			return err
		}
	}
	return nil
}

// checkPort compares GID index and MTU with the port's.
func (s *settings) checkPort(ip netip.Addr, b verbs.Behind) error {
	devices, err := Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Name != b.Device {
			continue
		}
		for _, p := range d.Ports {
			if p.Number != b.Port {
				continue
			}
			if k := p.Number - 1; s.mtu != 0 && k < len(d.MTUs) && d.MTUs[k].Active != 0 && s.mtu > d.MTUs[k].Active {
				return fmt.Errorf("rdma: MTU %d: port %d of %s carries %d bytes now: ask for less, or raise the interface's MTU", s.mtu, p.Number, d.Name, d.MTUs[k].Active)
			}
			if s.knobs.GIDIndex >= 0 {
				return checkGID(ip, d.Name, p, int(s.knobs.GIDIndex))
			}
		}
	}
	return nil
}

// checkGID requires that the entry holds the bound address: packets would have
// another source otherwise, and the target would not take them.
func checkGID(ip netip.Addr, device string, p Port, index int) error {
	var fit []string
	for _, g := range p.GIDs {
		if g.Addr != ip.WithZone("") {
			continue
		}
		if g.Index == index {
			return nil
		}
		fit = append(fit, fmt.Sprintf("%d (%s)", g.Index, g.Type))
	}
	if len(fit) == 0 {
		return fmt.Errorf("rdma: GID index %d: port %d of %s has no entry for %s: leave the index out", index, p.Number, device, ip)
	}
	return fmt.Errorf("rdma: GID index %d of port %d of %s is not the entry of %s: that is %s", index, p.Number, device, ip, strings.Join(fit, " or "))
}

// bindError says what it means that an address cannot be bound to.
func bindError(ip netip.Addr, err error) *transport.OpError {
	oe := &transport.OpError{Op: "rdma_bind_addr", Provider: name, Local: ip.String(), Cause: causeOf(err)}
	advice := "`rankstorm devices` lists the addresses that have one"
	switch {
	case errors.Is(err, unix.EADDRNOTAVAIL) && isLocal(ip):
		advice = "no RDMA port is left at this address: widen net.ipv4.ip_local_port_range, or bind to more addresses"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		oe.Cause = transport.CauseOther
		advice = "not an address of this machine? `ip addr` lists them; " + advice
	case errors.Is(err, unix.EADDRINUSE):
		advice = "another listener has this port"
	case errors.Is(err, unix.ENODEV):
		oe.Cause = transport.CauseUnreachable
		if why := thisMachine().unopened(ip); why != "" {
			advice = why
		} else {
			advice = "no RDMA device has this address: " + advice
		}
	case errors.Is(err, unix.EACCES):
		advice = "ports below 1024 need root"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EAGAIN):
		advice = memoryAdvice()
	}
	oe.Err = fmt.Errorf("%w: %s", err, advice)
	return oe
}

// isLocal says that an interface of this machine has the address.
func isLocal(ip netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == ip.WithZone("")
	})
}

// memoryAdvice names the limit that most often stands behind ENOMEM.
func memoryAdvice() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err == nil && l.Cur != unix.RLIM_INFINITY {
		return "at most " + strconv.FormatUint(l.Cur/1024, 10) + " KiB of memory may be locked: ulimit -l unlimited"
	}
	return "the device or the kernel has no more of it: rdma resource show says what is in use"
}
