package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/transport"
	"rankstorm/transport/rdma"
	"rankstorm/transport/tcp"
)

// providers by the name that --transport takes.
var providers = map[string]func() transport.Provider{
	"rdma": rdma.New,
	"tcp":  tcp.New,
}

// providerNames lists the providers of this build, sorted.
func providerNames() []string { return slices.Sorted(maps.Keys(providers)) }

// maxCustomBytes bounds the file of --custom: it is read whole and compared by
// all processes. A byte matrix of 8,192 ranks fits.
const maxCustomBytes = 256 << 20

// params turns the topology flags into parameters. The custom file is read
// here, so that whatever is wrong with it is said before any socket.
func (t *topologyFlags) params(command string, named func(flag string) bool) (rank.Params, error) {
	p := rank.Params{
		Name: t.topology, Initiators: t.initiators, Targets: t.targets, Offsets: t.offsets, Staged: t.staged,
		Hot: t.hot, HotShare: t.hotShare, ExcludeSameHost: t.excludeSameHost, Seed: t.seed,
	}
	if named("hot-share") && !(t.hotShare > 0 && t.hotShare < 1) {
		return p, usagef("%s: --hot-share %v: give a number between 0 and 1, for instance 0.8", command, t.hotShare)
	}
	if t.m2n != "" {
		var err error
		if p.M, p.N, err = parseM2N(t.m2n); err != nil {
			return p, usagef("%s: --m2n %w", command, err)
		}
	}
	switch {
	case t.custom != "" && named("topology") && t.topology != "custom":
		return p, usagef("%s: --custom %s belongs to the custom topology, not to %s: leave one of them out", command, t.custom, t.topology)
	case t.custom != "":
		content, err := readBounded(t.custom, maxCustomBytes)
		if err != nil {
			return p, usagef("%s: --custom %s: %w: give a file with an edge list or a byte matrix", command, t.custom, err)
		}
		p.Name, p.File, p.Custom = "custom", t.custom, content
	case t.topology == "custom":
		return p, usagef("%s: topology custom needs a file: --custom FILE with an edge list or a byte matrix", command)
	}
	return p, nil
}

func parseM2N(text string) (m, n int, err error) {
	left, right, ok := strings.Cut(text, ":")
	m, errM := strconv.Atoi(left)
	n, errN := strconv.Atoi(right)
	if !ok || errM != nil || errN != nil || m < 1 || n < 1 {
		return 0, 0, fmt.Errorf("%q: write M:N with counts of at least 1, for instance 3:4", text)
	}
	return m, n, nil
}

// readBounded reads a file whole, and refuses what is larger than limit.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, plainPathError(err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, plainPathError(err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return content, nil
}

// plainPathError drops the call and the path, which the message names already.
func plainPathError(err error) error {
	if pe, ok := err.(*os.PathError); ok { //nolint:errorlint // os returns it unwrapped
		return pe.Err
	}
	return err
}

// spec turns the flags into what all processes must agree on. procs is the
// number of processes once flags and launcher were asked.
func (r *runFlags) spec(procs int, named func(flag string) bool) (phases.Spec, error) {
	s := phases.DefaultSpec()
	var err error
	if s.Topology, err = r.params("run", named); err != nil {
		return s, err
	}
	if s.Shape, err = phases.ParseShape(r.connect); err != nil {
		return s, inCommand("run", err)
	}
	for _, text := range r.holds.values {
		h, err := phases.ParseHold(text)
		if err != nil {
			return s, inCommand("run", err)
		}
		s.Holds = append(s.Holds, h)
	}
	for _, text := range r.delays.values {
		d, err := phases.ParseDelay(text)
		if err != nil {
			return s, inCommand("run", err)
		}
		s.Delays = append(s.Delays, d)
	}
	if _, ok := providers[r.transport]; !ok {
		return s, usagef("run: --transport %q is not known: use %s", r.transport, strings.Join(providerNames(), " or "))
	}
	if s.Options, err = r.options(r.transport); err != nil {
		return s, err
	}
	const most = int(time.Minute / time.Microsecond)
	if r.mimic < 0 || r.mimic > most {
		return s, usagef("run: --mimic %d: give 0 to %d µs", r.mimic, most)
	}
	s.Procs, s.RanksPerProc = procs, r.ranksPerProc
	s.Connections, s.Threads, s.Transport = r.connections, r.threads, r.transport
	s.Rounds, s.Mimic, s.Backlog, s.Seed = r.rounds, time.Duration(r.mimic)*time.Microsecond, r.backlog, r.seed
	s.JoinTimeout, s.PhaseTimeout, s.LivenessTimeout, s.MaxTime = r.joinTimeout, r.phaseTimeout, r.livenessTimeout, r.maxTime
	s.TreeArity, s.ProcsPerAgent = r.treeArity, r.procsPerAgent
	if err := s.Validate(); err != nil {
		return s, inCommand("run", err)
	}
	return s, nil
}

// inCommand puts the command's name in front of an error of another room.
func inCommand(command string, err error) error { return usagef("%s: %w", command, err) }

// launch says what this process is in the job: flags first (they include
// RANKSTORM_*), then what a parent or launcher left. More processes than the
// launcher started are a job of several launches: then only flags describe it.
func (r *runFlags) launch(found rendezvous.Launch) (rendezvous.Launch, error) {
	l := found
	if r.procs > found.Procs && found.Procs > 0 {
		l = rendezvous.Launch{
			Family: found.Family, Proc: -1, Procs: found.Procs, Launched: found.Launched, LocalIndex: -1, Ignored: found.Ignored, Advice: found.Advice,
			Controller: found.Controller, ControllerFrom: found.ControllerFrom,
		}
	}
	if r.controller != "" {
		l.Controller, l.ControllerFrom = r.controller, ""
	}
	if r.procs != 0 {
		l.Procs = r.procs
	}
	if r.rank != unset {
		l.Proc = r.rank
	}
	if r.job != "" {
		// Whoever names the job may start it from several launches: what follows from one of them does not count.
		l.JobKey, l.Port = r.job, 0
	}
	switch {
	case l.Procs < 0:
		return l, usagef("run: -P/--procs %d: give at least 1", l.Procs)
	case l.Controller == "" && l.Advice != "":
		return l, usagef("run: where do the processes meet? %s", l.Advice)
	case l.Controller == "" && l.Procs == 0:
		return l, usagef("run: where do the processes meet, and how many are they? on one machine: rankstorm run --spawn 8; on every node: rankstorm run -C FIRST_HOST -P COUNT")
	case l.Controller == "":
		return l, usagef("run: where do the processes meet? name the first host on every node, for instance -C n0, or use --spawn %d on one machine", l.Procs)
	case l.Procs == 0:
		return l, usagef("run: how many processes meet at %s? say so on every node, for instance -P 64", l.Controller)
	case l.Proc >= l.Procs && r.rank == unset:
		return l, usagef("run: -P/--procs %d: %s says that this is process %d of %d: leave -P out, or start %d", l.Procs, l.Family, l.Proc, max(found.Procs, l.Proc+1), l.Procs)
	case l.Proc >= l.Procs:
		return l, usagef("run: --rank %d: a process of %d has a number from 0 to %d", l.Proc, l.Procs, l.Procs-1)
	}
	if l.Port == 0 {
		l.Port = rendezvous.DefaultPort
	}
	return l, nil
}

// spawnConflicts refuses flags that have no meaning for the parent of a
// spawned job, because it gives them to its children itself.
func (r *runFlags) spawnConflicts(named func(flag string) bool) error {
	if r.spawn < 1 {
		return usagef("run: --spawn %d: give at least 1 process", r.spawn)
	}
	for _, flag := range []string{"controller", "procs", "rank", "job"} {
		if named(flag) {
			return usagef("run: --%s does not go with --spawn, which starts all processes on this machine: leave one of them out", flag)
		}
	}
	if named("spawn-hosts") && named("host") {
		return usagef("run: --host and --spawn-hosts both name the hosts: leave one of them out")
	}
	if named("spawn-hosts") && (r.spawnHosts < 1 || r.spawnHosts > r.spawn) {
		return usagef("run: --spawn-hosts %d: give 1 to %d, at most one host per process", r.spawnHosts, r.spawn)
	}
	return nil
}

// spawnedView is the table that a spawned job will have, as far as topologies
// care: process i on the host that Spawn gives it.
type spawnedView struct {
	procs, k, hosts int
}

func (v spawnedView) Size() int { return v.procs * v.k }

// firstProc of host h: blocks whose sizes differ by one at most, the same as
// rendezvous.Spawn makes them.
func (v spawnedView) firstProc(h int) int { return (h*v.procs + v.hosts - 1) / v.hosts }

func (v spawnedView) host(r rank.Rank) int { return int(r) / v.k * v.hosts / v.procs }

func (v spawnedView) HostOf(r rank.Rank) string { return "h" + strconv.Itoa(v.host(r)) }

func (v spawnedView) LocalRank(r rank.Rank) int { return int(r) - v.firstProc(v.host(r))*v.k }

func (v spawnedView) HostRanks(name string) []rank.Rank {
	for h := range v.hosts {
		if name != "h"+strconv.Itoa(h) {
			continue
		}
		var ranks []rank.Rank
		for r := v.firstProc(h) * v.k; r < v.firstProc(h+1)*v.k; r++ {
			ranks = append(ranks, rank.Rank(r))
		}
		return ranks
	}
	return nil
}

func (v spawnedView) Hosts() []string {
	names := make([]string, v.hosts)
	for i := range names {
		names[i] = "h" + strconv.Itoa(i)
	}
	return names
}

// namesHosts says that a topology depends on which rank is on which host, so
// that its plan is not known before the table is sealed.
func namesHosts(p rank.Params) bool {
	return p.Name == "rail" || p.ExcludeSameHost || !numbersOnly(p.Initiators) || !numbersOnly(p.Targets) || !numbersOnly(p.Hot) ||
		!numbersOnly(string(p.Custom))
}

// numberWord is a rank, range, weight or size, or the punctuation between them.
// A star stands before a weight; any other is a pattern of hosts.
var numberWord = regexp.MustCompile(`^[0-9:,.-]([0-9eEKMGT:,.+-]|\*[0-9.+-])*$`)

// numbersOnly says that a selection or custom file has no word that could be
// the name or pattern of a host. Comments do not count.
func numbersOnly(text string) bool {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.FieldsSeq(line) {
			if !numberWord.MatchString(word) {
				return false
			}
		}
	}
	return true
}
