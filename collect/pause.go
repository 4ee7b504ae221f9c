package collect

import (
	"cmp"
	"slices"
	"strings"
)

// PauseFloorNS is what a pause must last to be told: no turn of a CPU takes that long.
const PauseFloorNS = stoppedNS

// When a pause was, seen from the work of its process in a phase: before it began,
// after the phase before; in it; after it was done, while others were not.
const (
	PauseBefore = "before"
	PauseIn     = "in"
	PauseAfter  = "after"
)

// compare puts the longest first; a total order over what a process cannot report twice.
func (p Pause) compare(o Pause) int {
	return cmp.Or(cmp.Compare(o.GapNS, p.GapNS), cmp.Compare(p.Proc, o.Proc), cmp.Compare(p.AtNS, o.AtNS),
		cmp.Compare(p.WaitNS, o.WaitNS), cmp.Compare(p.RunNS, o.RunNS), strings.Compare(p.When, o.When))
}

// capPauses keeps the MaxPauses first in the order of Pause.compare.
func capPauses(list []Pause) (kept []Pause, cut int64) {
	slices.SortFunc(list, Pause.compare)
	if len(list) > MaxPauses {
		return list[:MaxPauses:MaxPauses], int64(len(list) - MaxPauses)
	}
	return list, 0
}

// addPauses keeps the longest pauses of all slots.
func (d *Document) addPauses(s *Summary) {
	b := d.build
	d.PausesMore += s.PausesMore
	for _, p := range s.Pauses {
		one := PauseDoc{Proc: p.Proc, Phase: s.Phase, When: p.When, AtNS: p.AtNS - b.startNS, GapNS: p.GapNS}
		if p.WaitNS >= 0 && p.RunNS >= 0 {
			one.WaitNS, one.RunNS = &p.WaitNS, &p.RunNS
		}
		b.pauses = append(b.pauses, one)
	}
	slices.SortStableFunc(b.pauses, func(x, y PauseDoc) int { return cmp.Compare(y.GapNS, x.GapNS) })
	if more := len(b.pauses) - MaxPauses; more > 0 {
		b.pauses = b.pauses[:MaxPauses]
		d.PausesMore += int64(more)
	}
}

// finishPauses lists the pauses in the order of their beginning.
func (d *Document) finishPauses() {
	hosts := d.procHosts()
	for _, p := range d.build.pauses {
		p.Host = hosts[p.Proc]
		d.Pauses = append(d.Pauses, p)
	}
	slices.SortStableFunc(d.Pauses, func(x, y PauseDoc) int {
		return cmp.Or(cmp.Compare(x.AtNS, y.AtNS), cmp.Compare(x.Proc, y.Proc))
	})
}

// stopped says that the process neither ran nor waited for a CPU for half of the pause or more: it was not to run.
func (p PauseDoc) stopped() bool {
	return p.WaitNS != nil && p.RunNS != nil && 2*(*p.WaitNS+*p.RunNS) <= p.GapNS
}

// meets says that two pauses have half of the shorter one in common.
func (p PauseDoc) meets(o PauseDoc) bool {
	common := min(p.AtNS+p.GapNS, o.AtNS+o.GapNS) - max(p.AtNS, o.AtNS)
	return 2*common >= min(p.GapNS, o.GapNS)
}
