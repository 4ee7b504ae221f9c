package runner

import (
	"errors"
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
	mimic  *collect.Stamps // rows of --mimic, nil without
	vouch  vouch

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
	started  int64
	at       int64 // own clock: agreed start
	released int64 // own clock: the agreed start had come
	began    int64 // work began, after --delay
	ended    int64
	gap      int64
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
	w.inflight, w.finished, w.failed, w.lost, w.dead, w.started = 0, 0, 0, 0, 0, 0
	w.released, w.began, w.ended, w.gap = 0, 0, 0, -1
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
	p.clock.SleepUntil(c.at, p.spin)
	w.released = w.now()
	if c.delay > 0 {
		w.pause(c.at + int64(c.delay))
	}
	w.began = w.now()
	defer func() {
		w.ended = w.now()
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
		if c.slot.Phase == phases.QP && w.mimic != nil {
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

// pause holds the worker until t without polling, as --delay and --mimic ask; an abort ends it.
func (w *worker) pause(t int64) {
	for now := w.now(); now < t && !w.stop.Load(); now = w.now() {
		w.rk.p.clock.SleepUntil(min(t, now+int64(tick)), 0)
	}
}

// run is the next stretch of up to most usable connections in [from, end);
// a probe or disconnect skips what never came up.
func (w *worker) run(from, end, most int) (first, n int) {
	for from < end && w.state[from] != connLive && !(w.slot.Phase == phases.Create && w.state[from] == connNone) {
		from++
	}
	n = 0
	for from+n < end && n < most && (w.state[from+n] == connLive || w.slot.Phase == phases.Create && w.state[from+n] == connNone) {
		n++
	}
	return from, n
}

// each starts step s on every usable connection of [from, end) as fast as the
// provider takes them and waits until all are through.
func (w *worker) each(s transport.Step, from, end int) {
	total := w.enter(s, from, end)
	deadline := w.deadline(s)
	for w.finished < total && !w.stop.Load() {
		if w.next < end {
			var n int
			w.next, n = w.run(w.next, end, chunk)
			if n > 0 {
				w.start(s, n, nil)
			}
			w.take(0)
			continue
		}
		if now := w.now(); now >= deadline {
			break
		}
		w.take(deadline)
	}
	w.giveUp(from, s)
}

// enter begins the bookkeeping of step s on [from, end) and says on how many of these it will be started.
func (w *worker) enter(s transport.Step, from, end int) (total int) {
	w.waiting, w.finished, w.inflight = s, 0, 0
	w.from, w.next, w.end = from, from, end
	w.seenGone = nil
	clear(w.passed)
	w.seen = w.now()
	for _, st := range w.state[from:end] {
		if st == connLive || w.slot.Phase == phases.Create {
			total++
		}
	}
	w.planned.Store(int64(total))
	return total
}

// deadline of a step: a silent peer makes a failed connection, not a reason to end the job, so the root must still
// hear of it in time. A first round trip or a close that takes three quarters of the phase's time is not coming; a
// connect gets all but the time that the report needs.
func (w *worker) deadline(s transport.Step) int64 {
	limit := w.rk.p.spec.PhaseTimeout
	switch s {
	case transport.StepProbe, transport.StepDisconnect:
		limit = limit * 3 / 4
	default:
		limit -= min(limit/8, 2*time.Second)
	}
	return w.at + int64(limit)
}

// start begins s on the next n connections, as many as the provider takes; one that it refuses has failed at once.
func (w *worker) start(s transport.Step, n int, due []int64) (begun int) {
	k, err := w.tw.Start(s, transport.Conn(w.next), n, due)
	w.inflight += k
	w.started += int64(k)
	w.next += k
	if err != nil && !errors.Is(err, transport.ErrAgain) {
		w.inflight++
		w.fail(w.next, s, causeOf(err), err)
		w.through(w.next)
		w.next++
		k++
	}
	return k
}

// connect dials this worker's connections of a stage in the asked shape while it serves requests.
func (w *worker) connect(at int64) {
	from, end := w.stageRange(w.slot.Stage)
	total := w.enter(transport.StepConnect, from, end)
	pacer := phases.NewPacer(w.rk.p.spec.Shape, w.rk.pacing(w), at)
	deadline := w.deadline(transport.StepConnect)
	begun := 0
	for w.finished < total && !w.stop.Load() {
		now := w.now()
		if now >= deadline {
			break
		}
		n, wake := pacer.Next(now, w.inflight)
		if n > 0 && w.next < end {
			w.next, n = w.run(w.next, end, min(n, chunk))
			var due []int64
			if pacer.Paced() {
				due = w.due[:n]
				for i := range due {
					due[i] = pacer.Due(int64(begun + i))
				}
			}
			n = w.start(transport.StepConnect, n, due)
			begun += n
			pacer.Began(n)
			w.take(0)
			continue
		}
		if w.next == end {
			wake = phases.Never
		}
		w.take(min(deadline, wake))
	}
	w.giveUp(from, transport.StepConnect)
	w.neverBegun()
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

// destroy ends both kinds of connections, whatever became of them.
func (w *worker) destroy(s transport.Step) {
	end := w.out + w.nIn
	last := s == transport.StepDestroyID
	w.enter(s, 0, 0)
	total := 0
	for _, st := range w.state[:end] {
		if st == connLive || st == connFailed {
			total++
		}
	}
	w.planned.Store(int64(total))
	for (w.next < end || w.finished < total) && !w.stop.Load() {
		for w.next < end && w.state[w.next] != connLive && w.state[w.next] != connFailed {
			w.next++
		}
		n := 0
		for w.next+n < end && n < chunk && (w.state[w.next+n] == connLive || w.state[w.next+n] == connFailed) {
			n++
		}
		if n > 0 {
			first := w.next
			w.start(s, n, nil)
			if last {
				for c := first; c < w.next; c++ {
					w.state[c] = connGone
				}
			}
			w.take(0)
			continue
		}
		w.take(w.now() + int64(tick))
	}
}

// serve answers peers until the driver says stop.
func (w *worker) serve() {
	for !w.stop.Load() {
		w.take(w.now() + int64(tick))
	}
	// The stop may come between an answer and the poll that tells of it: the initiator has read it, and the phase is
	// over. What is known here by now still belongs to this slot.
	for w.take(0) > 0 {
	}
}

// take handles what has happened. until 0 polls; else it sleeps until then at
// most, in slices, so that a stop is seen and a stall is measured.
func (w *worker) take(until int64) (n int) {
	now := w.now()
	w.stall(now - w.seen)
	var err error
	if until == 0 {
		n = w.tw.Poll(w.ev)
	} else {
		until = min(until, now+int64(tick))
		n, err = w.tw.Wait(until, w.ev)
		now = w.now()
		w.stall(now - until)
	}
	w.seen = now
	for i := range n {
		w.handle(&w.ev[i])
	}
	if err != nil && len(w.errs) < maxErrors {
		w.errs = append(w.errs, *w.rk.wrap(w.slot.Phase, "wait", rank.None, err))
	}
	if gone := w.rk.p.gone.Load(); gone != w.seenGone {
		w.seenGone = gone
		w.dropGone(gone)
	}
	w.completed.Store(int64(w.finished))
	return n
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
		w.fail(c, w.waiting, transport.CauseClosed, nil)
		w.through(c)
	}
}

// stall notes time that passed beyond the wait that was asked for while there was work: nobody ran this thread, or it
// was busy with one thing for so long.
func (w *worker) stall(d int64) {
	if w.finished < int(w.planned.Load()) {
		w.gap = max(w.gap, d, 0)
	}
}

// handle one event. On the path of every connection: no allocation unless it failed.
func (w *worker) handle(ev *transport.Event) {
	c := int(ev.Conn)
	switch ev.Kind {
	case transport.StepDone:
		if ev.Begin != 0 || ev.End != 0 {
			w.stamps.Set(ev.Step, c, ev.Begin, ev.End)
		}
		switch {
		case ev.Step == transport.StepFullConnect && w.waiting == transport.StepConnect:
			w.through(c)
			if w.mimic != nil {
				w.mimicOne(transport.StepRTR, c)
				w.mimicOne(transport.StepRTS, c)
			}
		case ev.Step == w.waiting && w.waiting != transport.StepConnect:
			w.through(c)
			if ev.Step == transport.StepCreateID {
				w.state[c] = connLive
			}
		}
	case transport.StepFailed:
		w.fail(c, ev.Step, ev.Cause, ev.Err)
		if c < w.out || w.slot.Phase == phases.Destroy {
			w.through(c)
		}
	case transport.EventRequest:
		w.request(ev)
	case transport.EventPeerClosed:
		w.peerClosed(c)
	}
}

// peerClosed handles a connection whose peer went away on its own. If the running step is under way on it, the
// provider reports that step as failed and nothing is to be done here.
func (w *worker) peerClosed(c int) {
	switch {
	case c >= w.out || w.state[c] != connLive:
	case c >= w.next && c < w.end: // the running step counted on it and will not begin it any more
		w.fail(c, w.waiting, transport.CauseClosed, nil)
		w.inflight++
		w.through(c)
	case w.passed[c] || c >= w.end: // what the step measured stays measured; the connection is lost all the same
		w.state[c] = connFailed
		w.lose(c, w.waiting, transport.CauseClosed, nil)
	}
}

// through counts one connection of the running step as finished, once.
func (w *worker) through(c int) {
	if w.passed[c] {
		return
	}
	w.passed[c] = true
	w.inflight--
	w.finished++
}

// fail records the failure of step s on connection c.
func (w *worker) fail(c int, s transport.Step, cause transport.Cause, err error) {
	if c >= 0 && c < len(w.state) {
		if w.state[c] == connFailed {
			return
		}
		w.state[c] = connFailed
		if w.stamps.Has(s) {
			w.stamps.Fail(c, s, cause)
		}
	}
	w.lose(c, s, cause, err)
}

// lose counts a failed connection and keeps the first few in words.
func (w *worker) lose(c int, s transport.Step, cause transport.Cause, err error) {
	w.failed++
	if c < w.out {
		w.lost++
		if w.slot.Phase == phases.Probe {
			w.dead++
		}
	}
	if len(w.errs) < maxErrors {
		if err == nil {
			err = &transport.OpError{Op: s.String(), Provider: w.rk.p.cfg.Provider.Name(), Cause: cause}
		}
		w.errs = append(w.errs, *w.rk.wrap(w.slot.Phase, s.String(), w.peer(c), err))
	}
}

// peer of connection c, either side.
func (w *worker) peer(c int) rank.Rank {
	switch {
	case c < 0:
		return rank.None
	case c < w.out:
		e, _ := w.rk.plan.Edge(w.planIndex(c))
		return e.To
	case c-w.out < w.nIn:
		return w.peers[c-w.out].from
	}
	return rank.None
}

// edge of connection c, either side.
func (w *worker) edge(c int) collect.EdgeConn {
	if c < w.out {
		e, conn := w.rk.plan.Edge(w.planIndex(c))
		return collect.EdgeConn{From: e.From, To: e.To, Conn: conn}
	}
	in := w.peers[c-w.out]
	return collect.EdgeConn{From: in.from, To: w.rk.rank, Conn: in.conn}
}

// giveUp fails what is still under way when the work of a step ended early.
func (w *worker) giveUp(from int, s transport.Step) {
	if w.inflight <= 0 {
		return
	}
	cause := transport.CauseTimeout
	if w.stop.Load() && w.now() < w.deadline(s) {
		cause = transport.CauseAborted
	}
	for c := from; c < w.next; c++ {
		if w.state[c] != connLive || w.passed[c] {
			continue
		}
		w.tw.Abandon(transport.Conn(c))
		w.fail(c, s, cause, nil)
		w.through(c)
	}
}

// mimicAll sleeps the asked time for every usable connection, one after the
// other as one thread calling the verbs would.
func (w *worker) mimicAll(steps ...transport.Step) {
	for _, s := range steps {
		for c := range w.out {
			if w.stop.Load() {
				return
			}
			if w.state[c] == connLive {
				w.mimicOne(s, c)
			}
		}
	}
}

func (w *worker) mimicOne(s transport.Step, c int) {
	begin := w.now()
	end := begin + int64(w.rk.p.spec.Mimic)
	w.pause(end)
	w.seen = w.now()
	if w.seen >= end { // not cut short
		w.mimic.Set(s, c, begin, w.seen)
	}
}

// causeOf finds the cause under which a failure is counted.
func causeOf(err error) transport.Cause {
	if op, ok := errors.AsType[*transport.OpError](err); ok {
		return op.Cause
	}
	return transport.CauseOther
}
