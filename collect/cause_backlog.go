package collect

import (
	"fmt"
	"strconv"

	"rankstorm/rank"
)

const paceFix = "pace the storm with --connect parallel=W or rate=R"

// backlogFix says what to set so that the listeners of these ranks hold the
// connections that reach them at once: the backlog that they have, what they
// need, and the limit of the system.
func (d *Document) backlogFix(ranks []rank.Rank, host string) string {
	backlog, _ := strconv.ParseInt(d.Settings["backlog"], 10, 64) // 0: as large as the system allows
	most := d.Limits["somaxconn"]
	need := d.reach(ranks)
	has := fmt.Sprintf("has --backlog %d", backlog)
	if backlog == 0 {
		has = "is as long as net.core.somaxconn allows"
		if most > 0 {
			has += fmt.Sprintf(" (%d at rank 0)", most)
		}
	}
	queue := "the listen queue of rank " + rank.FormatRanks(ranks)
	if need == 0 || backlog >= need || backlog == 0 && (most == 0 || most >= need) {
		return fmt.Sprintf("%s %s: raise --backlog and net.core.somaxconn, or %s", queue, has, paceFix)
	}
	set := fmt.Sprintf("--backlog %d", need)
	system := fmt.Sprintf("sysctl -w net.core.somaxconn=%d on %s", need, host)
	switch {
	case backlog == 0:
		set = system
	case most == 0:
		set += " and " + system
	case most < need:
		set += fmt.Sprintf(" and %s (%d at rank 0)", system, most)
	default:
		set += fmt.Sprintf(" (net.core.somaxconn allows %d at rank 0)", most)
	}
	return fmt.Sprintf("%s %s and %d connections may reach it at once: set %s, or %s", queue, has, need, set, paceFix)
}

// reach is how many connections the plan lets reach one of these ranks in a
// round, the most; 0 if the document does not list all edges.
func (d *Document) reach(ranks []rank.Rank) int64 {
	if d.EdgesMore > 0 {
		return 0
	}
	sums := map[rank.Rank]int64{}
	for _, e := range d.EdgeList {
		sums[e.To] += e.Planned / max(1, e.Rounds)
	}
	var most int64
	for _, r := range ranks {
		most = max(most, sums[r])
	}
	return most
}

// unanswered says what to do about connections that timed out: the descriptors
// of the target that is blamed if it had none left, the queue of the
// target that is blamed if it overflowed, of nobody in particular the worst that
// did, or what the ports of the connections counted; else otherwise.
func (d *Document) unanswered(c *Cause, otherwise string) string {
	var worst ResourceDoc
	var drops int64
	for _, r := range d.Resources {
		if c.Proc != nil && *c.Proc == r.Proc && counted(r, func(h *Held) *int64 { return &h.Starved }) > 0 {
			return d.descriptorsFor(r)
		}
		n := counted(r, func(h *Held) *int64 { return h.ListenDrops })
		if n > drops && (c.Proc == nil || *c.Proc == r.Proc) {
			worst, drops = r, n
		}
	}
	switch {
	case drops > 0:
		return d.backlogFix(d.ranksOf()[worst.Proc], worst.Host)
	case len(communication(d)) == 0:
		return otherwise
	case c.Phase == "connect":
		return "the ports' counters (below) say what kept them waiting; RDMA CM itself goes on for up to 98 s: --phase-timeout 2m lets it"
	}
	return "the ports' counters (below) say what kept them waiting"
}
