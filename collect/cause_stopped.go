package collect

import (
	"cmp"
	"fmt"
	"slices"

	"rankstorm/rank"
)

// pauseSlackNS is how much longer than its pause a rank may be late or stand still
// for the same reason, at least: the ticker that sees pauses sleeps for as long.
const pauseSlackNS = 60_000_000

// stop is a time in which a process was not to run, or all processes of a host.
type stop struct {
	pauses []PauseDoc // the longest first; several: of all processes of the host
	more   int        // shorter ones of the same process
}

// stops finds the pauses in which a process neither ran nor waited for a CPU. If
// all processes of a host, two or more, have one at the same time, it is one of
// the host; of the others of a process the longest is told. The longest first.
func stops(d *Document) []stop {
	var list []PauseDoc
	for _, p := range d.Pauses {
		if p.stopped() && p.GapNS >= PauseFloorNS {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(x, y PauseDoc) int { return cmp.Compare(y.GapNS, x.GapNS) })
	procs := map[string]map[rank.Proc]bool{}
	for _, r := range d.Ranks {
		if procs[r.Host] == nil {
			procs[r.Host] = map[rank.Proc]bool{}
		}
		procs[r.Host][r.Proc] = true
	}
	var out []stop
	of := map[rank.Proc]int{} // place in out
	for len(list) > 0 {
		longest := list[0]
		met := map[rank.Proc]bool{}
		var together, rest []PauseDoc
		for _, p := range list {
			if p.Host == longest.Host && p.meets(longest) {
				met[p.Proc] = true
				together = append(together, p)
			} else {
				rest = append(rest, p)
			}
		}
		if len(met) >= 2 && len(met) == len(procs[longest.Host]) {
			out, list = append(out, stop{pauses: together}), rest
			continue
		}
		list = list[1:]
		if i, ok := of[longest.Proc]; ok {
			out[i].more++
			continue
		}
		of[longest.Proc] = len(out)
		out = append(out, stop{pauses: []PauseDoc{longest}})
	}
	return out
}

// stopExplains says that what a rank of the process was late or stood still for in
// a phase is told as a stop.
func stopExplains(list []stop, proc rank.Proc, phase string, ns int64) bool {
	return slices.ContainsFunc(list, func(s stop) bool {
		return slices.ContainsFunc(s.pauses, func(p PauseDoc) bool {
			return p.Proc == proc && p.Phase == phase && ns <= p.GapNS+max(pauseSlackNS, p.GapNS/4)
		})
	})
}

// stopCauses tells of stops.
func stopCauses(d *Document, list []stop) []Cause {
	ranksOf := d.ranksOf()
	var out []Cause
	for _, s := range list {
		p := s.pauses[0]
		ns, phase := p.GapNS, p.Phase
		if p.When != PauseIn {
			phase = p.When + " " + phase
		}
		c := Cause{Kind: "stopped", Host: p.Host, Phase: p.Phase, ValueNS: &ns}
		if len(s.pauses) > 1 {
			n := int64(len(ranksOfAll(ranksOf, s.pauses)))
			var wait, run int64
			for _, p := range s.pauses {
				wait, run = max(wait, *p.WaitNS), max(run, *p.RunNS)
			}
			c.Count = &n
			c.Evidence = fmt.Sprintf("%s: all %s of host %s were stopped at the same time for up to %s: meanwhile no process of them ran for more than %s, nor waited more than %s for a CPU",
				phase, plural(n, "rank", "ranks"), p.Host, FormatDuration(ns), FormatDuration(run), FormatDuration(wait))
			c.Fix = "look for a suspended or migrated machine, a frozen cgroup or a launcher that stopped its job on " + p.Host
			out = append(out, c)
			continue
		}
		proc, ranks := p.Proc, ranksOf[p.Proc]
		c.Proc = &proc
		who, was := fmt.Sprintf("process %d (%s)", proc, p.Host), "was"
		if len(ranks) > 0 {
			c.Rank, who = &ranks[0], fmt.Sprintf("rank %d (%s)", ranks[0], p.Host)
		}
		if len(ranks) > 1 {
			who, was = fmt.Sprintf("ranks %s (%s)", rank.FormatRanks(ranks), p.Host), "were"
		}
		c.Evidence = fmt.Sprintf("%s: %s %s stopped for %s: meanwhile the process ran for %s and waited %s for a CPU",
			phase, who, was, FormatDuration(ns), FormatDuration(*p.RunNS), FormatDuration(*p.WaitNS))
		if s.more > 0 {
			c.Evidence += "; " + plural(int64(s.more), "shorter stop besides", "shorter stops besides")
		}
		c.Fix = "look for what stopped it on " + p.Host + ": SIGSTOP, a debugger, a frozen cgroup, swapping"
		out = append(out, c)
	}
	return shorten(out, "stop like it", "stops like it")
}

// ranksOfAll are the ranks of the processes that paused.
func ranksOfAll(of map[rank.Proc][]rank.Rank, list []PauseDoc) map[rank.Rank]bool {
	out := map[rank.Rank]bool{}
	for _, p := range list {
		for _, r := range of[p.Proc] {
			out[r] = true
		}
	}
	return out
}

// idle says that the rank's process is known to have waited for no CPU for most of
// the gap, nor to have run.
func (r RankPhaseDoc) idle() bool {
	return r.GapNS != nil && r.GapWaitNS != nil && r.GapRunNS != nil && 2*(*r.GapWaitNS+*r.GapRunNS) <= *r.GapNS
}

// gapText says how a rank spent the time that it stood still, "" if it is not known.
func (d *Document) gapText(phase string, r rank.Rank) string {
	p := d.phase(phase)
	if p == nil {
		return ""
	}
	for _, one := range p.Ranks {
		if one.Rank == r && one.GapWaitNS != nil {
			return fmt.Sprintf(" (its process waited %s of it for a CPU)", FormatDuration(*one.GapWaitNS))
		}
	}
	return ""
}
