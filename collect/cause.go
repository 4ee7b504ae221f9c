package collect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rankstorm/rank"
)

// Thresholds of a straggler. All must be passed, so that a healthy job stays
// without cause lines.
const (
	stragglerFloorNS = 5_000_000   // below 5 ms nobody is called late; × workers per CPU, see crowd
	stragglerTimes   = 10          // × the median of the other ranks
	stoppedNS        = 100_000_000 // no turn of a CPU takes that long …
	stoppedTimes     = 3           // … so this is enough then
	stragglerZ       = 3.5         // robust z, judged from four ranks on

	mostNamed = 3 // causes of one kind; the others are counted
)

// Diagnose finds what explains a slow or failed job, from the document alone:
//
//   - stopped: a process, or all of a host, was not to run for a while (pauses);
//   - straggler: a rank that began a phase late (late_ns);
//   - stall: a rank whose worker stood still with work at hand (gap_ns);
//   - starved: many ranks of a host stood still;
//   - uneven: many ranks began a phase late;
//   - failed, dead: connections by cause, with the rank or peer that most have in common;
//   - broken: connections that broke when no step was under way on them;
//   - fds, ports, memory: what a process ran out of;
//   - drops: a listener's queue overflowed, and what its initiators waited for;
//   - comb: connects waited for retransmissions though no queue overflowed;
//   - backlog, slow_accept, lost_mads: what the ports' counters of RDMA CM tell;
//   - slow_target, slow_initiator, slow_rank, slow_host, slow_edge: full connect took longer there;
//   - leak: what was not brought back to the baseline.
//
// A rank is an outlier if its value is ≥ 5 ms × the workers per CPU of its
// host (a time slice for everybody who shares the CPU), ≥ 10 × the median of the other
// ranks (3 × from 100 ms on, when even a busy machine's ranks get their turn), above it by more than twice the clock bound, and, with four ranks or
// more and below 100 ms, its robust z = 0.6745 × (value − median) / MAD is ≥ 3.5 (median and
// median absolute deviation over all ranks). A single rank is never compared.
func Diagnose(d *Document) []Cause {
	out := []Cause{}
	hosts := d.hostNames()
	stopped := stops(d)
	starved := starvedHosts(d, stopped)
	uneven := unevenStarts(d, starved, stopped)
	out = append(out, stopCauses(d, stopped)...)
	out = append(out, causesOf(starved)...)
	out = append(out, uneven...)
	out = append(out, stragglers(d, hosts, starved, uneven, stopped)...)
	out = append(out, exhausted(d)...)
	failed := failedConnections(d, hosts)
	for i := range failed {
		failed[i].absent(out)
	}
	n := d.Connections.Dead
	for _, c := range failed {
		if c.Kind == "dead" {
			n -= *c.Count
		}
	}
	if out = append(out, failed...); n > 0 { // the figures of a step are missing
		out = append(out, Cause{Kind: "dead", Phase: "probe", Count: &n, Evidence: deadEvidence(d, n), Fix: deadFix})
	}
	out = append(out, brokenConnections(d, hosts)...)
	out = append(out, overflow(d)...)
	out = append(out, communication(d)...)
	out = append(out, slowPaths(d, starved)...)
	out = append(out, leakCauses(d)...)
	planted(d, out)
	adviseOnce(out)
	return out
}

// absent does not send for a firewall where the rank that did not answer is
// known to have been late, or to have stood still, in that phase.
func (c *Cause) absent(known []Cause) {
	if c.Fix != deadFix || c.Rank == nil {
		return
	}
	for _, k := range known {
		if (k.Kind == "stopped" || k.Kind == "straggler" || k.Kind == "stall") && k.Phase == c.Phase && k.Rank != nil && *k.Rank == *c.Rank {
			c.Fix = fmt.Sprintf("rank %d was not there to answer (above)", *c.Rank)
			return
		}
	}
}

// adviseOnce takes a fix away that stands with an earlier cause.
func adviseOnce(list []Cause) {
	given := map[string]bool{}
	for i := range list {
		if given[list[i].Fix] {
			list[i].Fix = ""
		}
		given[list[i].Fix] = true
	}
}

// rankValue is one rank's figure of a phase.
type rankValue struct {
	rank rank.Rank
	ns   int64
}

// candidate is a process that stood out in a phase, with its worst rank first.
type candidate struct {
	kind, phase string
	ranks       []rank.Rank
	worst       rankValue
	compared    int // ranks
	medianNS    int64
	boundNS     int64
}

// stragglers names the worst candidates of the whole job: at most mostNamed, and
// none that is less than a quarter of the worst, which is the machine's usual
// noise beside it.
func stragglers(d *Document, hosts map[rank.Rank]string, starved []starvedHost, uneven []Cause, stopped []stop) []Cause {
	var list []candidate
	for _, p := range d.Phases {
		list = append(list, candidates(d, p, hosts)...)
	}
	// What is told of a whole host, of many ranks, or of a process that was stopped, is not told of each.
	list = slices.DeleteFunc(list, func(c candidate) bool {
		return stopExplains(stopped, procOf(d, c.worst.rank), c.phase, c.worst.ns) || slices.ContainsFunc(starved, func(h starvedHost) bool { return h.host == hosts[c.worst.rank] && h.explains(c.worst.ns) }) ||
			c.kind == "straggler" && slices.ContainsFunc(uneven, func(u Cause) bool { return u.Phase == c.phase })
	})
	slices.SortStableFunc(list, func(x, y candidate) int { return cmp.Compare(y.worst.ns, x.worst.ns) })
	list = slices.DeleteFunc(list, func(c candidate) bool { return 4*c.worst.ns < list[0].worst.ns })
	var out []Cause
	for _, c := range list {
		r, ns, proc, host := c.worst.rank, c.worst.ns, procOf(d, c.worst.rank), hosts[c.worst.rank]
		who := fmt.Sprintf("rank %d", r)
		what, waited := "began late by", ""
		if c.kind == "stall" {
			what = "stood still with work at hand for"
			waited = d.gapText(c.phase, r)
		}
		others := "median of the other " + plural(int64(c.compared-1), "rank", "ranks")
		if c.compared == 2 {
			others = "the other rank:"
		}
		if len(c.ranks) > 1 {
			others = "median of all but the worst"
			who = "ranks " + rank.FormatRanks(c.ranks)
			what += " up to"
		}
		out = append(out, Cause{
			Kind: c.kind, Rank: &r, Proc: &proc, Host: host, Phase: c.phase, ValueNS: &ns,
			Evidence: fmt.Sprintf("%s: %s (%s) %s %s%s; %s %s", c.phase, who, host, what, FormatDuration(ns),
				waited, others, overBound(c.medianNS, c.boundNS)),
			Fix: "look for load, throttling or a stopped process on " + host,
		})
	}
	return shorten(out, "straggler like it", "stragglers like it")
}

// candidates of one phase. A rank that both began late and stood still shows
// the same delay twice: the larger figure is told. Ranks of one process share
// its fate and are told together.
func candidates(d *Document, p PhaseDoc, hosts map[rank.Rank]string) []candidate {
	crowds := d.crowds()
	var late, gap []rankValue
	for _, r := range p.Ranks {
		if r.LateNS != nil {
			late = append(late, rankValue{r.Rank, *r.LateNS})
		}
		if r.GapNS != nil {
			gap = append(gap, rankValue{r.Rank, *r.GapNS})
		}
	}
	var bound int64
	if p.BoundNS != nil {
		bound = *p.BoundNS
	}
	var list []candidate
	add := func(kind string, values []rankValue, bound int64) {
		found, median := outliers(values, bound)
		for _, v := range found {
			if v.ns < stragglerFloorNS*crowds[hosts[v.rank]] {
				continue // it may just have waited for its turn
			}
			list = append(list, candidate{kind, p.Phase, []rank.Rank{v.rank}, v, len(values), median, bound})
		}
	}
	add("straggler", late, bound)
	add("stall", gap, 0)
	slices.SortStableFunc(list, func(x, y candidate) int { return cmp.Compare(y.worst.ns, x.worst.ns) })
	var out []candidate
	for _, c := range list {
		i := slices.IndexFunc(out, func(o candidate) bool { return procOf(d, o.worst.rank) == procOf(d, c.worst.rank) })
		switch {
		case i < 0:
			out = append(out, c)
		case out[i].kind == c.kind:
			out[i].ranks = append(out[i].ranks, c.worst.rank)
		}
	}
	return out
}

// outliers returns the ranks that stand out, the worst first, and the median of
// the ranks other than the worst.
func outliers(list []rankValue, boundNS int64) (found []rankValue, median int64) {
	if len(list) < 2 {
		return nil, 0
	}
	sorted := slices.SortedFunc(slices.Values(list), func(x, y rankValue) int {
		return cmp.Or(cmp.Compare(x.ns, y.ns), cmp.Compare(y.rank, x.rank))
	})
	values := make([]int64, len(sorted))
	for i, v := range sorted {
		values[i] = v.ns
	}
	all := medianOf(values)
	// Leaving the worst out keeps it from hiding behind itself in small jobs.
	median = medianOf(values[:len(values)-1])
	deviations := make([]int64, len(values))
	for i, v := range values {
		deviations[i] = max(v-all, all-v)
	}
	slices.Sort(deviations)
	// A MAD below 1 µs is finer than the values mean anything.
	mad := max(medianOf(deviations), 1000)
	for _, v := range slices.Backward(sorted) {
		z := 0.6745 * float64(v.ns-all) / float64(mad)
		if v.ns < stragglerFloorNS || v.ns < timesOf(v.ns)*max(median, 0) || v.ns-median <= 2*boundNS ||
			len(sorted) >= 4 && z < stragglerZ && v.ns < stoppedNS {
			break
		}
		found = append(found, v)
	}
	return found, median
}

// timesOf the median of the others is what a rank must be late or stand still for.
func timesOf(ns int64) int64 {
	if ns >= stoppedNS {
		return stoppedTimes
	}
	return stragglerTimes
}

// medianOf an ascending list; of an even one the mean of the two in the middle.
func medianOf(sorted []int64) int64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	if n%2 == 1 {
		return sorted[n/2]
	}
	a, b := sorted[n/2-1], sorted[n/2]
	return a + (b-a)/2
}

func procOf(d *Document, r rank.Rank) rank.Proc {
	if d.RanksPerProc > 0 {
		return rank.Proc(int64(r) / d.RanksPerProc)
	}
	return rank.Proc(r)
}

// fixes per failure cause, in the words of transport.Cause.
var fixes = map[string]string{
	"refused":     "the target's listener is gone or was never there: look at that rank's errors",
	"unreachable": "check the route and the address given with -b or -B",
	"timeout":     timeoutFix, // in connect, see unanswered
	"reset":       resetFix,
	"no memory":   "raise net.ipv4.tcp_mem or use fewer connections",
	"permission":  "a firewall rule or security policy forbids it",
	"bad hello":   "something else listens on that address, or processes of two jobs met",
}

// rdmaFixes are those that differ over RDMA.
var rdmaFixes = map[string]string{
	"no memory": "rankstorm devices on that host says what may have run out: locked memory (ulimit -l), queue pairs in use, rdma.max of its cgroup; use fewer connections, or --mimic",
	"reset":     "the target still has a connection of that queue pair number: wait until the last job's are over; no two jobs with --mimic on one adapter",
}

// fixOf a failure cause.
func (d *Document) fixOf(cause string) string {
	if fix := rdmaFixes[cause]; d.Transport == "rdma" && fix != "" {
		return fix
	}
	return fixes[cause]
}

const (
	deadFix    = "look for a middlebox or firewall that accepts for the target, or a target that stopped"
	timeoutFix = "nothing answers there: look for a firewall that drops, a wrong route or address (-b, -B), a host that is down"
	resetFix   = "look at the target's errors and for a firewall that resets; with net.ipv4.tcp_abort_on_overflow=1 a full queue does"
)

func deadEvidence(d *Document, n int64) string {
	return fmt.Sprintf("probe: %s of %s carried no round trip", FormatCount(n),
		plural(d.Connections.Established, "established connection", "established connections"))
}

// failures of a phase that are told together.
type failures struct {
	n       int64
	byCause map[string]int64
	byRank  map[rank.Rank]int64
	mixed   bool // byRank holds others as well
}

// failuresOf a phase: those that left a connection dead in connect, and the
// others without what ran out.
func failuresOf(p *PhaseDoc) (dead, failed failures) {
	dead = failures{byCause: map[string]int64{}, byRank: map[rank.Rank]int64{}}
	failed = failures{byCause: map[string]int64{}, byRank: map[rank.Rank]int64{}}
	for _, s := range p.Steps {
		var of []*failures
		for cause, k := range s.Failures {
			f := &failed
			if _, own := exhaustions[cause]; own {
				dead.mixed, failed.mixed = true, true // has a line of its own
				continue
			}
			if p.Phase == "connect" && s.Step == "establish" && cause == "timeout" {
				f = &dead
			}
			f.byCause[cause] += k
			f.n += k
			if !slices.Contains(of, f) {
				of = append(of, f)
			}
		}
		for _, f := range of {
			f.mixed = f.mixed || len(of) > 1
			for _, r := range s.PerRank {
				f.byRank[r.Rank] += r.Failed
			}
		}
	}
	return dead, failed
}

func failedConnections(d *Document, hosts map[rank.Rank]string) []Cause {
	var out []Cause
	for i := range d.Phases {
		p := &d.Phases[i]
		dead, failed := failuresOf(p)
		if dead.n > 0 {
			n := dead.n
			c := Cause{Kind: "dead", Phase: p.Phase, Count: &n, Evidence: fmt.Sprintf(
				"%s: dead: %s of %s, whose path answered and whose target never did", p.Phase, FormatCount(n), plural(d.Connections.Planned, "connection", "connections"))}
			c.blame(d, p, dead, failed.n > 0, hosts)
			c.Fix = d.unanswered(&c, deadFix)
			out = append(out, c)
		}
		if failed.n == 0 {
			continue
		}
		n := failed.n
		causes := slices.SortedFunc(maps.Keys(failed.byCause), func(a, b string) int {
			return cmp.Or(cmp.Compare(failed.byCause[b], failed.byCause[a]), strings.Compare(a, b))
		})
		var parts []string
		for _, c := range causes {
			parts = append(parts, fmt.Sprintf("%s %s", c, FormatCount(failed.byCause[c])))
		}
		c := Cause{
			Kind: "failed", Phase: p.Phase, Count: &n, Fix: d.fixOf(causes[0]),
			Evidence: fmt.Sprintf("%s: %s (%s)", p.Phase, plural(n, "failure", "failures"), strings.Join(parts, ", ")),
		}
		if p.Phase == "probe" && d.Connections.Dead > 0 {
			c.Kind, c.Fix = "dead", deadFix
			c.Evidence = fmt.Sprintf("%s (%s)", deadEvidence(d, n), strings.Join(parts, ", "))
		}
		c.blame(d, p, failed, dead.n > 0, hosts)
		if c.Kind == "failed" && (causes[0] == "timeout" || causes[0] == "reset") {
			c.Fix = d.unanswered(&c, c.Fix)
		}
		out = append(out, c)
	}
	return out
}

// blame names the rank that most failures have in common: as the peer, if the
// listed edges show that four of five go to one target of several, or to the only
// one and its queue overflowed; else as the rank with at least half of the failed
// steps. An even spread blames nobody. Edges of a rank that lost connections
// before it connected say nothing about their targets.
func (c *Cause) blame(d *Document, p *PhaseDoc, f failures, others bool, hosts map[rank.Rank]string) {
	if f.mixed { // failures of ranks and edges are not told apart by cause
		return
	}
	name := func(r rank.Rank, text string, k int64) {
		c.Rank, c.Host = &r, hosts[r]
		proc := procOf(d, r)
		c.Proc = &proc
		c.Evidence += fmt.Sprintf(", %s %s rank %d (%s)", FormatCount(k), text, r, hosts[r])
	}
	if p.Phase == "connect" && !others {
		byTarget := map[rank.Rank]int64{}
		var listed int64
		before := d.lostBefore("connect")
		for _, e := range d.EdgeList {
			if before[e.From] {
				byTarget[e.To] += 0
				continue
			}
			byTarget[e.To] += e.Failed
			listed += e.Failed
		}
		if r, k := largest(byTarget); listed > 0 && 5*k >= 4*listed && (len(byTarget) > 1 || d.overflowed()[r]) {
			name(r, "to", k)
			return
		}
	}
	failing := 0
	for _, k := range f.byRank {
		if k > 0 {
			failing++
		}
	}
	if r, k := largest(f.byRank); 2*k >= f.n {
		name(r, "at", k)
	} else if failing > 1 {
		c.Evidence += fmt.Sprintf(", spread over %s ranks", FormatCount(int64(failing)))
	}
}

// lostBefore are the ranks that lost connections of their own before a phase.
func (d *Document) lostBefore(phase string) map[rank.Rank]bool {
	out := map[rank.Rank]bool{}
	for _, p := range d.Phases {
		if p.Phase == phase {
			break
		}
		for _, s := range p.Steps {
			for _, r := range s.PerRank {
				out[r.Rank] = out[r.Rank] || r.Failed > 0
			}
		}
	}
	return out
}

// largest picks the rank with the most, the lowest on a tie.
func largest(m map[rank.Rank]int64) (r rank.Rank, n int64) {
	r = rank.None
	for k, v := range m {
		if v > n || v == n && v > 0 && k < r {
			r, n = k, v
		}
	}
	return r, n
}

func leakCauses(d *Document) []Cause {
	var out []Cause
	for _, l := range d.Leaks() {
		proc, n := l.Proc, l.After-l.Before
		out = append(out, Cause{
			Kind: "leak", Proc: &proc, Host: l.Host, Phase: "destroy", Count: &n,
			Evidence: fmt.Sprintf("destroy: process %d (%s) leaked %s: %s before set-up, %s after teardown",
				proc, l.Host, l.What, FormatCount(l.Before), FormatCount(l.After)),
			Fix: "a defect of the transport or of this program: please report it with this document",
		})
	}
	return shorten(out, "leak", "leaks")
}

// shorten keeps the first few causes of a kind and counts the rest.
func shorten(list []Cause, one, many string) []Cause {
	if more := len(list) - mostNamed; more > 0 {
		list = list[:mostNamed]
		list[mostNamed-1].Evidence += "; " + plural(int64(more), "more "+one, "more "+many)
	}
	return list
}
