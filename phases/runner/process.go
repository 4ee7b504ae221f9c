package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/transport"
)

const (
	maxErrors     = 4                      // failures told in words per worker and slot; all are counted
	progressEvery = 250 * time.Millisecond // how often a process tells how far it is
	spinLast      = 200 * time.Microsecond // of the wait for the agreed start, if there are cores to spare
)

// Group is what the runner needs of the control plane; *rendezvous.Group fits.
type Group interface {
	Table() *rank.Table
	Self() rank.Proc
	Parent() rank.Proc
	Children() []rank.Proc
	Subtree(child rank.Proc) []rank.Proc
	SendUp(payload []byte) error
	SendDown(child rank.Proc, payload []byte) error
	Broadcast(payload []byte) error
	Events() <-chan rendezvous.Event
	SyncClock(ctx context.Context) error
	Offset() (offsetNS, boundNS int64)
	TreeTime() time.Duration
	Stats() rendezvous.Stats
	Ports() []uint16
	DataKey() []byte
	Reattach(word []byte)
	Adopt(orphan rank.Proc) error
	TurnAway(orphan rank.Proc, why *rank.Error)
	Abandon()
	Stood() (gap time.Duration, ended int64)
	Close() error
}

// stage of the running slot as the driver sees its workers.
type workStage uint8

const (
	workIdle      workStage = iota
	workPreparing           // cmdPrepare is out
	workReady
	workArmed    // crowded: waits for the agreed start
	workRunning  // cmdBegin is out
	workStopping // stop is set, summaries wait for the last worker
)

// process is one process of the job: the driver's state.
type process struct {
	cfg     Config
	spec    phases.Spec
	started time.Time
	startNS int64 // own clock: Run began
	clock   transport.Clock
	group   Group
	table   *rank.Table
	spare   spare
	pulse   *pulse // nil: what the scheduler counts says nothing about this process
	topo    rank.Topology
	self    rank.Proc
	ranks   []*localRank
	steps   transport.StepSet
	spin    time.Duration
	// crowded says that there are more workers on this host than cores. Then they sleep without threads, and hear of a
	// slot only when it starts: waking them before would keep the go itself from those who have not heard it yet.
	crowded bool
	lock    bool // a thread for each worker
	sched   *phases.Schedule
	deal    int     // workers of a rank that connections are dealt to
	storms  *storms // rate only: who initiates how much

	firstQPN uint32
	numbers  numbers // if queue pairs are played by the provider

	scratch  *collect.Histogram
	orphaned bool // the parent is gone: nobody else tells the user
	parting  parting

	searching bool        // for the root
	searchFor *rank.Error // why
	askers    []asker
	adopted   int // children that were orphans
	kept      []kept
	keptBytes int
	summed    bool // the summary of the slot was made
	wantAll   bool // a successor asks for all summaries

	closed bool // shut has run

	addrs   map[rank.Rank]transport.Address // published endpoint addresses
	results chan result
	workers sync.WaitGroup
	opened  bool

	member     *phases.Member
	root       *rootShell // nil but at the process of rank 0
	queue      []func()   // inputs of the machines, in order
	memberWake int64      // root's clock, 0 none
	rootWake   int64

	gone    atomic.Pointer[phases.ProcSet] // lost processes, for the workers; never changed in place
	pending [resKinds]atomic.Int32         // workers that have not yet answered
	stopped bool                           // all workers stand still
	release *time.Timer                    // crowded: commands go out at the agreed start

	slot      phases.Slot
	last      bool // no slot follows it
	stage     workStage
	aborting  bool
	lossTold  bool  // no hold begins any more
	readyAt   int64 // own clock
	goAt      int64 // own clock: go heard
	at        int64 // root's clock: agreed start
	heard     int64 // own clock: when the event in hand was read
	exchange  exchangeStamp
	hold      *time.Timer
	afterHold func()        // what the hold keeps back
	ahead     []phases.Hold // of seal and clock, still to come
	aheadOf   phases.Token  // the phase that is held ahead of the first slot, "" none

	control collect.Control // since the last summary
	refused refusals
	before  collect.ProcResources
	ports   ports
	stacks  []runtime.StackRecord // of holds
	exit    *exitState
	lastErr *rank.Error
	told    bool // why this process was to end is told by another one
}

// exitState is set by the member's MExit.
type exitState struct {
	code  int
	cause *rank.Error
}

// now is the moment on the root's clock, which the machines live by.
func (p *process) now() int64 {
	offset, _ := p.group.Offset()
	return p.clock.Now() + offset
}

// lost names a process that is gone.
func (p *process) lost(proc rank.Proc, err error) *rank.Error {
	var e *rank.Error
	if errors.As(err, &e) && e.Kind == rank.KindLost && e.Proc == proc && len(e.Ranks) > 0 {
		return e
	}
	host, ranks := p.describe(proc)
	pid := p.table.Entry(proc).PID
	text := "control link closed"
	if err != nil {
		text = err.Error()
		if e != nil && e.Proc == proc && e.Err != nil { // who and where are said already
			text = e.Err.Error()
		}
	}
	if own := p.table.Entry(p.self).Host; own != host { // it may be the network between them: name both ends
		text = fmt.Sprintf("control link to process %d (%s): %s", p.self, own, text)
	}
	return &rank.Error{
		Kind: rank.KindLost, Proc: proc, Ranks: ranks, Host: host, Phase: string(p.phase()), Peer: rank.None,
		Text: fmt.Sprintf("process %d (pid %d) was lost: %s", proc, pid, text),
	}
}

// describe says where a process is and which ranks it hosts.
func (p *process) describe(proc rank.Proc) (host string, ranks []rank.Rank) {
	first, n := p.table.RanksOf(proc)
	for i := range n {
		ranks = append(ranks, first+rank.Rank(i))
	}
	return p.table.Entry(proc).Host, ranks
}

// prepare starts the untimed work of a slot.
func (p *process) prepare(s phases.Slot) {
	p.slot, p.stage, p.aborting, p.summed = s, workPreparing, false, false
	p.exchange = exchangeStamp{}
	p.readyAt, p.goAt, p.at = 0, 0, 0
	if !p.opened {
		if err := p.open(); err != nil {
			p.stage = workReady // nothing runs that would have to be waited for
			p.impossible(err)
			return
		}
	}
	for _, rk := range p.ranks {
		if s.Phase == phases.Create { // the first of a round
			if err := rk.enter(s.Round); err != nil {
				p.stage = workReady
				p.impossible(err)
				return
			}
		}
		for _, w := range rk.workers {
			w.reset(s)
		}
	}
	if prepares(s.Phase) {
		p.expect(resReady)
		p.command(command{kind: cmdPrepare, slot: s})
		return
	}
	p.ready()
}

// ready says that this process can start the slot.
func (p *process) ready() {
	p.stage, p.aheadOf = workReady, ""
	if len(p.ahead) > 0 {
		h := p.ahead[0]
		p.ahead, p.aheadOf = p.ahead[1:], h.Phase
		p.holdFor(h, p.ready)
		return
	}
	p.readyAt = p.clock.Now()
	p.step(phases.MemberInput{Kind: phases.MLocalReady, Seq: p.slot.Seq})
}

// phase is what this process is doing as its user sees it.
func (p *process) phase() phases.Token {
	if p.aheadOf != "" {
		return p.aheadOf
	}
	return p.slot.Phase
}

// holdsAhead are the holds of the phases before the lockstep. The process takes them when it could start the first slot:
// from there on it hears of losses, and leaves with the others.
func holdsAhead(holds []phases.Hold) (ahead []phases.Hold) {
	for _, ph := range []phases.Token{phases.Seal, phases.ClockSync} {
		for _, h := range holds {
			if h.Phase == ph {
				ahead = append(ahead, h)
			}
		}
	}
	return ahead
}

// impossible ends the job because this process cannot go on.
func (p *process) impossible(err error) {
	var e *rank.Error
	if !errors.As(err, &e) {
		e = rank.Errorf(rank.KindFailed, "%w", err)
		e.Proc, e.Host, e.Phase = p.self, p.table.Entry(p.self).Host, string(p.slot.Phase)
	}
	p.lastErr = e
	p.step(phases.MemberInput{Kind: phases.MCancel, Cause: e})
}

// expect begins to count answers.
func (p *process) expect(kinds ...resultKind) {
	for _, k := range kinds {
		p.pending[k].Store(int32(len(p.ranks) * p.spec.Threads))
	}
}

// answer is called by the workers. Only the last one of a kind reaches the driver, and failures.
func (p *process) answer(kind resultKind, seq int32, err error) {
	if err != nil {
		p.results <- result{kind: kind, seq: seq, err: err}
	}
	if p.pending[kind].Add(-1) == 0 {
		p.results <- result{kind: kind, seq: seq}
	}
}

// command sends to every worker.
func (p *process) command(c command) {
	for _, rk := range p.ranks {
		c.delay = rk.delay(c.slot.Phase)
		for _, w := range rk.workers {
			w.cmds <- c // holds one; the worker is idle, so this never waits
		}
	}
}

// begin starts the slot at T on the root's clock.
func (p *process) begin(seq int32, t int64) {
	if seq != p.slot.Seq || p.stage != workReady {
		return
	}
	if w := p.cfg.Witness; w != nil {
		w.Begins(p.slot)
	}
	p.at, p.goAt = t, p.heard
	if p.root != nil {
		p.goAt = p.clock.Now()
	}
	if p.crowded {
		p.stage = workArmed
		p.release = time.NewTimer(time.Duration(t - p.now()))
		return
	}
	p.start()
}

// start sends the workers off; they wait for T themselves.
func (p *process) start() {
	offset, _ := p.group.Offset()
	p.stage, p.stopped = workRunning, false
	p.expect(resDone, resStopped)
	p.command(command{kind: cmdBegin, slot: p.slot, at: p.at - offset})
}

// result takes the workers' answer.
func (p *process) result(r result) {
	if r.err != nil {
		if p.lastErr == nil {
			p.impossible(r.err)
		}
		return
	}
	switch r.kind {
	case resReady:
		switch {
		case p.stage == workStopping:
			p.summarise()
		case p.lastErr == nil:
			p.ready()
		default:
			p.stage = workReady
		}
	case resStopped:
		p.stopped = true
		if p.stage == workStopping {
			p.summarise()
		}
	case resDone:
		if p.stage == workRunning {
			p.workDone()
		}
	}
}

// workDone follows the last worker's own work.
func (p *process) workDone() {
	for _, rk := range p.ranks {
		if rk.err != nil && p.lastErr == nil {
			p.impossible(rk.wrap(p.slot.Phase, "listen", rank.None, rk.err))
			return
		}
	}
	for _, h := range p.spec.Holds {
		if h.Phase == p.slot.Phase && !p.lossTold {
			p.holdFor(h, p.reportDone)
			return
		}
	}
	p.reportDone()
}

// holdFor tells who waits and waits, as --hold asks; then goes on.
func (p *process) holdFor(h phases.Hold, then func()) {
	p.afterHold = then
	p.sayHold(h)
	p.hold = time.NewTimer(h.For)
}

// reportDone says that the process's own work of the slot is over.
func (p *process) reportDone() {
	if p.stage != workRunning {
		return
	}
	in := phases.MemberInput{Kind: phases.MLocalDone, Seq: p.slot.Seq}
	for _, rk := range p.ranks {
		for _, w := range rk.workers {
			in.Failed += w.failed + w.broke
		}
	}
	if p.slot.Phase == phases.Publish {
		in.Body = p.ownAddresses()
	}
	p.step(in)
}

// collect stops the workers; the summary follows when the last has stopped.
func (p *process) collect(out phases.MemberOutput) {
	if out.Seq != p.slot.Seq {
		return
	}
	if p.hold != nil {
		p.hold.Stop()
		p.hold = nil
	}
	p.wantAll = p.wantAll || out.All
	if p.summed { // asked for again
		p.giveSummary()
		return
	}
	p.aborting = p.aborting || out.Abort
	if p.slot.Phase == phases.Publish && !out.Abort {
		p.takeAddresses(out.Msg.Body)
	}
	was := p.stage
	p.stage = workStopping
	switch {
	case was == workStopping: // the last worker's answer is still awaited
	case was == workPreparing: // summarised when the last worker is ready
	case was == workRunning && !p.stopped:
		for _, rk := range p.ranks {
			for _, w := range rk.workers {
				w.stop.Store(true)
				w.tw.Wake()
			}
		}
	default:
		if p.release != nil {
			p.release.Stop()
			p.release = nil
		}
		p.summarise()
	}
}
