package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"rankstorm/collect"
	"rankstorm/collect/cmtime"
	"rankstorm/phases"
	"rankstorm/phases/runner"
	"rankstorm/rank"
)

// cmtimeReport prints what cmtime prints, at every instance, and at the
// controller also what all instances did together. It is the job's witness.
type cmtimeReport struct {
	out   io.Writer
	say   func(format string, args ...any) // to standard error
	flags *cmtimeFlags
	nonce [16]byte // of this instance
	verbs bool     // the provider has queue pairs

	table            *rank.Table
	clients, servers crew
	own              *cmtime.Pass
	all              [2]*cmtime.Pass // by role
	short            bool            // an instance is missing from all
}

// crew are the instances of one role.
type crew struct {
	ranks   []rank.Rank
	threads int
}

// role is what this instance is.
func (r *cmtimeReport) role() cmtime.Role {
	if r.flags.listener {
		return cmtime.Server
	}
	return cmtime.Client
}

// kind of a pass.
func (r *cmtimeReport) kind(round int32) cmtime.Kind {
	switch {
	case r.flags.sockets:
		return cmtime.Sockets
	case round == 0:
		return cmtime.WarmUp
	case round > 1:
		return cmtime.NoQPs
	case r.flags.mimicked:
		return cmtime.Simulated
	}
	return cmtime.QPs
}

// perEdge is how many connections a pass has between a client and a server.
func (r *cmtimeReport) perEdge(k cmtime.Kind) int64 {
	if k == cmtime.WarmUp {
		return 1
	}
	return int64(r.flags.connections)
}

// arrange makes the topology from the roles: every client connects to every
// server. The controller's instance is process 0.
func (r *cmtimeReport) arrange(t *rank.Table) (runner.Arrangement, error) {
	r.table = t
	a := runner.Arrangement{FirstQPN: 1<<24 - 1}
	mixed := map[uint32]bool{}
	for i := range t.Procs {
		first, _ := t.RanksOf(rank.Proc(i))
		c, own := &r.clients, ownSettings(&t.Procs[i])
		if own[ownRole] == "server" {
			c = &r.servers
		}
		c.ranks = append(c.ranks, first)
		threads, errThreads := strconv.Atoi(own[ownThreads])
		qpn, errQPN := strconv.ParseUint(own[ownQPN], 10, 24)
		if errThreads != nil || errQPN != nil {
			return a, rank.Errorf(rank.KindRendezvous, "cmtime: process %d (pid %d on %s) is no instance of cmtime: start all of them with rankstorm cmtime",
				i, t.Procs[i].PID, t.Procs[i].Host)
		}
		c.threads += threads
		// Ranges follow from one first number, the lowest, so that those of no two instances overlap.
		a.FirstQPN = min(a.FirstQPN, uint32(qpn))
		mixed[uint32(qpn)] = true
	}
	if t.Procs[0].Nonce == r.nonce {
		r.print("Running as OOB root")
		if len(mixed) > 1 && r.verbs && !r.flags.quiet {
			r.say("cmtime: instances give different -q: numbers begin at the lowest, %d, with a range for each instance", a.FirstQPN)
		}
	}
	switch {
	case len(r.clients.ranks) == 0:
		r.print("cannot have all listeners")
		return a, wrongRoles("all instances (-P %d) are servers: start one at least without -L", len(t.Procs))
	case len(r.servers.ranks) == 0:
		r.print("need at least 1 listener")
		return a, wrongRoles("no instance (-P %d) is a server: start one at least with -L", len(t.Procs))
	}
	a.Topology = rank.Params{Name: "m2n", Initiators: rank.FormatRanks(r.clients.ranks), Targets: rank.FormatRanks(r.servers.ranks)}
	return a, nil
}

func wrongRoles(format string, instances int) error {
	e := rank.Errorf(rank.KindUsage, "cmtime: "+format, instances)
	e.Err = errRoles
	return e
}

func ownSettings(rec *rank.Record) map[string]string {
	own := make(map[string]string, len(rec.Own))
	for _, kv := range rec.Own {
		own[kv.Key] = kv.Value
	}
	return own
}

// print writes lines. What does not come out is no matter of the job: this instance says it at the end.
func (r *cmtimeReport) print(lines ...string) {
	if len(lines) > 0 {
		fmt.Fprintln(r.out, strings.Join(lines, "\n"))
	}
}

// conns of this instance in a pass.
func (r *cmtimeReport) conns(k cmtime.Kind) int64 {
	if r.flags.listener {
		return r.perEdge(k) * int64(len(r.clients.ranks))
	}
	return r.perEdge(k) * int64(len(r.servers.ranks))
}

// Begins prints the lines that cmtime prints when it comes there.
func (r *cmtimeReport) Begins(s phases.Slot) {
	k := r.kind(s.Round)
	var lines []string
	if s.Phase == phases.Create {
		r.own = cmtime.NewPass(r.role(), k)
		lines = append(lines, cmtime.Title(r.role(), k, r.conns(k), int64(r.flags.mimic)))
	}
	r.print(append(lines, cmtime.Lines(r.role(), k, string(s.Phase), r.verbs && k == cmtime.WarmUp)...)...)
}

// Own gathers this instance's figures and prints its table at the end of a pass.
func (r *cmtimeReport) Own(s *collect.Summary, complete bool) {
	if r.own == nil || !complete {
		r.own = nil // broken off: the table would not be one
		return
	}
	r.own.Add(s)
	k := r.kind(s.Round)
	if s.Phase != string(phases.Destroy) || k == cmtime.WarmUp {
		return
	}
	if l := cmtime.Results(r.role(), k); l != "" {
		r.print(l)
	}
	r.write(r.own.Table(qps(k), r.conns(k), r.flags.threads, nil))
}

// qps says whether a pass has queue pairs, as the first line of a table has it.
func qps(k cmtime.Kind) bool { return k == cmtime.QPs }

// Whole gathers the figures of all instances, at the controller.
func (r *cmtimeReport) Whole(s *collect.Summary) {
	k := r.kind(s.Round)
	if !r.flags.all || k == cmtime.WarmUp {
		return
	}
	if s.Phase == string(phases.Create) {
		r.short = false
		for _, role := range []cmtime.Role{cmtime.Client, cmtime.Server} {
			r.all[role] = cmtime.NewPass(role, k)
		}
	}
	if r.all[cmtime.Client] == nil {
		return
	}
	r.short = r.short || phases.ProcSet(s.Covers).Len() < len(r.table.Procs)
	for _, p := range r.all {
		p.Add(s)
	}
	if s.Phase != string(phases.Destroy) || r.short {
		return
	}
	total := r.perEdge(k) * int64(len(r.clients.ranks)) * int64(len(r.servers.ranks))
	for _, one := range []struct {
		role cmtime.Role
		crew crew
	}{{cmtime.Client, r.clients}, {cmtime.Server, r.servers}} {
		r.print(cmtime.AllTitle(one.role, k, len(one.crew.ranks), total, int64(r.flags.mimic)))
		r.write(r.all[one.role].Table(qps(k), total, one.crew.threads, r.who))
	}
}

// who names the ends of a connection: host and number of each instance.
func (r *cmtimeReport) who(e collect.EdgeConn) string {
	one := func(at rank.Rank) string { return fmt.Sprintf("%s/%d", r.table.HostOf(at), at) }
	return one(e.From) + ">" + one(e.To)
}

func (r *cmtimeReport) write(t *cmtime.Table) {
	_ = t.Write(r.out) // as print
}

// Ends tells the causes that the controller finds, beside the tables.
func (r *cmtimeReport) Ends(d *collect.Document) {
	if r.flags.quiet {
		return
	}
	for _, c := range d.Causes {
		text := c.Evidence
		if c.Fix != "" {
			text += "; fix: " + c.Fix
		}
		r.say("cause: %s", oneLine(text))
	}
}
