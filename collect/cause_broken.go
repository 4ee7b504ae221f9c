package collect

import (
	"fmt"
	"slices"

	"rankstorm/rank"
)

const brokenFix = "something ended them from outside: a peer that died, a reset of the network, a limit on idle or tracked connections"

// brokenConnections tells, by phase, of connections that broke when no step was under way on them, and in connect, where
// edges are known, to which rank most of them went.
func brokenConnections(d *Document, hosts map[rank.Rank]string) []Cause {
	var out []Cause
	for _, p := range d.Phases {
		if p.Broken == 0 {
			continue
		}
		n := p.Broken
		c := Cause{
			Kind: "broken", Phase: p.Phase, Count: &n, Fix: brokenFix,
			Evidence: fmt.Sprintf("%s: %s broke after being established", p.Phase, plural(n, "connection", "connections")),
		}
		if p.Phase == "connect" {
			byTarget := map[rank.Rank]int64{}
			for _, e := range d.EdgeList {
				byTarget[e.To] += e.Broken
			}
			if r, k := largest(byTarget); 5*k >= 4*n {
				proc := procOf(d, r)
				c.Rank, c.Proc, c.Host = &r, &proc, hosts[r]
				c.Evidence += fmt.Sprintf(", %s to rank %d (%s)", FormatCount(k), r, hosts[r])
				if slices.ContainsFunc(d.Losses, func(l Loss) bool { return l.Proc == proc }) {
					c.Evidence += ", whose process was lost"
					c.Fix = ""
				}
			}
		}
		out = append(out, c)
	}
	return out
}
