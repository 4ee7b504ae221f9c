package runner

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/transport"
)

const (
	settleFor   = 3 * time.Second // what the control plane may still be closing at the end
	settleEvery = 10 * time.Millisecond
	countTries  = 5 // at a count that changes meanwhile
)

// resources counts what this process holds now.
func (p *process) resources(moment string) collect.ProcResources {
	r := collect.ProcResources{Proc: p.self, Moment: moment, ProcFDs: -1, Goroutines: -1, RSSBytes: -1, FDLimit: -1, TimeWait: -1}
	for _, rk := range p.ranks {
		c := rk.ep.Counters()
		r.FDs += c.FDs
		r.Conns += c.Conns
		r.Listeners += c.Listeners
		r.ListenDrops = plus(r.ListenDrops, c.ListenDrops)
		r.SYNRetries = plus(r.SYNRetries, c.SYNRetries)
		r.Foreign += c.Foreign
		r.Starved += c.Starved
		r.Cramped += c.Cramped
	}
	r.RDMA = p.rdmaHeld()
	r.Foreign += p.refused.foreign.Load()
	r.Repeated = p.refused.repeated.Load()
	if !p.cfg.Shared {
		r.ProcFDs, r.Goroutines = p.held()
		r.RSSBytes = residentBytes()
		r.FDLimit = mostFDs()
		r.TimeWait = timeWait()
		r.PortLow, r.PortHigh = localPorts()
	}
	return r
}

// rdmaHeld adds up what the ranks' endpoints count, and asks the kernel; nil if
// the provider has nothing of it.
func (p *process) rdmaHeld() *collect.RDMAHeld {
	kernel, ok := p.cfg.Provider.(transport.KernelCounter)
	if !ok {
		return nil
	}
	h := &collect.RDMAHeld{KernelIDs: -1, KernelQPs: -1, KernelCQs: -1, KernelMRs: -1}
	for _, rk := range p.ranks {
		c := rk.ep.Counters()
		h.IDs, h.QPs, h.CQs, h.MRs = h.IDs+c.IDs, h.QPs+c.QPs, h.CQs+c.CQs, h.MRs+c.MRs
	}
	if k, err := kernel.KernelCounts(); err == nil && !p.cfg.Shared {
		h.KernelIDs, h.KernelQPs, h.KernelCQs, h.KernelMRs = k.IDs, k.QPs, k.CQs, k.MRs
	}
	return h
}

// held counts the descriptors and goroutines that are not the control plane's: links, gossip and whoever knocks come
// and go at any moment, and are no matter of the storm. Descriptors are counted while their number stands still.
func (p *process) held() (fds, goroutines int64) {
	p.pulse.quietly(func() { fds, goroutines = p.heldNow() })
	return fds, goroutines
}

// heldNow is held while the pulse looks at nothing.
func (p *process) heldNow() (fds, goroutines int64) {
	listening := map[netip.AddrPort]bool{}
	for i := range p.table.Procs {
		for _, a := range p.table.Procs[i].Control {
			listening[a] = true
		}
	}
	ports := p.group.Ports()
	for range countTries {
		open, control := openFDs(ports, listening)
		if fds = int64(open - control); open < 0 {
			fds = -1
			break
		}
		if _, again := openFDs(ports, listening); again == control {
			break
		}
	}
	for i, n := range owned(&p.stacks) {
		if name := collect.Owners[i]; name != "rendezvous" && name != "gossip" {
			goroutines += n
		}
	}
	return fds, goroutines
}

// plus adds counters of which -1 means not known.
func plus(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

// openFDs counts the entries of /proc/self/fd but the one that reads it, and how many of them are streams of the control
// plane: in at one of the ports, or out to where a process of the job listens; -1 if it cannot be read.
func openFDs(ports []uint16, listening map[netip.AddrPort]bool) (open, control int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1, 0
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		local, err := syscall.Getsockname(fd)
		if err != nil {
			continue
		}
		peer, err := syscall.Getpeername(fd)
		if err != nil {
			continue // a listener, or not connected yet
		}
		if listening[addrPortOf(peer)] || slices.Contains(ports, addrPortOf(local).Port()) {
			control++
		}
	}
	return len(entries) - 1, control
}

// addrPortOf an address of the internet, the zero one for others.
func addrPortOf(a syscall.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// mostFDs is how many descriptors this process may open now, -1 if unknown.
func mostFDs() int64 {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil || lim.Cur > math.MaxInt64 {
		return -1
	}
	return int64(lim.Cur)
}

// localPorts are the first and the last port that connect(2) may take in this network namespace, 0 if unknown.
func localPorts() (low, high int64) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0
	}
	if n, err := fmt.Sscan(string(b), &low, &high); n != 2 || err != nil {
		return 0, 0
	}
	return low, high
}

// residentBytes is the process's resident set, -1 if unknown.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return -1
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return -1
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return -1
	}
	return pages * int64(os.Getpagesize())
}

// judge adds the process's resources: before anything was opened, at the top of the storm, and after everything was
// given back. In between they are not comparable and are not told.
func (p *process) judge(s *collect.Summary) {
	if p.slot.Phase == phases.Destroy && p.spec.Rounds != 1 && !p.cfg.Shared {
		s.Held = p.holds() // before the endpoints go: rounds are compared with each other
	}
	switch {
	case s.Seq == 0:
		s.Resources = append(s.Resources, p.before)
	case p.slot.Phase == phases.Connect:
		s.Resources = append(s.Resources, p.resources("peak"))
	case p.last && !p.aborting:
		drops := p.resources("after")
		p.shut()
		after := p.resources("after")
		// What the control plane is still closing is not the storm's leak: give it a moment.
		for waited := time.Duration(0); waited < settleFor && (after.ProcFDs > p.before.ProcFDs || after.Goroutines > p.before.Goroutines); waited += settleEvery {
			time.Sleep(settleEvery)
			after = p.resources("after")
		}
		after.ListenDrops, after.SYNRetries = drops.ListenDrops, drops.SYNRetries
		s.Resources = append(s.Resources, after)
	}
}
