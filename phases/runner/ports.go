package runner

import (
	"net/netip"
	"slices"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

// ports reads what devices count by themselves. They count for all processes of
// the machine, so one process of each reads them: that with the lowest number.
type ports struct {
	source transport.PortCounter // nil: this process reads nothing
	local  []netip.Addr          // data addresses of the machine's ranks
	ranks  map[netip.Addr][]rank.Rank
	last   []transport.PortCounts
}

// watchPorts takes the first reading, before any endpoint is open.
func (p *process) watchPorts() {
	source, ok := p.cfg.Provider.(transport.PortCounter)
	if !ok || !readsPorts(p.table, p.self) {
		return
	}
	p.ports = ports{source: source, ranks: map[netip.Addr][]rank.Rank{}}
	machine := p.table.Entry(p.self).HostID
	for proc := range rank.Proc(len(p.table.Procs)) {
		if p.table.Entry(proc).HostID != machine {
			continue
		}
		first, _ := p.table.RanksOf(proc)
		for i, text := range addresses(p.table, proc).Data {
			a, err := netip.ParseAddr(text)
			if err != nil {
				continue // a name: the provider refuses it
			}
			p.ports.ranks[a] = append(p.ports.ranks[a], first+rank.Rank(i))
			if !slices.Contains(p.ports.local, a) {
				p.ports.local = append(p.ports.local, a)
			}
		}
	}
	p.ports.last = source.PortCounts(p.ports.local)
}

// readsPorts says that no process with a lower number shares this one's machine.
func readsPorts(t *rank.Table, self rank.Proc) bool {
	for proc := range self {
		if t.Entry(proc).HostID == t.Entry(self).HostID {
			return false
		}
	}
	return true
}

// portPhases are those at whose end the counters are read. Connect and disconnect
// end at one rank while messages to others are still under way; when probe and
// destroy are over, all of them have come.
var portPhases = []phases.Token{phases.Connect, phases.Probe, phases.Disconnect, phases.Destroy}

// countPorts adds by how much the counters grew since the last reading.
func (p *process) countPorts(s *collect.Summary) {
	if p.ports.source == nil || !slices.Contains(portPhases, p.slot.Phase) {
		return
	}
	now := p.ports.source.PortCounts(p.ports.local)
	s.Ports = append(s.Ports, grown(p.self, p.ports.last, now, p.ports.ranks)...)
	p.ports.last = now
}

// grown compares two readings. A port that only one of them has is left out.
func grown(self rank.Proc, before, after []transport.PortCounts, ranks map[netip.Addr][]rank.Rank) []collect.PortSum {
	var out []collect.PortSum
	for _, a := range after {
		i := slices.IndexFunc(before, func(b transport.PortCounts) bool { return b.Device == a.Device && b.Port == a.Port })
		if i < 0 {
			continue
		}
		one := collect.PortSum{Proc: self, Device: a.Device, Port: int32(a.Port), Counts: collect.Growth(before[i].Counts, a.Counts)}
		for _, addr := range a.Addresses {
			one.Ranks = append(one.Ranks, ranks[addr]...)
		}
		slices.Sort(one.Ranks)
		one.Ranks = slices.Compact(one.Ranks)
		out = append(out, one)
	}
	return out
}
