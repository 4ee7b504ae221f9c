package collect

import (
	"fmt"
	"slices"
	"strings"

	"rankstorm/rank"
)

var kindNames = map[rank.Kind]string{
	rank.KindInternal: "internal", rank.KindUsage: "usage", rank.KindResource: "resource",
	rank.KindNotSupported: "not supported", rank.KindRendezvous: "rendezvous", rank.KindRefused: "refused",
	rank.KindUnreachable: "unreachable", rank.KindRejected: "rejected", rank.KindTimeout: "timeout",
	rank.KindLost: "lost", rank.KindFailed: "failed", rank.KindCorrupt: "corrupt",
	rank.KindThreshold: "threshold", rank.KindCancelled: "cancelled",
}

// NewExit describes how a job ended. cause may be nil.
func NewExit(code int, cause *rank.Error, partial bool) Exit {
	e := Exit{Code: code, Partial: partial}
	if cause != nil {
		doc := errorDoc(cause)
		e.Cause, e.Text, e.Error = &doc.Kind, doc.Text, &doc
	}
	return e
}

func errorDoc(e *rank.Error) ErrorDoc {
	name, ok := kindNames[e.Kind]
	if !ok {
		name = kindNames[rank.KindInternal]
	}
	doc := ErrorDoc{Kind: name, Ranks: append([]rank.Rank{}, e.Ranks...), Host: e.Host, Phase: e.Phase, Step: e.Step, Text: e.Error()}
	if e.Proc >= 0 {
		p := e.Proc
		doc.Proc = &p
	}
	if e.Peer >= 0 {
		p := e.Peer
		doc.Peer = &p
	}
	return doc
}

// Verdict is what the figures themselves say: 0 and "", or 1 and one line that
// names failed, dead and broken connections and leaks.
func (d *Document) Verdict() (code int, text string) {
	var parts []string
	if n := d.Connections.Failed; n > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s failed", FormatCount(n), plural(d.Connections.Planned, "connection", "connections")))
	}
	if n := d.Connections.Dead; n > 0 {
		parts = append(parts, plural(n, "connection is", "connections are")+" dead: up, but never answered")
	}
	if n := d.Connections.Broken; n > 0 {
		parts = append(parts, plural(n, "connection", "connections")+" broke after being established")
	}
	if leaks := d.Leaks(); len(leaks) > 0 {
		procs := map[rank.Proc]bool{}
		for _, l := range leaks {
			procs[l.Proc] = true
		}
		l := leaks[0]
		text := fmt.Sprintf("process %d (%s) leaked %s: %d before, %d after", l.Proc, l.Host, l.What, l.Before, l.After)
		if len(procs) > 1 {
			text += ", and " + plural(int64(len(procs)-1), "other process", "other processes")
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return 0, ""
	}
	return 1, strings.Join(parts, "; ")
}

// Leaks lists what processes did not bring back to the baseline: any judged
// figure of the provider whose value after teardown differs from the one before
// set-up, and process fds and goroutines that grew, by process. A process that
// lacks one of the two moments is not judged.
func (d *Document) Leaks() []Leak {
	var out []Leak
	list := d.Resources
	if d.build != nil { // not finished yet
		probe := Document{Ranks: d.Ranks, build: d.build}
		probe.finishResources()
		list = probe.Resources
	}
	for _, r := range list {
		if r.Before == nil || r.After == nil {
			continue
		}
		// The provider's own counts must be equal. What the whole process holds may shrink as well, because the control
		// plane closes what it needed for gathering: only more than before is a leak.
		judge := func(what string, before, after int64) {
			if before != after {
				out = append(out, Leak{Proc: r.Proc, Host: r.Host, What: what, Before: before, After: after})
			}
		}
		judge("fds", r.Before.FDs, r.After.FDs)
		grown := func(what string, before, after *int64) {
			if before != nil && after != nil && *after > *before {
				judge(what, *before, *after)
			}
		}
		grown("process fds", r.Before.ProcFDs, r.After.ProcFDs)
		judge("connections", r.Before.Conns, r.After.Conns)
		judge("listeners", r.Before.Listeners, r.After.Listeners)
		grown("goroutines", r.Before.Goroutines, r.After.Goroutines)
		for _, one := range []struct {
			what          string
			before, after *int64
			kernel        [2]*int64 // it may have had something to clean up before
		}{
			{"ids", r.Before.IDs, r.After.IDs, [2]*int64{r.Before.KernelIDs, r.After.KernelIDs}},
			{"queue pairs", r.Before.QPs, r.After.QPs, [2]*int64{r.Before.KernelQPs, r.After.KernelQPs}},
			{"completion queues", r.Before.CQs, r.After.CQs, [2]*int64{r.Before.KernelCQs, r.After.KernelCQs}},
			{"regions", r.Before.MRs, r.After.MRs, [2]*int64{r.Before.KernelMRs, r.After.KernelMRs}},
		} {
			if one.before != nil && one.after != nil {
				judge(one.what, *one.before, *one.after)
			}
			grown(one.what+" in the kernel", one.kernel[0], one.kernel[1])
		}
	}
	return slices.Clip(out)
}
