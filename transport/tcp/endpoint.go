package tcp

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

// endpoint is one rank's listener and workers.
type endpoint struct {
	settings
	clock   transport.Clock
	busy    int64 // ns
	park    bool
	table   *descriptorTable
	workers []*worker

	listener atomic.Int32 // -1: none; workers read it on each accept
	mu       sync.Mutex   // the listener's coming and going, and who watches it
	drops    int64        // of a listener that is closed
	before   int64        // requests that the namespace dropped before there was a listener
	closed   bool
}

func (e *endpoint) Workers() int                  { return len(e.workers) }
func (e *endpoint) Worker(i int) transport.Worker { return e.workers[i] }

// Listen binds to the advertised address (port 0: a free one) and listens.
// Backlog 0 is the largest that the system allows, net.core.somaxconn.
func (e *endpoint) Listen(backlog int) (transport.Address, int64, int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.listener.Load() >= 0 {
		return nil, 0, 0, misuse("listen", "the endpoint is closed or listens already")
	}
	if backlog < 0 {
		return nil, 0, 0, misuse("listen", "backlog %d is negative, 0 is the largest", backlog)
	}
	if backlog == 0 {
		backlog = largestBacklog()
	}
	e.before = namespaceDrops()
	begin := e.clock.Now()
	fd, err := listenOn(&e.adv, backlog)
	if err != nil {
		return nil, 0, 0, err
	}
	bound := e.adv
	port, err := boundPort(fd)
	if err != nil {
		unix.Close(fd)
		return nil, 0, 0, opError("getsockname", &e.adv, nil, err)
	}
	bound.setPort(port)
	for i, w := range e.workers {
		if w.accepting {
			if err := w.watch(fd); err != nil {
				for _, v := range e.workers[:i] {
					v.unwatch(fd)
				}
				unix.Close(fd)
				return nil, 0, 0, opError("epoll_ctl", &bound, nil, err)
			}
		}
	}
	e.listener.Store(int32(fd))
	return bound.encode(), begin, e.clock.Now(), nil
}

func listenOn(a *addr, backlog int) (fd int, err error) {
	fd, err = unix.Socket(a.domain(), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, opError("socket", a, nil, err)
	}
	op := "setsockopt"
	// REUSEADDR: connections of an earlier job in TIME_WAIT do not hold the port.
	// Accepted sockets inherit NODELAY, which saves a call on each.
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		op, err = "bind", unix.Bind(fd, a.sockaddr())
	}
	if err == nil {
		op, err = "listen", unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, opError(op, a, nil, err)
	}
	return fd, nil
}

func boundPort(fd int) (uint16, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port), nil
	case *unix.SockaddrInet6:
		return uint16(sa.Port), nil
	}
	return 0, unix.EAFNOSUPPORT
}

func largestBacklog() int {
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 0 {
			return n
		}
	}
	return unix.SOMAXCONN
}

// dropped is how many requests the listener dropped, -1 if not known. The socket is read first: what the namespace
// counts meanwhile takes nothing away.
func (e *endpoint) dropped(listener int) int64 {
	n := socketDrops(listener)
	if n <= 0 {
		return n
	}
	return requestsDropped(n, namespaceDrops(), e.before)
}

// Counters may be called from any goroutine.
func (e *endpoint) Counters() transport.Counters {
	var c transport.Counters
	e.mu.Lock()
	c.ListenDrops = e.drops
	if fd := int(e.listener.Load()); fd >= 0 {
		c.FDs++
		c.Listeners++
		if c.ListenDrops = e.dropped(fd); c.ListenDrops >= 0 {
			c.ListenDrops += e.drops
		}
	}
	e.mu.Unlock()
	for _, w := range e.workers {
		c.FDs += w.count.fds.Load()
		c.Conns += w.count.conns.Load()
		c.SYNRetries += w.count.retries.Load()
		c.Foreign += w.count.foreign.Load()
		c.Starved += w.count.starved.Load()
		c.Cramped += w.count.cramped.Load()
	}
	return c
}

// Close aborts what is open. The workers' goroutines must have left them.
func (e *endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	if fd := int(e.listener.Swap(-1)); fd >= 0 {
		e.drops += max(e.dropped(fd), 0)
		unix.Close(fd)
	}
	e.mu.Unlock()
	for _, w := range e.workers {
		w.Close()
	}
	return nil
}

// watch puts the listener into the worker's set.
func (w *worker) watch(fd int) error { return w.set.AddShared(fd, listenSlot, w.of) }

func (w *worker) unwatch(fd int) { _ = w.set.Remove(fd) }

// Accepting turns taking new requests off and on; they wait in the backlog.
func (w *worker) Accepting(on bool) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.accepting == on {
		return
	}
	w.accepting = on
	w.resting = 0
	if fd := int(w.e.listener.Load()); fd >= 0 && !w.closed {
		if !on {
			w.unwatch(fd)
		} else if err := w.watch(fd); err != nil {
			w.accepting = false // no memory for the watch: tried again with the next call
		}
	}
}
