package collect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rankstorm/rank"
)

const (
	starvedTimes = 10 // × the median of the ranks of other hosts
	starvedAlone = 4  // × the floor, where there is no other host to compare with
)

// starvedHost is a host of which at least half of the ranks stood still in a phase.
type starvedHost struct {
	host, phase   string
	still, ranks  int   // that stood still, that had work
	medianNS      int64 // of the ranks that stood still
	restNS        int64 // median of these without the worst
	mostNS        int64
	worst         rank.Rank
	others        int   // ranks of other hosts
	othersNS      int64 // their median
	workers, cpus int64 // cpus 0: not known
	floorNS       int64
	waited        string // of the worst
}

// starvedHosts finds hosts that lacked CPU: of the ranks of a host that had work
// in a phase, at least two and at least half have a gap_ns of the floor (5 ms ×
// workers per CPU) or more, and their median is at least ten times the median
// gap of the ranks on other hosts; a job of one host needs four times the floor.
// A host is told once, in the phase with the largest median. Ranks that are known to
// have waited for no CPU are left out: they stood still for another reason.
func starvedHosts(d *Document, stopped []stop) []starvedHost {
	found := map[string]starvedHost{}
	hosts := d.hostNames()
	for _, p := range d.Phases {
		gaps := map[string][]rankValue{}
		for _, r := range p.Ranks {
			if r.GapNS != nil && !r.idle() && !stopExplains(stopped, procOf(d, r.Rank), p.Phase, *r.GapNS) {
				host := hosts[r.Rank]
				gaps[host] = append(gaps[host], rankValue{r.Rank, *r.GapNS})
			}
		}
		for _, h := range d.Hosts {
			s := starvedHost{host: h.Host, phase: p.Phase, ranks: len(gaps[h.Host]), workers: h.Workers, floorNS: stragglerFloorNS * h.crowd()}
			if h.CPUs != nil {
				s.cpus = *h.CPUs
			}
			var others []int64
			for host, list := range gaps {
				for _, v := range list {
					if host != h.Host {
						others = append(others, v.ns)
					}
				}
			}
			s.others = len(others)
			if s.others == 0 {
				s.floorNS *= starvedAlone
			}
			var still []int64
			for _, v := range gaps[h.Host] {
				if v.ns < s.floorNS {
					continue
				}
				still = append(still, v.ns)
				if v.ns > s.mostNS {
					s.mostNS, s.worst = v.ns, v.rank
				}
			}
			slices.Sort(still)
			slices.Sort(others)
			s.still, s.medianNS, s.othersNS = len(still), medianOf(still), medianOf(others)
			s.restNS = medianOf(still[:max(0, len(still)-1)])
			if s.still < 2 || 2*s.still < s.ranks || s.medianNS < starvedTimes*s.othersNS {
				continue
			}
			if old, ok := found[h.Host]; !ok || s.medianNS > old.medianNS {
				s.waited = d.gapText(p.Phase, s.worst)
				found[h.Host] = s
			}
		}
	}
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(x, y starvedHost) int {
		return cmp.Or(cmp.Compare(y.mostNS, x.mostNS), cmp.Compare(x.host, y.host))
	})
	return out
}

// causesOf the starved hosts.
func causesOf(list []starvedHost) []Cause {
	var out []Cause
	for _, h := range list {
		r, ns, n := h.worst, h.mostNS, int64(h.still)
		text := fmt.Sprintf("%s: %d of %d ranks of host %s stood still with work at hand, median %s, longest rank %d for %s%s",
			h.phase, h.still, h.ranks, h.host, FormatDuration(h.medianNS), h.worst, FormatDuration(h.mostNS), h.waited)
		switch h.others {
		case 0:
		case 1:
			text += ", the rank on another host " + FormatDuration(h.othersNS)
		default:
			text += ", on other hosts median " + FormatDuration(h.othersNS)
		}
		if h.cpus > 0 {
			text += fmt.Sprintf(": its CPUs were taken away (%s, %s)", plural(h.workers, "worker", "workers"), plural(h.cpus, "CPU", "CPUs"))
		} else {
			text += ": its CPUs were taken away"
		}
		out = append(out, Cause{
			Kind: "starved", Rank: &r, Host: h.host, Phase: h.phase, ValueNS: &ns, Count: &n, Evidence: text,
			Fix: "start fewer ranks on " + h.host + ", or free it: other load, a CPU limit (cpu.max) or steal time",
		})
	}
	return shorten(out, "host like it", "hosts like it")
}

// explains says that a stand-still of so long is how that host was, not that of one of its ranks: who was stopped stands
// out of a starved host as well.
func (h starvedHost) explains(ns int64) bool {
	return ns <= h.mostNS && (ns < stoppedNS || ns < stoppedTimes*h.restNS)
}
