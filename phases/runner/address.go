package runner

import (
	"errors"
	"strconv"
	"strings"

	"rankstorm/collect"
	"rankstorm/rank"
)

// LocalRank in an address of Config.Bind stands for the rank's place among the
// ranks of its host, from 0.
const LocalRank = "{local_rank}"

// Keys of a record's own settings: the data addresses that a process was given,
// separated by commas, and the flag they came from.
const (
	OwnBind     = "bind"
	OwnBindFrom = "bind_from"
)

// dataAddress is the local address of a rank's data: the given ones in turn
// over the ranks of its host, else that of its process's control link, which
// is the one that the controller is reached from.
func dataAddress(t *rank.Table, r rank.Rank, bind []string) string {
	if len(bind) > 0 {
		local := t.LocalRank(r)
		return strings.ReplaceAll(bind[local%len(bind)], LocalRank, strconv.Itoa(local))
	}
	if c := t.Entry(t.ProcOf(r)).Control; len(c) > 0 {
		return c[0].Addr().String()
	}
	return ""
}

// addresses says which addresses a process is reached at, and why these.
func addresses(t *rank.Table, proc rank.Proc) collect.AddressDoc {
	entry := t.Entry(proc)
	a := collect.AddressDoc{Proc: proc, Data: []string{}, DataFrom: "control"}
	if len(entry.Control) > 0 {
		a.Control = entry.Control[0].String()
	}
	var bind []string
	for _, kv := range entry.Own {
		switch kv.Key {
		case OwnBind:
			bind = strings.Split(kv.Value, ",")
		case OwnBindFrom:
			a.DataFrom = kv.Value
		}
	}
	first, n := t.RanksOf(proc)
	for i := range n {
		a.Data = append(a.Data, dataAddress(t, first+rank.Rank(i), bind))
	}
	return a
}

// sayAddresses tells where this process is reached.
func (p *process) sayAddresses() {
	a := addresses(p.table, p.self)
	why := "as the control link"
	if a.DataFrom != "control" {
		why = "given by " + a.DataFrom
	}
	p.say("process %d: control and gossip at %s (towards the controller), data at %s (%s)",
		p.self, a.Control, strings.Join(a.Data, ", "), why)
}

// preflight looks at the plan once more, now that it is known who is on which host.
func (p *process) preflight() error {
	if p.cfg.Preflight == nil {
		return nil
	}
	warnings, err := p.cfg.Preflight(p.topo, p.table)
	if p.root != nil {
		for _, w := range warnings {
			p.root.doc.Warn(w)
			if !p.cfg.Quiet {
				p.say("warning: %s", w)
			}
		}
	}
	var e *rank.Error
	if errors.As(err, &e) {
		e.Proc, e.Host = p.self, p.table.Entry(p.self).Host
	}
	return err
}
