package rendezvous

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/rank"
)

const (
	readBuffer   = 16 << 10
	maxQueued    = maxBody + 64<<20 // bytes that may wait in one outbox
	keepWriteBuf = 64 << 10         // larger write buffers are not kept
)

var errBacklog = errors.New("peer does not read: too much is waiting to be sent")

// outbox is the bottom of a link: a stream whose Write never waits. It tries
// the socket once; what does not fit is copied and sent by a goroutine that
// lives only as long as something is queued. TLS sits above it, because TLS
// cannot be continued after a write that was cut short by a deadline.
type outbox struct {
	net.Conn
	raw syscall.RawConn // nil: not a socket, everything is queued

	mu     sync.Mutex
	queue  []byte
	limit  int           // of queue
	idle   chan struct{} // not nil: a goroutine is sending; closed when it is done
	err    error
	closed bool

	// Of the try under way (under mu); fields, so that a try does not allocate.
	pending []byte
	sent    int
	sendErr error
	try     func(fd uintptr) bool
}

func newOutbox(conn net.Conn) *outbox {
	o := &outbox{Conn: conn, limit: maxQueued}
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			o.raw = raw
		}
	}
	if tcp, ok := conn.(interface{ SetNoDelay(bool) error }); ok {
		_ = tcp.SetNoDelay(true) // slower at worst
	}
	o.try = func(fd uintptr) bool {
		for {
			o.sent, o.sendErr = syscall.Write(int(fd), o.pending)
			if !errors.Is(o.sendErr, syscall.EINTR) {
				return true
			}
		}
	}
	return o
}

// Write takes all of b, which may be reused, or fails for good.
func (o *outbox) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return 0, net.ErrClosed
	case o.err != nil:
		return 0, o.err
	}
	n := len(b)
	if o.idle == nil && o.raw != nil {
		o.pending = b
		err := o.raw.Write(o.try)
		o.pending = nil
		if err == nil && o.sendErr != nil && !errors.Is(o.sendErr, syscall.EAGAIN) {
			err = o.sendErr
		}
		if err != nil {
			o.err = err
			return 0, err
		}
		b = b[max(o.sent, 0):]
	}
	if len(b) == 0 {
		return n, nil
	}
	if len(o.queue)+len(b) > o.limit {
		o.err = errBacklog
		return 0, o.err
	}
	o.queue = append(o.queue, b...)
	if o.idle == nil {
		o.idle = make(chan struct{})
		go o.drain(o.idle)
	}
	return n, nil
}

func (o *outbox) drain(idle chan struct{}) {
	defer close(idle)
	for {
		o.mu.Lock()
		b := o.queue
		o.queue = nil
		if len(b) == 0 || o.err != nil {
			o.idle = nil
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		if _, err := o.Conn.Write(b); err != nil {
			o.mu.Lock()
			if o.err == nil {
				o.err = err
			}
			o.mu.Unlock()
		}
	}
}

// flush waits until nothing is queued, at most for d.
func (o *outbox) flush(d time.Duration) error {
	o.mu.Lock()
	idle, err := o.idle, o.err
	o.mu.Unlock()
	if idle != nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-idle:
		case <-timer.C:
			return errBacklog
		}
		o.mu.Lock()
		err = o.err
		o.mu.Unlock()
	}
	return err
}

// Close closes the stream; what is queued is lost. The sender is waited for.
func (o *outbox) Close() error {
	o.mu.Lock()
	o.closed = true
	idle := o.idle
	o.mu.Unlock()
	err := o.Conn.Close()
	if idle != nil {
		<-idle
	}
	return err
}

// link is one edge of the control tree as seen from one end.
type link struct {
	g    *Group
	proc rank.Proc // the other end
	up   bool      // proc is the parent
	out  *outbox
	conn net.Conn // out, or what wrap made of it
	r    *bufio.Reader

	wmu  sync.Mutex
	wbuf []byte

	frames atomic.Uint32 // read so far: the signs of life
	dead   atomic.Bool   // lost, or gone with a goodbye
	cause  atomic.Pointer[error]
	done   chan struct{} // closed when the reader has ended

	// Of the liveness goroutine.
	seen     uint32
	idle     time.Duration // without a sign of life
	untilAsk time.Duration // until the next ping
}

func newLink(g *Group, proc rank.Proc, up bool, o *outbox, conn net.Conn, r *bufio.Reader) *link {
	return &link{g: g, proc: proc, up: up, out: o, conn: conn, r: r, done: make(chan struct{})}
}

// send writes one body. It does not wait for the peer; body may be reused.
func (l *link) send(kind byte, body []byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	b, err := appendFrames(l.wbuf[:0], kind, body)
	if err != nil {
		return err
	}
	if cap(b) <= keepWriteBuf {
		l.wbuf = b
	}
	return l.put(b)
}

// sendRaw writes frames that are encoded already.
func (l *link) sendRaw(frames []byte) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.put(frames)
}

func (l *link) put(b []byte) error {
	if l.dead.Load() {
		return l.gone()
	}
	_, err := l.conn.Write(b)
	if err == nil {
		return nil
	}
	if errors.Is(err, errBacklog) {
		// The reader, which may be the caller, cleans up.
		cause := errBacklog // a copy: err must not escape, it would be allocated every time
		l.cause.CompareAndSwap(nil, &cause)
		l.out.Conn.Close()
	} else {
		// The reader tells the loss, with what the peer said before it went.
		l.conn.SetReadDeadline(time.Now().Add(time.Second))
	}
	return l.g.lostError(l.proc, "cannot send: %w", err)
}

func (l *link) sendMessage(kind byte, v any) error {
	body, err := msgpack.Marshal(v)
	if err != nil {
		return err
	}
	return l.send(kind, body)
}

func (l *link) gone() error {
	return l.g.lostError(l.proc, "link is closed")
}

// cut closes the link as lost for a reason found on this side.
func (l *link) cut(cause error) {
	l.cause.CompareAndSwap(nil, &cause)
	l.out.Close()
}

var (
	errBye    = errors.New("goodbye")
	errClosed = errors.New("link closed by the other end")
)

// run reads the link until it ends and tells the group how it ended.
func (l *link) run() {
	err := l.read()
	if c := l.cause.Load(); c != nil {
		err = *c
	} else if errors.Is(err, io.EOF) {
		err = errClosed
	}
	l.dead.Store(true)
	l.out.Close()
	close(l.done)
	l.g.ended(l, err)
}

func (l *link) read() error {
	var parts assembler
	for {
		kind, body, err := readFrame(l.r, maxFrame)
		if err != nil {
			return err
		}
		at := l.g.clock.Now()
		l.frames.Add(1)
		kind, body, complete, err := parts.add(kind, body)
		if err != nil {
			return err
		}
		if !complete {
			continue
		}
		switch kind {
		case frameData:
			l.g.deliver(l, body, at)
		case framePing:
			_ = l.send(framePong, nil) // a loss is told as an event
		case framePong:
		case frameClockPing:
			err = l.answerClock(body, at)
		case frameClockPong, frameClockState:
			err = l.g.clk.take(l, kind, body, at)
		case frameBye:
			return errBye
		case frameRefuse:
			if err = l.g.note(sealNote{l: l, kind: kind, body: body}); err == nil {
				return errClosed
			}
		case frameTableAck, frameTrip, frameTripBack, frameSealed, frameSealFailed:
			err = l.g.note(sealNote{l: l, kind: kind, body: body})
		default:
			err = fmt.Errorf("unknown frame type %d", kind)
		}
		if err != nil {
			return err
		}
	}
}
