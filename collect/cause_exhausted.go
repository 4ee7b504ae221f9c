package collect

import (
	"cmp"
	"fmt"
	"slices"

	"rankstorm/rank"
)

// exhaustion is something of which a process has only so many.
type exhaustion struct {
	kind, what, limit, fix string
	numbers                string // fix with what there is and what is needed at least
}

// exhaustions by failure cause, in the words of transport.Cause.
var exhaustions = map[string]exhaustion{
	"no fds": {
		kind: "fds", what: "file descriptors", limit: "file_descriptors",
		fix:     "raise the limit with ulimit -n (hard limit: limits.conf, LimitNOFILE), or use fewer connections",
		numbers: "%d are allowed and at least %[2]d needed: ulimit -n %[2]d (hard limit: limits.conf, LimitNOFILE), or use fewer connections",
	},
	"no ports": {
		kind: "ports", what: "local ports", limit: "local_ports",
		fix:     "widen net.ipv4.ip_local_port_range, bind more addresses with -b, or use fewer connections",
		numbers: "there are %d and at least %d are needed: widen net.ipv4.ip_local_port_range with sysctl -w, bind more addresses with -b, or use fewer connections",
	},
}

// exhausted names what ran out, one line per kind and phase, from the failures
// by cause; the rank with at least half of a step's failures is named if the
// step failed for no other reason.
func exhausted(d *Document) []Cause {
	var out []Cause
	hosts := d.hostNames()
	for _, p := range d.Phases {
		for _, failure := range []string{"no fds", "no ports"} {
			e := exhaustions[failure]
			var n int64
			byRank := map[rank.Rank]int64{}
			for _, s := range p.Steps {
				n += s.Failures[failure]
				if s.Failures[failure] == 0 || s.Failures[failure] != s.Failed {
					continue
				}
				for _, r := range s.PerRank {
					byRank[r.Rank] += r.Failed
				}
			}
			if n == 0 {
				continue
			}
			c := Cause{Kind: e.kind, Phase: p.Phase, Count: &n, Fix: e.fix}
			c.Evidence = fmt.Sprintf("%s: %s for want of %s", p.Phase, plural(n, "failure", "failures"), e.what)
			r, k := largest(byRank)
			limit, whose := d.Limits[e.limit], rank.Rank(0)
			if own, ok := d.limitOf(e.kind, procOf(d, r)); ok && k > 0 {
				limit, whose = own, r
			}
			rest := e.kind == "ports" && d.portsRest(procOf(d, whose))
			if rest {
				c.Fix = "each port rests in TIME_WAIT after its round: slow the rounds down, allow reuse (net.ipv4.tcp_tw_reuse=1), or " + e.fix
			}
			// The other limits of the document are those of rank 0, which its host shares.
			counts := limit > 0 && k > 0 && !rest && (whose == r || hosts[r] == hosts[0])
			if counts {
				c.Fix = fmt.Sprintf(e.numbers, limit, limit+k)
			}
			if limit > 0 {
				c.Evidence += fmt.Sprintf(" (rank %d has %s", whose, FormatCount(limit))
				if e.kind == "ports" {
					c.Evidence += d.portText(procOf(d, whose), rest)
				}
				if others := d.portsOfOthers(r, limit); e.kind == "ports" && counts && others > 0 {
					c.Evidence += fmt.Sprintf("; at least %s of them are other sockets', the job's listeners among them", FormatCount(others))
					c.Fix += "; ss -tan shows whose"
				}
				c.Evidence += ")"
			}
			if 2*k >= n {
				proc := procOf(d, r)
				c.Rank, c.Proc, c.Host = &r, &proc, hosts[r]
				c.Evidence += fmt.Sprintf(", %s at rank %d (%s)", FormatCount(k), r, c.Host)
			}
			out = append(out, c)
		}
	}
	if !slices.ContainsFunc(out, func(c Cause) bool { return c.Kind == "ports" }) {
		out = append(out, portSearch(d)...)
	}
	out = append(out, d.waited("fds", func(h *Held) *int64 { return &h.Starved })...)
	return append(out, d.waited("memory", func(h *Held) *int64 { return &h.Cramped })...)
}

// waited names the processes that could not take requests, by how often these had to wait.
func (d *Document) waited(kind string, of func(*Held) *int64) []Cause {
	var out []Cause
	for _, r := range d.Resources {
		n := counted(r, of)
		if n <= 0 {
			continue
		}
		proc := r.Proc
		c := Cause{Kind: kind, Phase: "connect", Proc: &proc, Host: r.Host, Count: &n, Fix: d.fixOf("no memory")}
		what := "memory"
		ranks := d.ranksOf()[proc]
		who := fmt.Sprintf("process %d (%s)", proc, r.Host)
		if len(ranks) > 0 {
			c.Rank = &ranks[0]
		}
		if len(ranks) == 1 {
			who = fmt.Sprintf("rank %d (%s)", ranks[0], r.Host)
		}
		if kind == "fds" {
			what, c.Fix = "file descriptors", d.descriptorsFor(r)
			if limit, ok := r.fdLimit(); ok {
				what += fmt.Sprintf(" (it may open %s)", FormatCount(limit))
			}
		}
		c.Evidence = fmt.Sprintf("connect: requests to %s had to wait %s for want of %s", who, plural(n, "time", "times"), what)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(x, y Cause) int { return cmp.Compare(*y.Count, *x.Count) })
	return shorten(out, "process like it", "processes like it")
}

// descriptorsFor says how many descriptors a process needs that could not take all requests.
func (d *Document) descriptorsFor(r ResourceDoc) string {
	limit, ok := r.fdLimit()
	var missing int64
	for _, e := range d.EdgeList {
		if procOf(d, e.To) == r.Proc {
			missing += (e.Planned - e.Established + max(e.Rounds, 1) - 1) / max(e.Rounds, 1)
		}
	}
	if !ok || missing <= 0 {
		return exhaustions["no fds"].fix
	}
	return fmt.Sprintf(exhaustions["no fds"].numbers, limit, limit+missing)
}

// limitOf a process on descriptors ("fds") or local ports ("ports"), if the document knows its own.
func (d *Document) limitOf(kind string, p rank.Proc) (int64, bool) {
	for _, r := range d.Resources {
		if r.Proc != p {
			continue
		}
		if kind == "fds" {
			return r.fdLimit()
		}
		if ports := r.localPorts(); ports != nil {
			return ports[1] - ports[0] + 1, true
		}
	}
	return 0, false
}

// fdLimit is how many descriptors the process could open when it was looked at last.
func (r ResourceDoc) fdLimit() (int64, bool) {
	for _, h := range []*Held{r.Peak, r.After, r.Before} {
		if h != nil && h.FDLimit != nil {
			return *h.FDLimit, true
		}
	}
	return 0, false
}

// hostNames are the hosts of the ranks.
func (d *Document) hostNames() map[rank.Rank]string {
	hosts := make(map[rank.Rank]string, len(d.Ranks))
	for _, r := range d.Ranks {
		hosts[r.Rank] = r.Host
	}
	return hosts
}

// procHosts are those of the processes.
func (d *Document) procHosts() map[rank.Proc]string {
	hosts := map[rank.Proc]string{}
	for _, r := range d.Ranks {
		hosts[r.Proc] = r.Host
	}
	return hosts
}
