package runner

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
)

const (
	settleFor   = 300 * time.Millisecond // what the control plane may still be closing at the end
	settleEvery = 10 * time.Millisecond
)

// resources counts what this process holds now.
func (p *process) resources(moment string) collect.ProcResources {
	r := collect.ProcResources{Proc: p.self, Moment: moment, ProcFDs: -1, Goroutines: -1, RSSBytes: -1}
	for _, rk := range p.ranks {
		c := rk.ep.Counters()
		r.FDs += c.FDs
		r.Conns += c.Conns
		r.Listeners += c.Listeners
		r.ListenDrops = plus(r.ListenDrops, c.ListenDrops)
		r.SYNRetries = plus(r.SYNRetries, c.SYNRetries)
	}
	if !p.cfg.Shared {
		r.ProcFDs = int64(openFDs())
		r.Goroutines = int64(runtime.NumGoroutine())
		r.RSSBytes = residentBytes()
	}
	return r
}

// plus adds counters of which -1 means not known.
func plus(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

// openFDs counts the entries of /proc/self/fd but the one that reads it; -1 if it cannot be read.
func openFDs() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries) - 1
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
	switch {
	case s.Seq == 0:
		s.Resources = append(s.Resources, p.before)
	case p.slot.Phase == phases.Connect:
		s.Resources = append(s.Resources, p.resources("peak"))
	case s.Seq == p.sched.Len()-1 && !p.aborting:
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
