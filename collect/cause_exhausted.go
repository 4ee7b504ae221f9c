package collect

import (
	"fmt"

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
			if e.kind == "ports" && d.RoundsRun > 1 {
				c.Fix = "each port rests in TIME_WAIT after its round: slow the rounds down, allow reuse (net.ipv4.tcp_tw_reuse=1), or " + e.fix
			}
			c.Evidence = fmt.Sprintf("%s: %s for want of %s", p.Phase, plural(n, "failure", "failures"), e.what)
			if limit, ok := d.Limits[e.limit]; ok {
				c.Evidence += fmt.Sprintf(" (rank 0 has %s)", FormatCount(limit))
			}
			r, k := largest(byRank)
			// The limits of the document are those of rank 0, which its host shares.
			if limit := d.Limits[e.limit]; limit > 0 && k > 0 && hosts[r] == hosts[0] {
				c.Fix = fmt.Sprintf(e.numbers, limit, limit+k)
			}
			if 2*k >= n {
				proc := procOf(d, r)
				c.Rank, c.Proc, c.Host = &r, &proc, hosts[r]
				c.Evidence += fmt.Sprintf(", %s at rank %d (%s)", FormatCount(k), r, c.Host)
			}
			out = append(out, c)
		}
	}
	return out
}

// hostNames are the hosts of the ranks.
func (d *Document) hostNames() map[rank.Rank]string {
	hosts := make(map[rank.Rank]string, len(d.Ranks))
	for _, r := range d.Ranks {
		hosts[r.Rank] = r.Host
	}
	return hosts
}
