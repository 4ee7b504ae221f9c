package phases

import (
	"fmt"
	"slices"
	"strings"

	"rankstorm/rank"
)

// describer names a process for a text; nil knows nothing.
type describer func(rank.Proc) (host string, ranks []rank.Rank)

func (d describer) of(p rank.Proc) (string, []rank.Rank) {
	if d == nil || p < 0 {
		return "", nil
	}
	return d(p)
}

func (d describer) name(p rank.Proc) string {
	if host, _ := d.of(p); host != "" {
		return fmt.Sprintf("process %d (%s)", p, host)
	}
	return fmt.Sprintf("process %d", p)
}

// maxNamed processes are written out in a text; the rest is counted.
const maxNamed = 8

// names lists processes with their hosts.
func (d describer) names(procs []rank.Proc) string {
	var b strings.Builder
	for i, p := range procs {
		if i == maxNamed {
			fmt.Fprintf(&b, " and %d more", len(procs)-maxNamed)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(d.name(p))
	}
	return b.String()
}

// hosts lists the hosts of many processes, after a comma; nothing for few.
func (d describer) hosts(procs []rank.Proc) string {
	if len(procs) <= maxNamed {
		return ""
	}
	var hosts []string
	for _, p := range procs {
		if host, _ := d.of(p); host != "" && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	more := ""
	if n := len(hosts) - maxNamed; n > 0 {
		hosts, more = hosts[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return ", on " + strings.Join(hosts, ", ") + more
}

// about fills in who is concerned: one process with host and ranks, or several
// with their ranks and, if they share one, their host.
func (d describer) about(e *rank.Error, procs []rank.Proc) {
	e.Proc = rank.NoProc
	if len(procs) == 1 {
		e.Proc = procs[0]
	}
	for i, p := range procs {
		host, ranks := d.of(p)
		if i == 0 {
			e.Host = host
		} else if host != e.Host {
			e.Host = ""
		}
		if room := maxCauseRanks - len(e.Ranks); room > 0 {
			e.Ranks = append(e.Ranks, ranks[:min(len(ranks), room)]...)
		}
	}
}

// lost makes the cause of process p whose link to process by closed. If why
// names p as lost already, its text stays; otherwise it is what the link said.
func (d describer) lost(p, by rank.Proc, phase Token, why *rank.Error) *rank.Error {
	text := plain(why)
	if why != nil && why.Proc == p && why.Phase != "" {
		phase = Token(why.Phase)
	}
	if why == nil || why.Kind != rank.KindLost || why.Proc != p || text == "" {
		said := text
		text = fmt.Sprintf("process %d is lost: its control link to %s closed", p, d.name(by))
		if said != "" {
			text += ": " + said
		}
	}
	e := d.complete(&rank.Error{Kind: rank.KindLost, Proc: p, Peer: rank.None}, phase)
	e.Text = text
	return e
}

// plain is the text of a cause without the who and where.
func plain(e *rank.Error) string {
	switch {
	case e == nil:
		return ""
	case e.Text != "":
		return e.Text
	case e.Err != nil:
		return e.Err.Error()
	}
	return ""
}

// complete copies a cause and fills in phase and, for a process that is named
// without them, host and ranks.
func (d describer) complete(e *rank.Error, phase Token) *rank.Error {
	if e == nil {
		e = rank.Errorf(rank.KindInternal, "a cause was not given")
	}
	c := *e
	if c.Phase == "" {
		c.Phase = string(phase)
	}
	host, ranks := d.of(c.Proc)
	if c.Host == "" {
		c.Host = host
	}
	if len(c.Ranks) == 0 {
		c.Ranks = slices.Clone(ranks[:min(len(ranks), maxCauseRanks)])
	}
	return &c
}
