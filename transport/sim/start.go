package sim

import (
	"math"

	"rankstorm/transport"
)

// startable are the steps that Start begins; the others follow from them or
// belong to the endpoint or to the target.
var startable = transport.Steps(
	transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute,
	transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP,
	transport.StepConnect, transport.StepProbe, transport.StepDisconnect,
	transport.StepDestroyQP, transport.StepDestroyID,
)

const noDue = math.MinInt64

// Start begins step s on n connections.
func (w *Worker) Start(s transport.Step, first transport.Conn, n int, due []int64) (int, error) {
	f := w.ep.f
	f.mu.Lock()
	defer f.mu.Unlock()
	misuse := func(format string, args ...any) error { return w.error("start "+s.String(), format, args...) }
	switch {
	case w.over() != nil:
		return 0, w.ep.error("start "+s.String(), w.over())
	case !f.cfg.Steps.Has(s):
		return 0, misuse("this provider has no such step, see Provider.Steps")
	case !startable.Has(s):
		return 0, misuse("this step follows from others and is never started")
	case first < 0 || n < 0 || int(first) > len(w.conns)-n:
		return 0, misuse("connections %d to %d are outside the %d reserved", first, int(first)+n-1, len(w.conns))
	case due != nil && len(due) < n:
		return 0, misuse("%d due moments for %d connections", len(due), n)
	}
	now := w.ep.cfg.Clock.Now()
	defer func() { f.advance(f.now()) }()
	for k := range n {
		if d := f.cfg.QueueDepth; d > 0 && w.flight+w.done.len() >= d {
			return k, transport.ErrAgain
		}
		c := first + transport.Conn(k)
		full := int64(noDue)
		if due != nil {
			full = due[k]
		}
		if fault := w.start(s, c, now, full); fault != "" {
			return k, misuse("connection %d %s", c, fault)
		}
	}
	return n, nil
}

// start begins one step and says what forbids it.
func (w *Worker) start(s transport.Step, i transport.Conn, now, due int64) (fault string) {
	c := &w.conns[i]
	if s == transport.StepDestroyQP || s == transport.StepDestroyID {
		return w.destroy(s, i, c, now)
	}
	if c.state == stFailed {
		return "" // passed over: its failure has been reported
	}
	if s == transport.StepCreateID {
		if int(i) >= w.out {
			return "is an accepted one, only initiated ones are created"
		}
		if c.state != stNone {
			return "is created already"
		}
		w.create(i, c)
		w.step(i, s, now)
		return ""
	}
	if c.state == stNone {
		return "is not created"
	}
	if c.accepted {
		return "is an accepted one, its initiator takes this step"
	}
	if c.inflight {
		return "has a step under way, wait for its event"
	}
	if s == transport.StepProbe || s == transport.StepDisconnect {
		return w.startOpen(s, i, c, now)
	}
	if c.state != stCreated {
		return "has begun to connect already"
	}
	switch s {
	case transport.StepBindAddr:
		if c.bound {
			return "is bound already"
		}
		c.bound = true
		w.step(i, s, now)
	case transport.StepResolveAddr, transport.StepResolveRoute:
		return w.resolve(s, i, c, now)
	case transport.StepCreateQP:
		if c.pair {
			return "has a queue pair already"
		}
		c.pair = true
		w.ep.pair(1)
		w.step(i, s, now)
	case transport.StepInitQPAttr, transport.StepInitQP:
		if !c.pair {
			return "has no queue pair, create it first"
		}
		w.step(i, s, now)
	case transport.StepConnect:
		return w.connect(i, c, now, due)
	}
	return ""
}

func (w *Worker) create(i transport.Conn, c *conn) {
	w.gen++
	c.gen = w.gen
	c.state = stCreated
	c.id = mix(w.ep.ident ^ mix(uint64(w.index)<<32|uint64(i)))
	w.live++
	w.ep.conns++
}

func (w *Worker) resolve(s transport.Step, i transport.Conn, c *conn, now int64) string {
	f := w.ep.f
	want := uint8(0)
	if s == transport.StepResolveRoute {
		want = 1
	}
	switch {
	case !c.assigned:
		return "has no target, assign it first"
	case c.resolved != want:
		return "is out of order: the address is resolved once, then the route once"
	}
	if f.rdma {
		c.begin, c.inflight = max(now, w.busy), true
		w.flight++
		me := w.me(i)
		f.queue.push(packet{at: f.now() + c.begin - now + int64(f.cfg.Costs[s]), key: c.id, from: me, to: me, kind: pktResolved})
		return ""
	}
	c.resolved++
	if s == transport.StepResolveRoute {
		if !f.hosts[c.to.host] {
			begin, end := w.spend(s, now)
			w.fail(i, s, begin, end, transport.CauseUnreachable, 0)
			return ""
		}
		// Neighbours in the table often have the same target: its route is known then.
		if i > 0 && w.conns[i-1].to == c.to && w.conns[i-1].resolved == 2 {
			w.nothing(i, s, now)
			return ""
		}
	}
	w.step(i, s, now)
	return ""
}

// nothing reports a step that had nothing to do.
func (w *Worker) nothing(i transport.Conn, s transport.Step, now int64) {
	w.done.push(item{end: max(now, w.busy), conn: i, step: s, kind: transport.StepDone, idle: true})
}

func (w *Worker) connect(i transport.Conn, c *conn, now, due int64) string {
	f := w.ep.f
	switch {
	case c.resolved < 2:
		return "is not resolved"
	case f.cfg.Steps.Has(transport.StepCreateQP) && !c.pair:
		return "has no queue pair, create it first"
	}
	begin, end := w.spend(transport.StepConnect, now)
	c.begin, c.full = begin, begin
	if due != noDue {
		c.full = due
	}
	c.state, c.inflight, c.tries, c.helloIn, c.peer = stConnecting, true, 0, false, ref{}
	w.flight++
	f.request(w.me(i), c, f.now()+end-now)
	return ""
}

// startOpen begins the steps of an established connection.
func (w *Worker) startOpen(s transport.Step, i transport.Conn, c *conn, now int64) string {
	switch {
	case s == transport.StepProbe && c.state == stOpen:
		begin, end := w.spend(s, now)
		c.begin, c.state, c.inflight = begin, stProbing, true
		w.flight++
		w.send(packet{from: w.me(i), to: c.peer, kind: pktProbe}, c, now, end)
	case s == transport.StepProbe && c.state == stPeerClosed:
		begin, end := w.spend(s, now)
		w.fail(i, s, begin, end, transport.CauseClosed, 0)
	case s == transport.StepDisconnect && c.state == stOpen:
		begin, end := w.spend(s, now)
		c.begin, c.state, c.inflight = begin, stClosing, true
		w.flight++
		w.send(packet{from: w.me(i), to: c.peer, kind: pktClose}, c, now, end)
	case s == transport.StepDisconnect && c.state == stPeerClosed:
		end := w.step(i, s, now)
		c.state = stClosed
		if c.peer.w != nil {
			w.send(packet{from: w.me(i), to: c.peer, kind: pktClose}, c, now, end)
		}
	default:
		return "is not established"
	}
	return ""
}

func (w *Worker) destroy(s transport.Step, i transport.Conn, c *conn, now int64) string {
	switch {
	case c.gen == 0:
		w.nothing(i, s, now)
		return ""
	case c.inflight:
		return "has a step under way, wait for its event or abandon it"
	case s == transport.StepDestroyQP && !c.pair:
		w.nothing(i, s, now)
		return ""
	case s == transport.StepDestroyQP:
		c.pair = false
		if w.ep.mimic.On {
			w.nothing(i, s, now)
			return ""
		}
		w.ep.pair(-1)
		w.step(i, s, now)
		return ""
	}
	end := w.step(i, s, now)
	w.release(i, c, w.ep.f.now()+end-now)
	return ""
}
