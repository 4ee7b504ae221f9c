package runner

import (
	"errors"
	"net/netip"
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
		return AddressOf(bind, t.LocalRank(r))
	}
	if c := t.Entry(t.ProcOf(r)).Control; len(c) > 0 {
		return c[0].Addr().String()
	}
	return ""
}

// AddressOf the ranks of a host that has so many before it, of those given; "" if none is.
func AddressOf(bind []string, local int) string {
	if len(bind) == 0 {
		return ""
	}
	return strings.ReplaceAll(bind[local%len(bind)], LocalRank, strconv.Itoa(local))
}

// DataAddresses are the local addresses of the data of a process's ranks, in their order.
func DataAddresses(t *rank.Table, proc rank.Proc) []string { return addresses(t, proc).Data }

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

// oneFamily refuses data addresses of both families: ranks of one kind could
// not reach those of the other. Every process finds the same.
func oneFamily(t *rank.Table) error {
	var first netip.Addr
	for proc := range rank.Proc(len(t.Procs)) {
		data := addresses(t, proc).Data
		if len(data) == 0 {
			continue
		}
		a, err := netip.ParseAddr(data[0])
		switch {
		case err != nil:
			return rank.Errorf(rank.KindUsage, "process %d (%s): data address %q is none: correct -b there", proc, t.Entry(proc).Host, data[0])
		case !first.IsValid():
			first = a
		case a.Is4() != first.Is4():
			return rank.Errorf(rank.KindUsage, "process 0 (%s) has the data address %s and process %d (%s) has %s: give -C as an address of one family, or all of them -b or -B",
				t.Entry(0).Host, first, proc, t.Entry(proc).Host, a)
		}
	}
	return nil
}

// preflight looks at the plan once more, now that it is known who is on which host.
func (p *process) preflight() error {
	if p.root != nil {
		if err := CheckOut(p.cfg.Out); err != nil {
			e := rank.AsError(err, rank.KindResource)
			e.Proc, e.Host = p.self, p.table.Entry(p.self).Host
			return e
		}
	}
	if p.cfg.Preflight == nil {
		return nil
	}
	if err := oneFamily(p.table); err != nil {
		return err
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
	if e, ok := errors.AsType[*rank.Error](err); ok {
		e.Proc, e.Host = p.self, p.table.Entry(p.self).Host
	}
	return err
}
