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

// portText says which ports a process may take and how many sockets rest beside it; "" if neither is known.
func (d *Document) portText(p rank.Proc) (text string) {
	for _, r := range d.Resources {
		if r.Proc != p {
			continue
		}
		if ports := r.localPorts(); ports != nil {
			text += fmt.Sprintf(", %d to %d", ports[0], ports[1])
		}
		most := int64(-1)
		for _, h := range []*Held{r.Before, r.Peak, r.After} {
			if h != nil && h.TimeWait != nil {
				most = max(most, *h.TimeWait)
			}
		}
		if most >= 0 {
			text += fmt.Sprintf("; %s in TIME_WAIT there", plural(most, "socket", "sockets"))
		}
	}
	return text
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
			formatDuration(slow), plural(int64(len(pressed)), "round", "rounds"), FormatCount(ports), FormatCount(most), formatDuration(usual), plural(int64(len(free)), "round", "rounds")),
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
	hosts := map[rank.Proc]string{}
	for _, r := range d.Ranks {
		hosts[r.Proc] = r.Host
	}
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
