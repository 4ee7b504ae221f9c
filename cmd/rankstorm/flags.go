package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"rankstorm/phases"
)

// list is a flag that may be repeated. One value may hold several, separated
// by semicolons or blanks, which is how an environment variable says it.
type list struct{ values []string }

func (l *list) String() string { return strings.Join(l.values, ";") }

func (l *list) Type() string { return "list" }

// Set adds to what was given before.
func (l *list) Set(text string) error {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ' ' })
	if len(words) == 0 {
		return errors.New("empty value")
	}
	l.values = append(l.values, words...)
	return nil
}

var errNegative = errors.New("negative")

// unset is the number of a flag that was not given.
const unset = -1

// optional is a number ≥ 0 that need not be given; unset prints as nothing, so
// that help shows no default.
type optional struct{ n *int }

func newOptional(n *int) optional {
	*n = unset
	return optional{n}
}

func (o optional) String() string {
	if o.n == nil || *o.n == unset {
		return ""
	}
	return strconv.Itoa(*o.n)
}

func (o optional) Type() string { return "int" }

// Set takes whole numbers; those below 0 are refused here, because unset is one.
func (o optional) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err == nil && n < 0 {
		err = errNegative
	}
	if err == nil {
		*o.n = n
	}
	return err
}

// topologyFlags are the flags that choose and shape a topology, as typed; run
// and plan share them.
type topologyFlags struct {
	topology        string
	custom          string
	initiators      string
	targets         string
	m2n             string
	offsets         string
	staged          bool
	hot             string
	hotShare        float64
	excludeSameHost bool
	seed            uint64
	connections     int
	threads         int
	transport       string
}

func (t *topologyFlags) register(flags *pflag.FlagSet) {
	d := phases.DefaultSpec()
	flags.StringVar(&t.topology, "topology", d.Topology.Name, "who connects to whom: see rankstorm help topologies")
	flags.StringVar(&t.custom, "custom", "", "`file` with an edge list or a byte matrix: the custom topology")
	flags.StringVar(&t.initiators, "initiators", "", "ranks that connect: a `list` such as 0,2-5 or host globs (default: the topology's)")
	flags.StringVar(&t.targets, "targets", "", "ranks that are connected to: a `list` (default: the topology's)")
	flags.StringVar(&t.m2n, "m2n", "", "m2n: `M:N`, the first M ranks connect to the last N (default: half and half)")
	flags.StringVar(&t.offsets, "offsets", "", "shift: a `list` such as 1,2,4 or 1-4, or all (default 1)")
	flags.BoolVar(&t.staged, "staged", false, "shift: take turns, one connect phase per offset")
	flags.StringVar(&t.hot, "hot", "", "hotspot: `list` of hot targets (default: the first target)")
	flags.Float64Var(&t.hotShare, "hot-share", 0, "hotspot: `share` of the traffic that hot targets get, between 0 and 1 (default 0.8)")
	flags.BoolVar(&t.excludeSameHost, "exclude-same-host", false, "drop edges between ranks of one host")
	flags.Uint64Var(&t.seed, "seed", d.Seed, "`number` that all random choices derive from")
	flags.IntVarP(&t.connections, "connections", "c", d.Connections, "connections per edge")
	flags.IntVarP(&t.threads, "threads", "n", d.Threads, "worker threads per rank")
	flags.StringVar(&t.transport, "transport", d.Transport, "what carries the connections: "+strings.Join(providerNames(), " or "))
}

// runFlags are the flags of run, as typed.
type runFlags struct {
	topologyFlags
	controller   string
	procs        int
	rank         int
	job          string
	secretFile   string
	spawn        int
	spawnHosts   int
	host         string
	ranksPerProc int
	iface        string
	bind         string
	ipv6         bool
	rdmaFlags

	connect string
	rounds  int
	mimic   int
	backlog int
	holds   list
	delays  list

	joinTimeout     time.Duration
	phaseTimeout    time.Duration
	livenessTimeout time.Duration
	maxTime         time.Duration
	treeArity       int
	procsPerAgent   int

	out     string
	quiet   bool
	verbose int
}

func (r *runFlags) register(flags *pflag.FlagSet) {
	d := phases.DefaultSpec()
	flags.SortFlags = false
	flags.StringVarP(&r.controller, "controller", "C", "", "`host[:port]` where the processes meet (default: from the launcher; port 7471 or one made from the launcher's job)")
	flags.IntVarP(&r.procs, "procs", "P", 0, "processes in the job (default: from the launcher)")
	flags.Var(newOptional(&r.rank), "rank", "`number` of this process, 0 to P-1 (default: the launcher's, else in order of host, start time and pid)")
	flags.StringVar(&r.job, "job", "", "`name` that keeps this job apart from others (default: the launcher's, else the controller's host:port)")
	flags.StringVar(&r.secretFile, "secret-file", "", "`file` with the secret that protects the job, the same everywhere; RANKSTORM_SECRET can hold its text instead")
	flags.IntVar(&r.spawn, "spawn", 0, "start `N` processes on this machine instead of being one")
	flags.IntVar(&r.spawnHosts, "spawn-hosts", 0, "with --spawn: give the processes `h` host names, h0 to h<h-1>")
	flags.StringVar(&r.host, "host", "", "host `name` of this process in the rank table (default: the machine's)")
	flags.IntVar(&r.ranksPerProc, "ranks-per-proc", d.RanksPerProc, "virtual ranks in each process")
	r.topologyFlags.register(flags)
	flags.StringVarP(&r.iface, "interface", "B", "", "use the address of these interfaces for data: a `list` such as eth0,eth1, in turn over the ranks of a host")
	flags.StringVarP(&r.bind, "bind", "b", "", "use these local addresses for data: a `list` such as 10.0.0.1,10.0.1.1, in turn over the ranks of a host, or 10.0.{local_rank}.1")
	flags.BoolVar(&r.ipv6, "ipv6", false, "with -B: take the interface's IPv6 address instead of its IPv4 address")
	r.rdmaFlags.register(flags)
	flags.StringVar(&r.connect, "connect", d.Shape.String(), "`shape` of the storm: burst, parallel=W (slots per rank) or rate=R (per second, whole job)")
	flags.IntVar(&r.rounds, "rounds", d.Rounds, "repeat set-up and teardown this many times (0 = until --max-time is over, or a signal)")
	flags.IntVar(&r.mimic, "mimic", 0, "replace queue pair steps by sleeps of `US` microseconds (0 = off)")
	flags.IntVar(&r.backlog, "backlog", 0, "length of the listen queue (0 = the largest possible)")
	flags.Var(&r.holds, "hold", "`PHASE=DUR`: every process waits after its work of the phase (may be repeated)")
	flags.Var(&r.delays, "delay", "`rank=R,phase=P,ms=N`: hold one rank at the start of a phase (may be repeated)")
	flags.DurationVar(&r.joinTimeout, "join-timeout", d.JoinTimeout, "give up if not everybody is there by then")
	flags.DurationVar(&r.phaseTimeout, "phase-timeout", d.PhaseTimeout, "longest time of one phase")
	flags.DurationVar(&r.livenessTimeout, "liveness-timeout", d.LivenessTimeout, "a process that does not answer for this long is lost")
	flags.DurationVar(&r.maxTime, "max-time", d.MaxTime, "longest time of the whole job (0 = no limit); with --rounds 0 the running round is finished")
	flags.IntVar(&r.treeArity, "tree-arity", d.TreeArity, "children per process in the control tree")
	flags.IntVar(&r.procsPerAgent, "procs-per-agent", d.ProcsPerAgent, "processes of one host that one gossip member speaks for")
	flags.StringVarP(&r.out, "out", "o", "", "result document: `file`, or - for standard output instead of the table (default rankstorm-<run id>.json)")
	flags.BoolVarP(&r.quiet, "quiet", "q", false, "no progress and no notes on standard error")
	flags.CountVarP(&r.verbose, "verbose", "v", "say more on standard error; twice for every barrier")
}

// planFlags are the flags of plan, as typed.
type planFlags struct {
	topologyFlags
	ranks        int
	ranksPerHost int
	ranksPerProc int
	rank         int
	list         int
	json         bool
}

func (p *planFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.IntVar(&p.ranks, "ranks", 0, "ranks in the job (required)")
	flags.IntVar(&p.ranksPerHost, "ranks-per-host", 1, "ranks on each host: n0 has the first ones")
	flags.IntVar(&p.ranksPerProc, "ranks-per-proc", 1, "virtual ranks in each process")
	p.topologyFlags.register(flags)
	flags.Var(newOptional(&p.rank), "rank", "print the plan of this `rank`: its targets and weights")
	flags.IntVar(&p.list, "list", 20, "with --rank: print at most this many targets")
	flags.BoolVar(&p.json, "json", false, "print the same facts as JSON")
}
