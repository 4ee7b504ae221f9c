package collect

import (
	"fmt"
	"slices"

	"rankstorm/rank"
)

// searchTimes is how much longer connect takes at least where a search for ports is told, besides the floor of a straggler.
const searchTimes = 1.5

// localPorts is the range that the process was told last, nil if it is not known.
func (r ResourceDoc) localPorts() *[2]int64 {
	for _, h := range []*Held{r.Peak, r.After, r.Before} {
		if h != nil && h.LocalPorts != nil {
			return h.LocalPorts
		}
	}
	return nil
}

// resting is how many sockets were in TIME_WAIT beside a process while it still connected, -1 if not known. What its own
// connections left behind in the last teardown took no port from them.
func (r ResourceDoc) resting() int64 {
	most := int64(-1)
	for _, h := range []*Held{r.Before, r.Peak} {
		if h != nil && h.TimeWait != nil {
			most = max(most, *h.TimeWait)
		}
	}
	return most
}

// portsRest says that TIME_WAIT may have kept ports of a process from it: only a round before this one connected to the
// same listeners, and nothing else rests.
func (d *Document) portsRest(p rank.Proc) bool {
	if d.Transport != "tcp" || d.RoundsRun < 2 {
		return false
	}
	r := d.resourcesOf(p)
	return r == nil || r.resting() != 0
}

// resourcesOf a process, nil if the document has none.
func (d *Document) resourcesOf(p rank.Proc) *ResourceDoc {
	if at := slices.IndexFunc(d.Resources, func(r ResourceDoc) bool { return r.Proc == p }); at >= 0 {
		return &d.Resources[at]
	}
	return nil
}

// portText says which ports a process may take and, if that matters, how many sockets rest beside it; "" if neither is known.
func (d *Document) portText(p rank.Proc, rest bool) (text string) {
	r := d.resourcesOf(p)
	if r == nil {
		return ""
	}
	if ports := r.localPorts(); ports != nil {
		text = fmt.Sprintf(", %d to %d", ports[0], ports[1])
	}
	if n := r.resting(); rest && n >= 0 {
		text += fmt.Sprintf("; %s in TIME_WAIT there", plural(n, "socket", "sockets"))
	}
	return text
}

// portsOfOthers is how many of a rank's ports were taken by sockets that are no connection of this job's ranks, at least:
// when it found no port towards a target, all that are not connections of its address to that target. 0 where that
// cannot be told: over several rounds, with several addresses, or if the document does not list all edges.
func (d *Document) portsOfOthers(r rank.Rank, ports int64) int64 {
	own := d.dataAddress(r)
	if d.Transport != "tcp" || d.RoundsRun > 1 || d.EdgesMore > 0 || own == "" {
		return 0
	}
	short, connected := map[rank.Rank]bool{}, map[rank.Rank]int64{}
	for _, e := range d.EdgeList {
		if e.From == r && e.Failed > 0 {
			short[e.To] = true
		}
		if d.dataAddress(e.From) == own {
			connected[e.To] += e.Planned - e.Failed
		}
	}
	least := ports
	for to := range short {
		least = min(least, ports-connected[to])
	}
	if len(short) == 0 {
		return 0
	}
	return max(least, 0)
}

// dataAddress of a rank, "" if it is not known or the process has several.
func (d *Document) dataAddress(r rank.Rank) string {
	p := procOf(d, r)
	for _, a := range d.Addresses {
		if a.Proc == p && len(a.Data) > 0 && !slices.ContainsFunc(a.Data, func(s string) bool { return s != a.Data[0] }) {
			return a.Data[0]
		}
	}
	return ""
}

// portSearch tells that connect takes longer in the rounds that began with half of
// the local ports towards a listener, or more, in TIME_WAIT: the kernel then looks
// at many ports before it finds one (docs/TIME-WAIT.md). Without rounds that
// began with fewer to compare with it is silent.
func portSearch(d *Document) []Cause {
	ports := d.fewestPorts()
	if d.Transport != "tcp" || ports == 0 || d.Topology.Stages > 1 {
		return nil
	}
	waiting := map[int32]int64{} // before a round
	for _, r := range d.Resources {
		if r.Before != nil && r.Before.TimeWait != nil {
			waiting[0] = max(waiting[0], *r.Before.TimeWait)
		}
	}
	for _, h := range d.RoundsHeld {
		if h.TimeWait != nil {
			waiting[h.Round+1] = *h.TimeWait
		}
	}
	var free, pressed []int64 // wall times
	var most int64
	for _, r := range d.Rounds {
		wall, took := r.StepWalls["connect"]
		n, known := waiting[r.Round]
		switch {
		case r.Phase != "connect" || !took || !known && r.Round > 0:
		case 2*n/d.destinations() < ports:
			free = append(free, wall)
		default:
			pressed = append(pressed, wall)
			most = max(most, n)
		}
	}
	if len(free) == 0 || len(pressed) == 0 {
		return nil
	}
	slices.Sort(free)
	slices.Sort(pressed)
	usual, slow := medianOf(free), medianOf(pressed)
	crowd := int64(1)
	for _, h := range d.Hosts {
		crowd = max(crowd, h.crowd())
	}
	if float64(slow) < searchTimes*float64(usual) || slow-usual < stragglerFloorNS*crowd {
		return nil
	}
	return []Cause{{
		Kind: "ports", Phase: "connect", ValueNS: &slow, Count: &most,
		Evidence: fmt.Sprintf("connect: the step takes %s (median) in %s that began with half of %s local ports or more in TIME_WAIT towards a listener (up to %s sockets), %s in %s that began with fewer: the kernel searches for a free port",
			FormatDuration(slow), plural(int64(len(pressed)), "round", "rounds"), FormatCount(ports), FormatCount(most), FormatDuration(usual), plural(int64(len(free)), "round", "rounds")),
		Fix: "widen net.ipv4.ip_local_port_range, let ports be used again (net.ipv4.tcp_tw_reuse=1), bind more addresses with -b, or slow the rounds down with --hold destroy=1s",
	}}
}

// fewestPorts that a process may take, 0 if not known.
func (d *Document) fewestPorts() int64 {
	fewest := d.Limits["local_ports"]
	for _, r := range d.Resources {
		if p := r.localPorts(); p != nil && (fewest == 0 || p[1]-p[0]+1 < fewest) {
			fewest = p[1] - p[0] + 1
		}
	}
	return fewest
}

// destinations are pairs of a local address of a host and a listener, at most, among which the ports of a network
// namespace are taken: each pair has all of them.
func (d *Document) destinations() int64 {
	listeners := d.Size
	if d.EdgesMore == 0 {
		to := map[rank.Rank]bool{}
		for _, e := range d.EdgeList {
			to[e.To] = true
		}
		listeners = int64(len(to))
	}
	addresses, own := 1, map[string]map[string]bool{}
	hosts := d.procHosts()
	for _, a := range d.Addresses {
		h := hosts[a.Proc]
		if own[h] == nil {
			own[h] = map[string]bool{}
		}
		for _, data := range a.Data {
			own[h][data] = true
		}
		addresses = max(addresses, len(own[h]))
	}
	return max(1, listeners) * int64(addresses)
}
