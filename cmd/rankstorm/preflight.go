package main

import (
	"fmt"
	"strconv"

	"rankstorm/phases"
	"rankstorm/phases/runner"
	"rankstorm/rank"
	"rankstorm/transport"
)

// need is what a job asks of the operating system, for its worst process.
type need struct {
	fds       int64 // descriptors of the process, its control plane included
	ports     int64 // local ports towards one listener from one local address
	listeners int64 // ports of one local address that its ranks and the control plane listen on: connect(2) gives none of them
	perListen int64 // connections that may reach one listener at the same time
	backlog   int64 // asked for with --backlog, 0 = the largest possible
	rounds    int64 // in which ports are used again, 0 = without end
	loopback  bool  // all connections stay on this machine
	rdma      bool  // the listeners and local ports are RDMA CM's
	outs      int64 // rdma: ports of one local address: a listener of each of its ranks and the connections they initiate
}

// limits is what the operating system gives. Zero means not known.
type limits struct {
	fdsHard           uint64
	portLow, portHigh int64 // net.ipv4.ip_local_port_range
	somaxconn         int64 // net.core.somaxconn
	rdmaBacklog       int64 // net.rdma_ucm.max_backlog
	rdmaRecvQueue     int64 // ib_core.recv_queue_size: CM messages of a port that wait to be received
	rdmaSendQueue     int64 // ib_core.send_queue_size
	fdsUsed           int64 // open before the job begins
	reuse             reuse
}

// reuse says when connect(2) takes a port whose last connection is in TIME_WAIT.
type reuse uint8

// What net.ipv4.tcp_tw_reuse and net.ipv4.tcp_timestamps, which it needs, make of it.
const (
	reuseUnknown reuse = iota
	reuseNever
	reuseLoopback // after a second, from and to the own machine: the default
	reuseAlways   // after a second
)

// timeWait is how long a closed connection keeps its pair of ports where they are not reused: a constant of Linux.
const timeWait = 60 // s

// defaultPorts is how many local ports Linux gives if nobody changed net.ipv4.ip_local_port_range: 32768 to 60999.
const defaultPorts = 60999 - 32768 + 1

// ports is the number of local ports per address, 0 if not known.
func (l limits) ports() int64 {
	if l.portHigh == 0 {
		return 0
	}
	return l.portHigh - l.portLow + 1
}

// controlFDs is what the control plane of a process holds at most besides its
// links: standard streams, the runtime's epoll and eventfd, controller and
// gossip sockets, the host socket, files of the report.
const controlFDs = 24

// parentFDs are what the parent of a spawned job holds per child: its pipe and
// the handle of the process.
const parentFDs = 2

// controlLinks of a process in the tree: one parent, and children of its own
// host and of other hosts, at most arity each.
func controlLinks(procs, arity int) int64 { return min(int64(procs), 2*int64(arity)+1) }

// job is what preflight needs to know of a job besides its topology.
type job struct {
	procs, k    int
	at          func(r rank.Rank) place // whose local ports a rank takes
	connections int                     // per edge
	arity       int                     // of the control tree
	backlog     int                     // --backlog
	shape       phases.Shape
	controller  bool // spawned: count what the controller (one knock per process) and the parent need too
}

// place is a local address of a host: its ports are shared by the ranks that have it. Without an address it is the one
// that the control links leave from.
type place struct{ host, address string }

// evenly places ranks on hosts of perHost each, which take the addresses in turn.
func evenly(perHost int, bind []string) func(rank.Rank) place {
	return func(r rank.Rank) place {
		local := int(r) % max(perHost, 1)
		return place{strconv.Itoa(int(r) / max(perHost, 1)), runner.AddressOf(bind, local)}
	}
}

// worstNeed is the need of the process that needs most, and of the address whose ports are taken most. It walks the
// degrees of all ranks, which are closed forms, not the edges.
func worstNeed(t rank.Topology, size int, j job, fds rank.FDCost) (need, error) {
	n := need{backlog: int64(j.backlog)}
	type shared struct{ ranks, outs int64 }
	places, control := map[place]shared{}, map[string]int64{} // ranks by place, processes by host
	for first := 0; first < size; first += j.k {
		total := controlFDs + controlLinks(j.procs, j.arity)
		for r := first; r < min(first+j.k, size); r++ {
			of, err := rank.NeedOf(t, rank.Rank(r), j.connections, fds)
			if err != nil {
				return n, err
			}
			total += of.FDs
			n.perListen = max(n.perListen, atOnce(j.shape, of))
			at := j.at(rank.Rank(r))
			places[at] = shared{places[at].ranks + 1, places[at].outs + of.Out}
			if r == first {
				control[at.host]++
			}
		}
		n.fds = max(n.fds, total)
	}
	most := int64(0) // ranks of one place
	for at, of := range places {
		most = max(most, of.ranks)
		n.listeners = max(n.listeners, of.ranks+control[at.host])
		n.outs = max(n.outs, of.ranks+of.outs)
	}
	for r := range rank.Rank(size) {
		n.ports = max(n.ports, min(t.In(r), most)*int64(j.connections))
	}
	if j.controller {
		n.listeners++ // its port was free, which is one of these
		n.fds += int64(j.procs)
		n.fds = max(n.fds, controlFDs+parentFDs*int64(j.procs))
	}
	return n, nil
}

// atOnce is how many requests may reach a rank's listener at the same time: of
// a burst all, of others at most the slots of each initiator. A paced storm
// has no such bound, and none to expect.
func atOnce(s phases.Shape, of rank.Need) int64 {
	switch s.Kind {
	case phases.Parallel:
		return min(of.In, of.InEdges*int64(s.Slots))
	case phases.Rate:
		return 0
	}
	return of.In
}

// fdCost of a provider with that many workers per rank.
func fdCost(p transport.Provider, workers int) rank.FDCost {
	out, in, endpoint := p.FDs(workers)
	return rank.FDCost{Fixed: int64(endpoint), PerOut: int64(out), PerIn: int64(in)}
}

// check compares need and limits: the error that would stop the job for
// certain, and warnings of what may slow it.
func check(n need, l limits) (warnings []string, err error) {
	// What is open already is part of the control plane's share, unless a parent left more than that.
	fds := n.fds + max(l.fdsUsed-controlFDs, 0)
	if l.fdsHard > 0 && uint64(fds) > l.fdsHard {
		return nil, rank.Errorf(rank.KindResource, "a process needs %d file descriptors, has %d: ulimit -n %d as root, or a hard limit of that many (limits.conf, LimitNOFILE); or use fewer connections", fds, l.fdsHard, fds)
	}
	if n.rdma {
		return checkRDMA(n, l)
	}
	have := max(l.ports()-n.listeners, 0)
	if l.ports() > 0 && n.ports > have {
		taken := ""
		if n.listeners > 0 {
			taken = fmt.Sprintf(" (%d of %d are taken by its own listeners)", n.listeners, l.ports())
		}
		return nil, rank.Errorf(rank.KindResource, "one local address needs %d local ports towards one listener, has %d%s: sysctl -w net.ipv4.ip_local_port_range='1024 65535', or use more local addresses (-b)", n.ports, have, taken)
	}
	if have > 0 && n.ports > 0 && n.rounds != 1 && l.rests(n.loopback) && (n.rounds == 0 || n.ports*n.rounds > have) {
		warnings = append(warnings, fmt.Sprintf("a round takes %d of %d local ports towards one listener, and each rests for %d s in TIME_WAIT: more rounds than %d within that time run out of them; sysctl -w net.ipv4.tcp_tw_reuse=1", n.ports, have, timeWait, have/n.ports))
	}
	if l.somaxconn > 0 {
		switch {
		case n.backlog > l.somaxconn:
			warnings = append(warnings, fmt.Sprintf("--backlog %d is cut to %d by the kernel: sysctl -w net.core.somaxconn=%d", n.backlog, l.somaxconn, n.backlog))
		case n.backlog == 0 && n.perListen > l.somaxconn:
			warnings = append(warnings, fmt.Sprintf("up to %d connections reach one listener at once and its queue holds %d: dropped requests come again a second later; sysctl -w net.core.somaxconn=%d", n.perListen, l.somaxconn, n.perListen))
		case n.backlog > 0 && n.perListen > n.backlog:
			warnings = append(warnings, fmt.Sprintf("up to %d connections reach one listener at once and --backlog %d holds fewer: dropped requests come again a second later", n.perListen, n.backlog))
		}
	}
	return warnings, nil
}

// checkRDMA is check for RDMA CM, whose ports belong to an address whoever the
// peer is, and whose kernel drops requests without a word.
func checkRDMA(n need, l limits) (warnings []string, err error) {
	if have := l.ports(); have > 0 && n.outs > have {
		return nil, rank.Errorf(rank.KindResource, "the ranks of one local address need %d RDMA ports, listeners included, and it has %d: sysctl -w net.ipv4.ip_local_port_range='1024 65535', or use more local addresses (-b)", n.outs, have)
	}
	switch most := l.rdmaBacklog; {
	case most == 0:
	case n.backlog > most:
		return nil, rank.Errorf(rank.KindResource, "--backlog %d: net.rdma_ucm.max_backlog is %d: sysctl -w net.rdma_ucm.max_backlog=%d", n.backlog, most, n.backlog)
	case n.backlog == 0 && n.perListen > most:
		warnings = append(warnings, fmt.Sprintf("up to %d connections reach one listener at once and its queue holds %d: requests beyond are dropped and come again seconds later; sysctl -w net.rdma_ucm.max_backlog=%d", n.perListen, most, n.perListen))
	case n.backlog > 0 && n.perListen > n.backlog:
		warnings = append(warnings, fmt.Sprintf("up to %d connections reach one listener at once and --backlog %d holds fewer: requests beyond are dropped and come again seconds later", n.perListen, n.backlog))
	}
	return warnings, nil
}

// rests says that ports are not used again for as long as TIME_WAIT lasts.
func (l limits) rests(loopback bool) bool {
	return l.reuse == reuseNever || l.reuse == reuseLoopback && !loopback
}

// preflight looks at the plan of the job and at what the kernel gives. Where
// the plan depends on hosts that are not known before the table is sealed,
// only preflightSealed can tell.
func preflight(j *prepared, spawnHosts int) ([]string, error) {
	s := j.spec
	size := s.Procs * s.RanksPerProc
	view, perHost := rank.NewLayout(size, s.RanksPerProc), s.RanksPerProc
	switch {
	case j.spawn > 0:
		view, perHost = spawnedView{procs: s.Procs, k: s.RanksPerProc, hosts: max(spawnHosts, 1)}, size
	case namesHosts(s.Topology):
		return nil, nil
	}
	t, err := rank.NewTopology(view, s.Topology)
	if err != nil {
		return nil, inCommand("run", err)
	}
	return checkPlan(j, t, size, evenly(perHost, j.bind))
}

// preflightSealed is preflight with the table: who is on which host and has which
// address is known, and so is the plan, whatever it depends on. It opens nothing.
func preflightSealed(j *prepared, t rank.Topology, table *rank.Table) ([]string, error) {
	places := make([]place, 0, table.Size())
	for p := range table.Procs {
		for _, address := range runner.DataAddresses(table, rank.Proc(p)) {
			places = append(places, place{table.Procs[p].Host, address})
		}
	}
	return checkPlan(j, t, table.Size(), func(r rank.Rank) place { return places[r] })
}

// checkPlan compares a plan of size ranks with what a job can be and what this host gives.
func checkPlan(j *prepared, t rank.Topology, size int, at func(rank.Rank) place) ([]string, error) {
	s := j.spec
	if _, err := rank.CheckConnections(t, s.Connections); err != nil {
		return nil, inCommand(j.command, err)
	}
	if _, err := phases.NewSchedule(s, t.Stages(), runner.Wired(s)); err != nil {
		return nil, inCommand(j.command, err)
	}
	if err := inTime(s, t); err != nil {
		return nil, err
	}
	n, err := worstNeed(t, size, job{
		procs: s.Procs, k: s.RanksPerProc, at: at, connections: s.Connections, arity: s.TreeArity, backlog: s.Backlog, shape: s.Shape,
		controller: j.spawn > 0, // elsewhere only one process of all is it, and which one shows later
	}, fdCost(j.provider, s.Threads))
	if err != nil {
		return nil, inCommand(j.command, err)
	}
	n.rounds, n.loopback = 1, j.spawn > 0
	n.rdma = s.Transport == overRDMA
	if s.Transport == "tcp" {
		n.rounds = int64(s.Rounds)
	}
	warnings, err := check(n, j.limits)
	return append(warnings, doubts(t, s.Topology.Name, size, "--spawn")...), err
}

// doubts warns of a plan that is hardly what was meant; flag is the one that gives more ranks.
func doubts(t rank.Topology, name string, size int, flag string) []string {
	var warnings []string
	if w := nobodyConnects(t, name, size, flag); w != "" {
		warnings = append(warnings, w)
	}
	if rank.Weighted(t) {
		warnings = append(warnings, "topology "+name+": every edge gets the same number of connections (-c): weights are shares of the data, and this version transfers none")
	}
	return warnings
}

// nobodyConnects warns of a plan without edges, "" if it has some; flag is the one that gives more ranks.
func nobodyConnects(t rank.Topology, name string, size int, flag string) string {
	switch {
	case size == 1:
		return "a job of one rank has nobody to connect to: use " + flag + " 2 or more"
	case t.Count() == 0:
		return "topology " + name + " has no edge with these settings: nobody connects to anybody"
	}
	return ""
}

// inTime refuses a paced storm that cannot end within a phase.
func inTime(s phases.Spec, t rank.Topology) error {
	if s.Shape.Kind != phases.Rate || t.Stages() > 1 {
		return nil
	}
	last := float64(t.Count())*float64(s.Connections) - 1
	if takes := last / s.Shape.PerS; takes > s.PhaseTimeout.Seconds() {
		return usagef("run: %.0f connections at --connect %s take %.3g s, longer than --phase-timeout %v: raise one of them",
			last+1, s.Shape, takes, s.PhaseTimeout)
	}
	return nil
}
