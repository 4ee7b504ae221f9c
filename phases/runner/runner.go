package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/transport"
)

// Run carries out this process's part of a job. The error is nil after a clean
// job; otherwise rank.ExitCode gives the process's exit code, and Silent says
// whether somebody else already tells the user.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Spec.Validate(); err != nil {
		return err
	}
	p := &process{
		started: time.Now(), startNS: cfg.Clock.Now(),
		cfg: cfg, spec: cfg.Spec, clock: cfg.Clock, steps: cfg.Provider.Steps(),
		addrs: make(map[rank.Rank]transport.Address), scratch: collect.NewHistogram(),
	}
	if cfg.Threads > 0 {
		p.spec.Threads = cfg.Threads
	}
	if !cfg.Shared {
		p.spare = newSpare()
		defer func() { p.spare.giveBack() }()
	}
	if err := p.holdBefore(ctx, phases.Gather); err != nil {
		if p.told {
			return quiet{err}
		}
		return err
	}
	rc := cfg.Rendezvous
	rc.Procs, rc.K, rc.Settings = cfg.Spec.Procs, cfg.Spec.RanksPerProc, cfg.Spec.Settings()
	rc.JoinTimeout, rc.LivenessTimeout = cfg.Spec.JoinTimeout, cfg.Spec.LivenessTimeout
	rc.TreeArity, rc.ProcsPerAgent = cfg.Spec.TreeArity, cfg.Spec.ProcsPerAgent
	rc.Clock = cfg.Clock
	group, err := rendezvous.Join(ctx, rc)
	if err != nil {
		if rendezvous.Told(err) {
			return quiet{err}
		}
		return err
	}
	defer group.Close()
	if cfg.Joined != nil {
		cfg.Joined()
	}
	return p.run(ctx, group)
}

// run is Run after the group has formed.
func (p *process) run(ctx context.Context, group Group) error {
	p.group, p.table, p.self = group, group.Table(), group.Self()
	p.cfg.Stderr = &oneAtATime{w: p.stderr()} // the report is written by a goroutine of its own
	// The table and the spec are the same everywhere, and so is what is wrong with them: the root tells. This
	// stands before anything that needs the others, who may be gone because of it.
	err := p.arrange()
	var topo rank.Topology
	if err == nil {
		topo, err = rank.NewTopology(p.table, p.spec.Topology)
	}
	if err == nil {
		p.topo = topo
		p.sched, err = phases.NewSchedule(p.spec, topo.Stages(), Wired(p.spec))
	}
	if err == nil && p.plays() {
		p.numbers, err = newNumbers(topo, p.table.Size(), p.spec.Connections, p.firstQPN)
	}
	switch {
	case err != nil && group.Parent() != rank.NoProc:
		return quiet{err}
	case err != nil:
		return err
	}
	if len(p.table.Procs) > crowdOfKnocks && group.Parent() == rank.NoProc && !p.cfg.Shared {
		// Answering everybody's knock took memory that is not needed again; the storm is measured without it.
		debug.FreeOSMemory()
	}
	if err := group.SyncClock(ctx); err != nil && ctx.Err() == nil && rank.AsError(err, rank.KindInternal).Kind != rank.KindLost {
		return err
	}
	// A signal or the loss of the parent is for the machines, so that all others hear of it.
	if p.cfg.Verbose > 0 {
		p.sayAddresses()
	}
	p.share()
	if stat := p.schedStat(); stat != nil {
		p.pulse = newPulse(p.clock, stat, p.workersOnHost()/max(1, p.cfg.CPUs))
		defer p.pulse.stop()
	}
	p.deal = p.spec.Shape.Workers(p.spec.Threads)
	if p.spec.Shape.Kind == phases.Rate {
		p.storms = newStorms(topo, p.table.Size())
	}
	limits := p.spec.Limits()
	procs := len(p.table.Procs)
	var children []phases.Child
	for _, c := range group.Children() {
		children = append(children, phases.Child{Proc: c, Subtree: p.subtree(c)})
	}
	p.ahead = holdsAhead(p.spec.Holds)
	p.member = phases.NewMember(phases.MemberConfig{
		Self: p.self, Parent: group.Parent(), Children: children, Procs: procs,
		Schedule: p.sched, Limits: limits, Merge: p.merge, Filter: p.filter, Describe: p.describe,
	})
	p.step(phases.MemberInput{Kind: phases.MTick}) // starts its own deadline for the first slot
	if group.Parent() == rank.NoProc {
		p.root = &rootShell{p: p, doc: collect.NewDocument(p.meta()), display: newDisplay(p)}
		p.root.m = phases.NewRoot(phases.RootConfig{
			Self: p.self, Procs: procs, Schedule: p.sched, Limits: limits, Began: p.startNS, Merge: p.merge, Describe: p.describe,
		})
		p.queue = append(p.queue, func() {
			p.root.step(phases.Input{Kind: phases.InStart, TreeTime: group.TreeTime()})
		})
	}
	if p.cfg.Watched && p.root == nil {
		_, ranks := p.describe(p.self)
		who := "rank"
		if len(ranks) > 1 {
			who = "ranks"
		}
		root := p.table.Entry(0)
		p.tell("this is %s %s of %d; rank 0 on %s (pid %d) prints the table", who, rank.FormatRanks(ranks), p.table.Size(), root.Host, root.PID)
	}
	p.drain()
	p.drive(ctx)
	p.shut()
	_ = group.Close() // says goodbye; the job is over for the others too
	if p.root != nil {
		return p.root.end()
	}
	return p.leave()
}

// arrange takes from the table what the spec left open.
func (p *process) arrange() error {
	p.firstQPN = defaultFirstQPN
	if p.cfg.Arrange == nil {
		return nil
	}
	a, err := p.cfg.Arrange(p.table)
	p.spec.Topology, p.firstQPN = a.Topology, a.FirstQPN
	return err
}

// workersOnHost are those of all processes on this host.
func (p *process) workersOnHost() int { return len(p.table.HostRanks(p.host())) * p.spec.Threads }

// share decides how this process's workers wait, given how many share the host.
func (p *process) share() {
	if p.cfg.CPUs <= 0 {
		return
	}
	workers := p.workersOnHost()
	p.crowded = workers > 8*p.cfg.CPUs
	p.lock = !p.crowded
	// More processes than CPUs: threads of one process that wake each other on different CPUs only push the others out.
	if procs := workers / p.spec.Threads / p.spec.RanksPerProc; procs > p.cfg.CPUs && !p.cfg.Shared && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if workers <= p.cfg.CPUs {
		p.spin = spinLast
	}
}

// schedStat is how this process learns what the scheduler counts; nil: not at all.
func (p *process) schedStat() SchedStat {
	switch {
	case p.cfg.SchedStat != nil:
		return p.cfg.SchedStat
	case p.cfg.Shared:
		return nil
	}
	return newSchedStat()
}

// crowdOfKnocks is the number of processes from which what gathering took is worth giving back.
const crowdOfKnocks = 32

// first is the lowest rank of this process.
func (p *process) first() rank.Rank {
	r, _ := p.table.RanksOf(p.self)
	return r
}

// Wired says which phases a job with that spec goes through.
func Wired(s phases.Spec) func(phases.Token) bool {
	return func(t phases.Token) bool { return phases.Enters(t) && (t != phases.Probe || !s.NoProbe) }
}

// subtree are the processes that hang below a child, itself included.
func (p *process) subtree(child rank.Proc) phases.ProcSet {
	return phases.SetOf(p.group.Subtree(child)...)
}

// holdBefore waits as --hold asks of a phase in which this process does not know the others yet.
func (p *process) holdBefore(ctx context.Context, ph phases.Token) error {
	for _, h := range p.spec.Holds {
		if h.Phase != ph {
			continue
		}
		p.sayHold(h)
		select {
		case <-time.After(h.For):
		case <-ctx.Done():
			return p.cancelled(ctx)
		}
	}
	return nil
}

// sayHold names who waits, so that a person or script can act on it.
func (p *process) sayHold(h phases.Hold) {
	who := ""
	if p.table != nil {
		_, ranks := p.describe(p.self)
		who = "rank " + rank.FormatRanks(ranks) + " "
	}
	p.say("holding %spid %d phase %s for %v", who, os.Getpid(), h.Phase, h.For)
}

// quiet wraps an error that the root tells the user about.
type quiet struct{ error }

func (q quiet) Unwrap() error { return q.error }

// Silent says that the error of Run need not be printed here: the controller or the root tells it.
func Silent(err error) bool {
	var q quiet
	return errors.As(err, &q)
}

// leave is the end of a process that is not the root.
func (p *process) leave() error {
	if p.exit.code == 0 {
		return nil
	}
	e := p.exit.cause
	if e == nil {
		e = rank.Errorf(rank.KindFailed, "the job ended with exit code %d", p.exit.code)
	}
	// The offender speaks for itself, and whoever lost the root has nobody to speak for it.
	if e.Proc == p.self && !p.told || p.lastErr != nil || p.orphaned {
		return withCode(e, p.exit.code)
	}
	return quiet{withCode(e, p.exit.code)}
}

// coded gives an error another exit code than its kind has.
type coded struct {
	cause *rank.Error
	code  int
}

func (c coded) Error() string { return c.cause.Error() }
func (c coded) Unwrap() error { return c.cause }

func withCode(e *rank.Error, code int) error {
	if rank.ExitCode(e) == code {
		return e
	}
	return coded{e, code}
}

// ExitCode of what Run returned.
func ExitCode(err error) int {
	if c, ok := errors.AsType[coded](err); ok {
		return c.code
	}
	return rank.ExitCode(err)
}

// say writes one line to the user.
func (p *process) say(format string, args ...any) {
	if p.root != nil {
		p.root.display.clear()
	}
	p.tell(format, args...)
}

// tell writes one line to the user, whatever the driver shows.
func (p *process) tell(format string, args ...any) {
	fmt.Fprintf(p.stderr(), "rankstorm: "+format+"\n", args...)
}

// note tells something that does not end the job; the root also keeps it in the document.
func (p *process) note(format string, args ...any) {
	if p.root != nil {
		p.root.doc.Warn(fmt.Sprintf(format, args...))
	}
	p.say(format, args...)
}
