package collect

import (
	"cmp"
	"fmt"
	"slices"

	"rankstorm/rank"
)

// unevenStarts finds phases that many ranks began late: more than a quarter, and
// at least two, of four or more ranks began later than the first by the floor (5 ms,
// or 20 ms × workers per CPU on a host that has more than one) and by more than twice
// the clock bound. Fewer
// are stragglers, each for itself. Only the phase with the widest start is told;
// if the late ranks are all those of one host, it is named. What a starved host or
// a stop explains is left out.
func unevenStarts(d *Document, starved []starvedHost, stopped []stop) []Cause {
	var best *Cause
	crowds, hosts := d.crowds(), d.hostNames()
	for _, p := range d.Phases {
		var bound int64
		if p.BoundNS != nil {
			bound = *p.BoundNS
		}
		var values []rankValue
		for _, r := range p.Ranks {
			if r.LateNS != nil {
				values = append(values, rankValue{r.Rank, *r.LateNS})
			}
		}
		if len(values) < 4 {
			continue
		}
		first := slices.MinFunc(values, byValue)
		worst := slices.MaxFunc(values, byValue)
		spread := worst.ns - first.ns
		var late []rank.Rank
		lateHosts := map[string]int{}
		for _, v := range values {
			host := hosts[v.rank]
			if v.ns-first.ns < unevenFloorNS(crowds[host]) || v.ns-first.ns <= 2*bound || explainedBy(starved, host, v.ns) ||
				stopExplains(stopped, procOf(d, v.rank), p.Phase, v.ns) {
				continue
			}
			late = append(late, v.rank)
			lateHosts[host]++
		}
		if len(late) < 2 || 4*len(late) <= len(values) || best != nil && spread <= *best.ValueNS {
			continue
		}
		n := int64(len(late))
		c := Cause{Kind: "uneven", Phase: p.Phase, ValueNS: &spread, Count: &n}
		who := fmt.Sprintf("%d of %d ranks", len(late), len(values))
		if host := hosts[worst.rank]; len(lateHosts) == 1 && lateHosts[host] == countHost(hosts, values, host) {
			c.Host = host
			who = fmt.Sprintf("all %d ranks of host %s", len(late), host)
		}
		c.Evidence = fmt.Sprintf("%s: %s began late, rank %d (%s) %s after the first",
			p.Phase, who, worst.rank, hosts[worst.rank], overBound(spread, bound))
		if p.Phase == "connect" {
			c.Evidence += ": the early ones had the network for themselves meanwhile"
		}
		c.Fix = "look for load on the hosts of the late ranks and for more ranks than CPUs"
		best = &c
	}
	if best == nil {
		return nil
	}
	return []Cause{*best}
}

// unevenFloorNS is what a rank may be late where so many workers share a CPU:
// many of them late by a few turns is how such a host is.
func unevenFloorNS(crowd int64) int64 {
	if crowd > 1 {
		crowd *= starvedAlone
	}
	return stragglerFloorNS * crowd
}

// explainedBy says that the host starved for as long as that.
func explainedBy(starved []starvedHost, host string, ns int64) bool {
	return slices.ContainsFunc(starved, func(h starvedHost) bool { return h.host == host && h.explains(ns) })
}

// countHost is how many of the ranks are on the host.
func countHost(hosts map[rank.Rank]string, values []rankValue, host string) int {
	n := 0
	for _, v := range values {
		if hosts[v.rank] == host {
			n++
		}
	}
	return n
}

func byValue(x, y rankValue) int { return cmp.Compare(x.ns, y.ns) }

// crowds are workers per CPU by host, at least 1.
func (d *Document) crowds() map[string]int64 {
	out := map[string]int64{}
	for _, r := range d.Ranks {
		out[r.Host] = 1
	}
	for _, h := range d.Hosts {
		out[h.Host] = h.crowd()
	}
	return out
}
