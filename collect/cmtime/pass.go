package cmtime

import (
	"strconv"

	"rankstorm/collect"
	"rankstorm/transport"
)

// Pass gathers the figures of one pass, slot by slot: those of one instance, or
// of all.
type Pass struct {
	role    Role
	sockets bool
	steps   map[string]collect.StepSum // of the role's side, by name
}

// NewPass begins a pass of an instance of that role; of a pass over sockets only
// the cells count that cmtime fills for one.
func NewPass(r Role, k Kind) *Pass {
	return &Pass{role: r, sockets: k == Sockets, steps: map[string]collect.StepSum{}}
}

// Add takes the figures of a slot of the pass.
func (p *Pass) Add(s *collect.Summary) {
	side := collect.SideInitiator
	if p.role == Server {
		side = collect.SideTarget
	}
	for _, st := range s.Steps {
		if st.Side == side {
			p.steps[st.Step] = st
		}
	}
}

// cells of a row that are filled.
type cells uint8

const (
	whole cells = 1 << iota // avg/conn and total
	each                    // us/conn, sum, max and min
	both  = whole | each
)

// source says which step fills a row, and which cells.
type source struct {
	row   int
	step  string
	cells cells
}

func named(s transport.Step) string { return s.String() }

// clientRows and the others are what cmtime fills; full connect is apart.
var (
	clientRows = []source{
		{createID, named(transport.StepCreateID), both},
		{bindAddr, named(transport.StepBindAddr), both},
		{resolveAddr, named(transport.StepResolveAddr), both},
		{resolveRoute, named(transport.StepResolveRoute), both},
		{createQP, named(transport.StepCreateQP), both},
		{initQPAttr, named(transport.StepInitQPAttr), each},
		{initQP, named(transport.StepInitQP), both},
		{rtrQPAttr, named(transport.StepRTRAttr), each},
		{rtrQP, named(transport.StepRTR), each},
		{rtsQPAttr, named(transport.StepRTSAttr), each},
		{rtsQP, named(transport.StepRTS), each},
		{cmConnect, named(transport.StepFullConnect), both},
		{establish, named(transport.StepEstablish), each},
		{disconnect, named(transport.StepDisconnect), both},
		{destroyID, named(transport.StepDestroyID), both},
		{destroyQP, named(transport.StepDestroyQP), both},
	}
	serverRows = []source{
		{createQP, named(transport.StepAcceptCreateQP), each},
		{initQPAttr, named(transport.StepAcceptInitQPAttr), each},
		{initQP, named(transport.StepAcceptInitQP), each},
		{rtrQPAttr, named(transport.StepAcceptRTRAttr), each},
		{rtrQP, named(transport.StepAcceptRTR), each},
		{rtsQPAttr, named(transport.StepAcceptRTSAttr), each},
		{rtsQP, named(transport.StepAcceptRTS), each},
		{cmConnect, named(transport.StepAccept), whole},
		{disconnect, named(transport.StepPeerDisconnect), both},
		{destroyID, named(transport.StepDestroyID), both},
		{destroyQP, named(transport.StepDestroyQP), both},
	}
	socketClientRows = []source{
		{createID, named(transport.StepCreateID), both},
		{cmConnect, named(transport.StepConnect), both},
		{destroyID, named(transport.StepDestroyID), whole},
	}
	socketServerRows = []source{
		{fullConnect, named(transport.StepAccept), whole},
		{destroyID, named(transport.StepDestroyID), whole},
	}
)

// Table is the table of the pass. who names one end of a connection; nil for the
// table of one instance, which has no columns beyond cmtime's.
func (p *Pass) Table(qps bool, conns int64, threads int, who func(collect.EdgeConn) string) *Table {
	t := &Table{QPs: qps, Conns: conns, Threads: threads, All: who != nil}
	rows := clientRows
	switch {
	case p.sockets && p.role == Server:
		rows = socketServerRows
	case p.sockets:
		rows = socketClientRows
	case p.role == Server:
		rows = serverRows
	}
	for _, src := range rows {
		t.fill(src.row, p.step(src.step), src.cells, who)
	}
	if p.role == Client {
		p.fullConnect(t, who)
	}
	return t
}

// step finds a step, or what was slept in its place.
func (p *Pass) step(name string) collect.StepSum {
	if st, ok := p.steps[collect.MimicName(name)]; ok {
		return st
	}
	return p.steps[name]
}

// fullConnect is from the first creation to the last connection, and from
// creation to connection of each, without the waits between phases. cmtime prints
// no sum.
func (p *Pass) fullConnect(t *Table, who func(collect.EdgeConn) string) {
	last := p.step(named(transport.StepFullConnect))
	if p.sockets {
		last = p.step(named(transport.StepConnect))
	} else {
		t.fill(fullConnect, p.step(collect.FromCreate), each, who)
	}
	first := p.step(collect.FromCreate)
	row := &t.Rows[fullConnect]
	row.Sum = 0
	if first.Total.Count > 0 && last.Total.Count > 0 {
		row.Total = us(last.LastEnd - first.FirstBegin)
	}
}

// fill sets the cells of a row.
func (t *Table) fill(row int, s collect.StepSum, c cells, who func(collect.EdgeConn) string) {
	if s.Total.Count == 0 {
		return
	}
	r := &t.Rows[row]
	if c&whole != 0 {
		r.Total = us(s.LastEnd - s.FirstBegin)
	}
	if c&each == 0 {
		return
	}
	r.Sum, r.Max, r.Min = us(s.Total.SumNS), us(s.Total.MaxNS), us(s.Total.MinNS)
	if !t.All {
		return
	}
	r.P50, r.P99 = quantile(s, collect.P50), quantile(s, collect.P99)
	r.Slowest = who(s.Total.MaxEdge)
}

func quantile(s collect.StepSum, q collect.Permille) string {
	ns, ok := collect.Quantile(s.Hist, q, s.Total.MinNS, s.Total.MaxNS)
	if !ok {
		return ""
	}
	return strconv.FormatInt(us(ns), 10)
}

// us are whole microseconds, never below 0.
func us(ns int64) int64 { return max(ns, 0) / 1000 }
