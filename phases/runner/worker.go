package runner

import (
	"runtime"
	"sync/atomic"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

const (
	chunk = 64                    // connections started between two polls
	early = time.Millisecond      // before the agreed start nobody connects who belongs to the job; more than the clocks differ
	tick  = 50 * time.Millisecond // longest sleep in Wait: bounds how late a stall or an abort is noticed
)

// connState is what a worker knows about one connection, either side.
type connState uint8

const (
	connNone   connState = iota // not created
	connLive                    // usable for the next step
	connFailed                  // a step failed; only destroy is left
	connGone                    // destroyed
)

type commandKind uint8

const (
	cmdPrepare commandKind = iota + 1
	cmdBegin
)

type command struct {
	kind  commandKind
	slot  phases.Slot
	at    int64         // cmdBegin: own clock
	delay time.Duration // cmdBegin: --delay of this rank and phase
}

type resultKind uint8

const (
	resReady   resultKind = iota // preparation over
	resDone                      // own initiator work over, perhaps still serving
	resStopped                   // no longer serving; the stamps may be read
	resKinds
)

// result says that the last worker of the process has answered, or that one failed.
type result struct {
	kind resultKind
	seq  int32
	err  error // the job cannot go on; more answers follow
}

// incoming is an accepted connection as its hello told.
type incoming struct {
	from rank.Rank
	conn int32
}

// worker drives one transport.Worker: the connections i of its rank's plan
// with i mod threads == idx, and whatever it accepts.
type worker struct {
	rk   *localRank
	idx  int
	tw   transport.Worker
	cmds chan command

	out, in int // connections initiated; at most accepted
	state   []connState
	passed  []bool     // own connection is through with the running step
	peers   []incoming // accepted connection i is out+i
	nIn     int        // accepted in this round

	stamps *collect.Stamps
	mimic  *collect.Stamps // rows of --mimic, nil without or if the provider plays

	created []int64         // own clock: when the creation of an initiated connection began; nil unless asked for
	whole   *collect.Stamps // from there to full connect
	idle    int64           // between the slots of this round so far
	left    int64           // own clock: when the slot before was left
	vouch   vouch

	ev  []transport.Event
	due []int64

	// of the running slot
	slot     phases.Slot
	waiting  transport.Step // the event that ends a connection's work
	next     int            // own connections below it have been begun, or will not be …
	end      int            // … and these are all
	inflight int
	finished int   // own connections that are through, either way
	failed   int64 // either side
	lost     int64 // initiated connections among them
	dead     int64
	broke    int64 // initiated connections that broke when no step was under way on them
	started  int64
	at       int64 // own clock: agreed start
	released int64 // own clock: the agreed start had come
	began    int64 // work began, after --delay
	ended    int64
	gap      int64
	gapEnd   int64 // own clock
	seen     int64 // when the last poll or wait returned
	errs     []rank.Error

	from     int             // where the running step began
	seenGone *phases.ProcSet // of process.gone

	stop      atomic.Bool
	completed atomic.Int64 // for the display
	planned   atomic.Int64
}

// reset forgets the previous slot's figures.
func (w *worker) reset(s phases.Slot) {
	w.slot = s
	w.inflight, w.finished, w.failed, w.lost, w.dead, w.broke, w.started = 0, 0, 0, 0, 0, 0, 0
	w.released, w.began, w.ended, w.gap, w.gapEnd = 0, 0, 0, -1, 0
	w.errs = w.errs[:0]
	w.completed.Store(0)
	w.planned.Store(0)
	w.stop.Store(false)
	w.stamps.Reset()
	if w.mimic != nil {
		w.mimic.Reset()
	}
}

// loop runs until its commands end.
func (w *worker) loop() {
	p := w.rk.p
	if p.lock {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	defer p.workers.Done()
	for c := range w.cmds {
		switch c.kind {
		case cmdPrepare:
			p.answer(resReady, c.slot.Seq, w.prepare(c.slot))
		case cmdBegin:
			w.begin(c)
			if !serves(c.slot.Phase) {
				p.answer(resStopped, c.slot.Seq, nil)
				p.answer(resDone, c.slot.Seq, nil)
				continue
			}
			p.answer(resDone, c.slot.Seq, nil)
			w.serve()
			p.answer(resStopped, c.slot.Seq, nil)
		}
	}
}

// serves says whether peers need this rank in a phase after its own work is over.
func serves(ph phases.Token) bool {
	return ph == phases.Connect || ph == phases.Probe || ph == phases.Disconnect
}

// prepares says whether a phase has untimed work before it.
func prepares(ph phases.Token) bool { return ph == phases.Create || ph == phases.Resolve }

// prepare does the untimed work before a slot.
func (w *worker) prepare(s phases.Slot) error {
	switch s.Phase {
	case phases.Create:
		w.nIn = 0
		clear(w.state)
		if w.idx == 0 {
			w.rk.expect.reset() // nobody serves before all workers are prepared
		}
		return w.tw.Reserve(w.out, w.in)
	case phases.Resolve:
		return w.assign()
	}
	return nil
}

// assign tells the provider where each connection goes.
func (w *worker) assign() error {
	var hello transport.Hello
	for j := range w.out {
		if w.state[j] != connLive {
			continue
		}
		e, conn := w.rk.plan.Edge(w.planIndex(j))
		addr, ok := w.rk.p.addrs[e.To]
		if !ok {
			err := rank.Errorf(rank.KindInternal, "no endpoint address was published")
			err.Ranks, err.Phase, err.Peer = []rank.Rank{w.rk.rank}, string(phases.Publish), e.To
			return err
		}
		w.hello(&hello, e.From, e.To, conn)
		if err := w.tw.Assign(transport.Conn(j), addr, &hello); err != nil {
			return w.rk.wrap(w.slot.Phase, "assign", e.To, err)
		}
	}
	return nil
}

// planIndex maps this worker's connection j to the rank's plan.
func (w *worker) planIndex(j int) int { return j*w.rk.p.deal + w.idx }

// stageRange are this worker's connections of a stage: [from, end).
func (w *worker) stageRange(stage int32) (from, end int) {
	span := w.rk.plan.Stages[stage]
	return w.share(span.First), w.share(span.First + span.N)
}

// share is how many of the plan's connections [0, i) are this worker's. Workers beyond those that the shape deals
// connections to have none and only serve.
func (w *worker) share(i int) int {
	n := w.rk.p.deal
	if w.idx >= n {
		return 0
	}
	return (i - w.idx + n - 1) / n
}

func (w *worker) now() int64 { return w.rk.p.clock.Now() }

// begin waits for the go and does the slot's own work.
func (w *worker) begin(c command) {
	p := w.rk.p
	w.at = c.at
	if c.slot.Phase == phases.Connect {
		w.clearQueue(c.at - int64(early))
	}
	p.clock.SleepUntil(c.at, p.spin)
	w.released = w.now()
	if serves(c.slot.Phase) { // the display counts those who are held up, too
		from, end := 0, w.out
		if c.slot.Phase == phases.Connect {
			from, end = w.stageRange(c.slot.Stage)
		}
		w.planned.Store(int64(end - from))
	}
	if c.delay > 0 {
		w.pause(c.at + int64(c.delay))
	}
	w.began = w.now()
	if c.slot.Phase == phases.Create { // a round begins
		w.idle = 0
	} else {
		w.idle += w.began - w.left
	}
	defer func() {
		w.ended = w.now()
		w.left = w.ended
		w.completed.Store(int64(w.finished))
	}()
	entry, _ := phases.Lookup(c.slot.Phase)
	switch c.slot.Phase {
	case phases.Create, phases.Bind, phases.Resolve, phases.QP:
		for _, s := range entry.Steps {
			if p.steps.Has(s) {
				w.each(s, 0, w.out)
			}
		}
		if c.slot.Phase == phases.QP && w.sleeps() {
			w.mimicAll(transport.StepCreateQP, transport.StepInitQP)
		}
	case phases.Listen:
		if w.idx == 0 {
			w.rk.listen()
		}
	case phases.Connect:
		w.connect(c.at)
	case phases.Probe:
		w.each(transport.StepProbe, 0, w.out)
	case phases.Disconnect:
		w.each(transport.StepDisconnect, 0, w.out)
	case phases.Destroy:
		for _, s := range entry.Steps {
			if p.steps.Has(s) {
				w.destroy(s)
			}
		}
	}
}

// clearQueue takes what has come to the listener before the storm: strangers only, who would fill the places in the
// backlog that the peers need in a moment.
func (w *worker) clearQueue(until int64) {
	for now := w.now(); now < until && !w.stop.Load(); now = w.now() {
		n, err := w.tw.Wait(min(until, now+int64(tick)), w.ev)
		for i := range n {
			w.handle(&w.ev[i])
		}
		if err != nil {
			return // the storm finds out as well, and says so
		}
	}
}

// sleeps says that this worker sleeps in place of queue pair steps.
func (w *worker) sleeps() bool { return w.mimic != nil && w.rk.pass.NoQPs }

// pause holds the worker until t without polling, as --delay and --mimic ask; an abort ends it.
func (w *worker) pause(t int64) {
	for now := w.now(); now < t && !w.stop.Load(); now = w.now() {
		w.rk.p.clock.SleepUntil(min(t, now+int64(tick)), 0)
	}
}

// neverBegun fails the connections whose turn did not come before the deadline: later phases must not count on them.
func (w *worker) neverBegun() {
	if w.stop.Load() {
		return // the job ends here, nothing comes later
	}
	for ; w.next < w.end; w.next++ {
		if w.state[w.next] == connLive {
			w.inflight++
			w.fail(w.next, w.waiting, transport.CauseTimeout, nil)
			w.through(w.next)
		}
	}
}

// dropGone fails the connections of the running step to processes that are gone: nobody answers on them, and the other
// kernel need not say so, if the process was stopped or the network cut.
func (w *worker) dropGone(gone *phases.ProcSet) {
	if !serves(w.slot.Phase) {
		return
	}
	for c := w.from; c < w.end; c++ {
		if w.state[c] != connLive || w.passed[c] || !gone.Has(w.rk.p.table.ProcOf(w.peer(c))) {
			continue
		}
		if c < w.next {
			w.tw.Abandon(transport.Conn(c))
		} else { // not begun, and never will be
			w.inflight++
		}
		w.fail(c, w.under(c, w.waiting), transport.CauseClosed, nil)
		w.through(c)
	}
}
