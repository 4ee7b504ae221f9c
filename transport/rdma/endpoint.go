//go:build cgo

package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// endpoint is one rank's listener and workers.
type endpoint struct {
	settings
	clock   transport.Clock
	busy    int64 // ns
	park    bool
	workers []*worker

	mimic transport.Mimic // of the next round

	mu       sync.Mutex // the listener's coming and going, and who watches it
	take     sync.Mutex // reading the listener's events
	listener *verbs.Listener
	full     int // so many requests read at once may have filled its queue
	closed   bool
}

func open(s settings, cfg transport.Config) (transport.Endpoint, error) {
	if err := verbs.Load(); err != nil {
		return nil, fmt.Errorf("rdma: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	e := &endpoint{settings: s, clock: cfg.Clock, busy: int64(cfg.Busy), park: cfg.Park}
	for i := range cfg.Workers {
		w, err := newWorker(e, i, cfg.Workers)
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.workers = append(e.workers, w)
	}
	return e, nil
}

func (e *endpoint) Workers() int                  { return len(e.workers) }
func (e *endpoint) Worker(i int) transport.Worker { return e.workers[i] }

// maxBacklog is the kernel's bound, 0 if it is not known.
func maxBacklog() int {
	b, err := os.ReadFile("/proc/sys/net/rdma_ucm/max_backlog")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

// Listen binds to the advertised address (port 0: a free one) and listens.
// Backlog 0 is the largest that the system allows, net.rdma_ucm.max_backlog.
func (e *endpoint) Listen(backlog int) (transport.Address, int64, int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.listener != nil {
		return nil, 0, 0, misuse("listen", "the endpoint is closed or listens already")
	}
	if backlog < 0 {
		return nil, 0, 0, misuse("listen", "backlog %d is negative, 0 is the largest", backlog)
	}
	// The kernel would silently take its largest for a larger one.
	if most := maxBacklog(); most > 0 && backlog > most {
		return nil, 0, 0, misuse("listen", "backlog %d: net.rdma_ucm.max_backlog is %d: sysctl -w net.rdma_ucm.max_backlog=%d", backlog, most, backlog)
	}
	at, err := sockaddr(e.adv)
	if err != nil {
		return nil, 0, 0, misuse("listen", "address %s %w", e.adv.Addr(), err)
	}
	l, port, s, err := verbs.Listen(e.knobs, &at, backlog)
	if err != nil {
		return nil, 0, 0, bindError(e.adv.Addr(), err)
	}
	for i, w := range e.workers {
		if w.accepting {
			if err := w.watch(l.FD()); err != nil {
				for _, v := range e.workers[:i] {
					v.unwatch(l.FD())
				}
				l.Close()
				return nil, 0, 0, opError("epoll_ctl", e.adv, netip.AddrPort{}, err)
			}
		}
	}
	e.listener, e.full = l, acceptBatch
	if backlog == 0 {
		backlog = maxBacklog()
	}
	if backlog > 0 {
		e.full = min(backlog, acceptBatch)
	}
	return encodeAddr(netip.AddrPortFrom(e.adv.Addr(), port)), s.Begin, s.End, nil
}

// opError is built only once something failed; local and remote may be invalid.
func opError(op string, local, remote netip.AddrPort, err error) *transport.OpError {
	e := &transport.OpError{Op: op, Provider: name, Cause: causeOf(err), Err: err}
	if local.IsValid() {
		e.Local = local.Addr().String()
	}
	if remote.IsValid() {
		e.Remote = remote.String()
	}
	if errors.Is(err, unix.ENOMEM) {
		e.Err = fmt.Errorf("%w: %s", err, memoryAdvice())
	}
	return e
}

// Mimic has the next round go with queue pairs, or with numbers in their place.
func (e *endpoint) Mimic(m transport.Mimic) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	const bits = 24
	switch last := uint64(m.First) + uint64(m.Count); {
	case e.closed:
		return errClosed
	case m.On && e.iwarp:
		return misuse("mimic", "the device speaks iWARP, where the kernel wants a real queue pair for each connection")
	case m.Delay < 0:
		return misuse("mimic", "delay %v is negative", m.Delay)
	case m.On && last > 1<<bits:
		return misuse("mimic", "queue pair numbers %d to %d do not fit %d bits: fewer ranks, fewer connections or a lower first number", m.First, last-1, bits)
	}
	for _, w := range e.workers {
		if w.count.conns.Load() > 0 {
			return misuse("mimic", "there are connections: it belongs before the Reserve of a round")
		}
	}
	e.mimic = m
	return nil
}

// Counters may be called from any goroutine.
func (e *endpoint) Counters() transport.Counters {
	c := transport.Counters{ListenDrops: -1, SYNRetries: -1}
	e.mu.Lock()
	if e.listener != nil {
		c.FDs++
		c.IDs++
		c.Listeners++
	}
	e.mu.Unlock()
	for _, w := range e.workers {
		c.FDs += w.count.fds.Load()
		c.Conns += w.count.conns.Load()
		c.IDs += w.count.ids.Load()
		c.QPs += w.count.qps.Load()
		c.CQs += w.count.cqs.Load()
		c.MRs += w.count.cqs.Load() // one for each completion queue
		c.Foreign += w.count.foreign.Load()
		c.Cramped += w.count.cramped.Load()
	}
	return c
}

// Close aborts what is open. The workers' goroutines must have left them.
func (e *endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	l := e.listener
	e.listener = nil
	e.mu.Unlock()
	if l != nil {
		l.Close()
	}
	for _, w := range e.workers {
		w.Close()
	}
	return nil
}

// watch puts the listener's channel into the worker's set.
func (w *worker) watch(fd int) error { return w.set.AddShared(fd, listenSlot, w.of) }

func (w *worker) unwatch(fd int) { _ = w.set.Remove(fd) }

// Accepting turns taking new requests off and on. While it is off their events
// are not read: they count against the backlog, and the kernel drops what
// exceeds it.
func (w *worker) Accepting(on bool) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.accepting == on {
		return
	}
	w.accepting = on
	if l := w.e.listener; l != nil && !w.closed {
		if !on {
			w.unwatch(l.FD())
		} else if err := w.watch(l.FD()); err != nil {
			w.accepting = false // no memory for the watch: tried again with the next call
		}
	}
}
