package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	bufferBytes = 256 << 10 // of one direction of a stream
	backlog     = 4096
)

// listener takes streams.
type listener struct {
	proc   *Proc
	addr   net.Addr
	queue  chan *conn
	closed chan struct{}
	once   sync.Once
	forget func()

	mu sync.Mutex // guards sending on queue against Close
}

func newListener(p *Proc, addr net.Addr) *listener {
	return &listener{proc: p, addr: addr, queue: make(chan *conn, backlog), closed: make(chan struct{})}
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
	default:
	}
	select {
	case c := <-l.queue:
		l.proc.run()
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close also closes the streams that nobody accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		close(l.closed)
		l.mu.Unlock()
		l.forget()
		l.proc.remove(l)
		for {
			select {
			case c := <-l.queue:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// connect makes the pair of ends of a new stream, queues one and returns the
// other; nil if the listener is closed, its backlog full or p dead.
func (l *listener) connect(p *Proc, local, remote net.Addr) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return nil
	default:
	}
	there, back := newHalf(), newHalf()
	n := p.host.net
	a := &conn{net: n, proc: p, peer: l.proc.host, in: back, out: there, local: local, remote: remote}
	b := &conn{net: n, proc: l.proc, peer: p.host, in: there, out: back, local: remote, remote: local}
	if len(l.queue) == cap(l.queue) || !p.add(a) {
		return nil
	}
	if !l.proc.add(b) {
		p.remove(a)
		return nil
	}
	l.queue <- b
	return a
}

// half is one direction of a stream.
type half struct {
	mu      sync.Mutex
	segs    []segment
	size    int
	last    time.Time // when the last segment arrives: later ones never overtake it
	ended   bool      // the writer closed
	endAt   time.Time
	gone    bool          // the reader closed
	changed chan struct{} // closed and replaced at every change
}

type segment struct {
	at   time.Time
	data []byte
}

func newHalf() *half { return &half{changed: make(chan struct{})} }

// touch wakes reader and writer. h.mu is held.
func (h *half) touch() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// conn is one end of a stream.
type conn struct {
	net           *Net
	proc          *Proc
	peer          *Host
	in, out       *half
	local, remote net.Addr
	once          sync.Once
	rd, wd        deadline

	mu     sync.Mutex
	closed bool
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		c.proc.run()
		if c.isClosed() {
			return 0, c.fail("read", net.ErrClosed)
		}
		late, dl := c.rd.get()
		if late {
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		}
		if len(p) == 0 {
			return 0, nil
		}
		up, moved := c.net.link(c.peer, c.proc.host)
		var wait time.Duration // until the next thing arrives, 0: nothing is on its way
		c.in.mu.Lock()
		if c.in.gone { // closed just now
			c.in.mu.Unlock()
			continue
		}
		changed := c.in.changed
		if up {
			now := time.Now()
			switch {
			case len(c.in.segs) > 0:
				if wait = c.in.segs[0].at.Sub(now); wait <= 0 {
					n := c.in.take(p, now)
					c.in.mu.Unlock()
					return n, nil
				}
			case c.in.ended:
				if wait = c.in.endAt.Sub(now); wait <= 0 {
					c.in.mu.Unlock()
					return 0, io.EOF
				}
			}
		}
		c.in.mu.Unlock()
		await(wait, changed, moved, dl)
	}
}

// take moves what has arrived into p. h.mu is held.
func (h *half) take(p []byte, now time.Time) int {
	n := 0
	for n < len(p) && len(h.segs) > 0 && !h.segs[0].at.After(now) {
		k := copy(p[n:], h.segs[0].data)
		n += k
		if k == len(h.segs[0].data) {
			h.segs = h.segs[1:]
		} else {
			h.segs[0].data = h.segs[0].data[k:]
		}
	}
	h.size -= n
	h.touch()
	return n
}

func (c *conn) Write(p []byte) (int, error) {
	delay := c.net.delay(c.proc.host, c.peer)
	done := 0
	for {
		c.proc.run()
		if c.isClosed() || c.proc.dead() { // a killed process says nothing any more, whichever of its streams is closed first
			return done, c.fail("write", net.ErrClosed)
		}
		late, dl := c.wd.get()
		if late {
			return done, c.fail("write", os.ErrDeadlineExceeded)
		}
		up, moved := c.net.link(c.proc.host, c.peer)
		c.out.mu.Lock()
		if c.out.ended {
			c.out.mu.Unlock()
			return done, c.fail("write", net.ErrClosed)
		}
		if c.out.gone && up {
			c.out.mu.Unlock()
			return done, c.fail("write", os.NewSyscallError("write", syscall.EPIPE))
		}
		if room := bufferBytes - c.out.size; room > 0 {
			k := min(room, len(p)-done)
			at := time.Now().Add(delay)
			if at.Before(c.out.last) {
				at = c.out.last
			}
			c.out.last = at
			if k > 0 {
				c.out.segs = append(c.out.segs, segment{at: at, data: append([]byte(nil), p[done:done+k]...)})
				c.out.size += k
				c.out.touch()
			}
			if done += k; done == len(p) {
				c.out.mu.Unlock()
				return done, nil
			}
		}
		changed := c.out.changed
		c.out.mu.Unlock()
		await(0, changed, moved, dl)
	}
}

// await returns when one of the channels closes or d is over (0: never).
func await(d time.Duration, a, b, dl <-chan struct{}) {
	var timer <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-a:
	case <-b:
	case <-dl:
	case <-timer:
	}
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.rd.stop()
		c.wd.stop()
		delay := c.net.delay(c.proc.host, c.peer)
		c.out.mu.Lock()
		c.out.ended = true
		c.out.endAt = time.Now().Add(delay)
		if c.out.endAt.Before(c.out.last) {
			c.out.endAt = c.out.last
		}
		c.out.touch()
		c.out.mu.Unlock()
		c.in.mu.Lock()
		c.in.gone = true
		c.in.touch()
		c.in.mu.Unlock()
		c.proc.remove(c)
	})
	return nil
}

// CloseWrite ends the own direction only.
func (c *conn) CloseWrite() error {
	delay := c.net.delay(c.proc.host, c.peer)
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if !c.out.ended {
		c.out.ended = true
		c.out.endAt = time.Now().Add(delay)
		if c.out.endAt.Before(c.out.last) {
			c.out.endAt = c.out.last
		}
		c.out.touch()
	}
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	c.rd.set(t)
	c.wd.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.rd.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.wd.set(t)
	return nil
}

// deadline tells waiters, by closing a channel, that a moment has come or that
// it was moved.
type deadline struct {
	mu    sync.Mutex
	at    time.Time
	timer *time.Timer
	ch    chan struct{}
}

// get says whether the deadline has passed, and gives the channel to wait on
// (nil: no deadline was ever set).
func (d *deadline) get() (late bool, ch <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return !d.at.IsZero() && !time.Now().Before(d.at), d.ch
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	d.wake()
	if !t.IsZero() {
		if wait := time.Until(t); wait > 0 {
			d.timer = time.AfterFunc(wait, func() {
				d.mu.Lock()
				d.wake()
				d.mu.Unlock()
			})
		}
	}
}

// wake ends all waits; the waiter looks again. d.mu is held.
func (d *deadline) wake() {
	if d.ch != nil {
		close(d.ch)
	}
	d.ch = make(chan struct{})
}

// stop wakes the waiters for good measure when the socket is closed.
func (d *deadline) stop() { d.set(time.Time{}) }
