package sim

import (
	"time"

	"rankstorm/transport"
)

// ref names one side of a connection; gen tells a later use of the same place
// in the table from the one meant.
type ref struct {
	w   *Worker
	c   transport.Conn
	gen uint32
}

func (r ref) get() *conn {
	if r.w == nil || int(r.c) >= len(r.w.conns) || r.w.conns[r.c].gen != r.gen {
		return nil
	}
	return &r.w.conns[r.c]
}

type packetKind uint8

const (
	pktRequest  packetKind = iota // initiator → listener; carries the hello with StepsRDMA
	pktPath                       // the listener's kernel answers the request (StepsTCP)
	pktHello                      // initiator → target (StepsTCP)
	pktAnswer                     // target → initiator
	pktReady                      // initiator → target after the answer (StepsRDMA)
	pktProbe                      // initiator → target
	pktEcho                       // target → initiator
	pktClose                      // orderly close, either way
	pktReset                      // either way, with the cause
	pktResolved                   // to itself: an asynchronous step is over
)

// packet is something that happens at a side of a connection at a moment.
type packet struct {
	at       int64  // fabric time
	key      uint64 // decides between equal moments, so that a seed replays
	from, to ref
	kind     packetKind
	tries    uint8 // times a partition held it back
	ok       bool  // pktAnswer
	cause    transport.Cause
	reason   uint16
}

// packetHeap is a binary heap by (at, key), without the boxing of container/heap.
type packetHeap []packet

func (h packetHeap) less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].key < h[j].key
}

func (h *packetHeap) push(p packet) {
	*h = append(*h, p)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *packetHeap) pop() packet {
	q := *h
	top := q[0]
	last := len(q) - 1
	q[0] = q[last]
	q[last] = packet{}
	q = q[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && q.less(down+1, down) {
			down++
		}
		if !q.less(down, i) {
			break
		}
		q[i], q[down] = q[down], q[i]
		i = down
	}
	*h = q
	return top
}

// draw gives the k-th random number of one side of a connection in [0, 1). It
// depends on names and counts only, never on who ran first.
func (c *conn) draw() float64 {
	c.draws++
	side := uint64(0)
	if c.accepted {
		side = 1
	}
	return float64(mix(c.id^uint64(c.draws)<<1^side)>>11) / (1 << 53)
}

func (f *Fabric) delay(c *conn) int64 {
	d := int64(f.cfg.Latency)
	if f.cfg.Jitter > 0 {
		d += int64(c.draw() * float64(f.cfg.Jitter))
	}
	return d
}

func (f *Fabric) lost(c *conn) bool { return f.cfg.Loss > 0 && c.draw() < f.cfg.Loss }

// retryAfter is the wait after the k-th sending of a request, k = 0 first.
func (f *Fabric) retryAfter(k int) int64 {
	if f.rdma {
		return int64(f.cfg.Retry)
	}
	return int64(f.cfg.Retry) << min(k, 16)
}

// send lets a packet of c leave at depart. One side's packets keep their order.
func (f *Fabric) send(p packet, c *conn, depart int64) {
	p.key = c.id
	p.at = depart + f.delay(c)
	for k := 0; k < f.cfg.Retries && f.lost(c); k++ {
		p.at += int64(f.cfg.DataRetry) << min(k, 16)
	}
	if p.at <= c.lastAt {
		p.at = c.lastAt + 1
	}
	c.lastAt = p.at
	f.queue.push(p)
}

// request sends the set-up request of c, and again for as long as it gets lost.
func (f *Fabric) request(me ref, c *conn, depart int64) {
	c.sentAt = depart
	if f.lost(c) {
		f.requestAgain(me, c)
		return
	}
	f.queue.push(packet{at: depart + f.delay(c) + f.extra(me.w.ep, c.to), key: c.id, from: me, kind: pktRequest})
}

// requestAgain is called when a request got lost or was dropped.
func (f *Fabric) requestAgain(me ref, c *conn) {
	wait := f.retryAfter(int(c.tries))
	if int(c.tries) >= f.cfg.Retries {
		f.queue.push(packet{at: c.sentAt + wait, key: c.id, from: me, to: me, kind: pktReset, cause: transport.CauseTimeout})
		return
	}
	c.tries++
	me.w.ep.requestRetries++
	f.request(me, c, c.sentAt+wait)
}

// advance delivers what is due and arms the timer for the rest; mu is held.
func (f *Fabric) advance(now int64) {
	for len(f.queue) > 0 && f.queue[0].at <= now {
		f.deliver(f.queue.pop(), now)
	}
	if len(f.queue) == 0 {
		return // a timer that still fires finds nothing
	}
	at := f.queue[0].at
	if f.armed != 0 && f.armed <= at {
		return
	}
	f.armed = at
	if f.timer == nil {
		f.timer = time.AfterFunc(time.Duration(at-now), f.fire)
		return
	}
	f.timer.Reset(time.Duration(at - now))
}

func (f *Fabric) fire() {
	f.mu.Lock()
	f.armed = 0
	f.advance(f.now())
	f.mu.Unlock()
}

func (f *Fabric) deliver(p packet, now int64) {
	if p.kind == pktRequest {
		f.deliverRequest(p.from, now)
		return
	}
	if p.kind == pktHello {
		src := p.from.get()
		if src == nil {
			return
		}
		if f.severed(p.from.w.ep, src.to.host, src.to.ep) {
			f.holdBack(p, now)
			return
		}
		src.helloIn = true
		if src.takenBy != nil { // else taking it from the backlog finds the hello
			src.takenBy.inbox.push(p)
			src.takenBy.nudge()
		}
		return
	}
	dst := p.to.get()
	if dst == nil {
		return
	}
	if p.from.w != nil && p.from.w.ep != p.to.w.ep && f.severed(p.from.w.ep, "", p.to.w.ep) {
		f.holdBack(p, now)
		return
	}
	p.to.w.inbox.push(p)
	p.to.w.nudge()
}

// holdBack keeps a packet that met a partition for its next retry.
func (f *Fabric) holdBack(p packet, now int64) {
	if int(p.tries) >= f.cfg.Retries {
		if p.from.get() != nil {
			p.from.w.inbox.push(packet{from: p.from, to: p.from, kind: pktReset, cause: transport.CauseTimeout})
			p.from.w.nudge()
		}
		return
	}
	p.at = now + int64(f.cfg.DataRetry)<<min(p.tries, 16)
	p.tries++
	f.queue.push(p)
}

// deliverRequest is the listener's kernel.
func (f *Fabric) deliverRequest(from ref, now int64) {
	src := from.get()
	if src == nil || src.state != stConnecting {
		return
	}
	ep := src.to.ep
	switch {
	case f.severed(from.w.ep, src.to.host, ep):
		f.requestAgain(from, src)
	case ep == nil:
		cause := transport.CauseRefused
		if !f.hosts[src.to.host] {
			cause = transport.CauseUnreachable
		}
		f.queue.push(packet{at: now + f.delay(src), key: src.id, to: from, kind: pktReset, cause: cause})
	case ep.waiting >= ep.backlog:
		ep.listenDrops++
		f.requestAgain(from, src)
	default:
		ep.waiting++
		ep.assign(from)
		if f.rdma {
			src.helloIn = true
			return
		}
		src.pathAt = now + f.delay(src)
		f.queue.push(packet{at: src.pathAt, key: src.id, to: from, kind: pktPath})
	}
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashString(seed uint64, parts ...string) uint64 {
	h := mix(seed)
	for _, p := range parts {
		for i := range len(p) {
			h = mix(h ^ uint64(p[i]))
		}
		h = mix(h)
	}
	return h
}
