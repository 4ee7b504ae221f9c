// Package epoll is an epoll set with an eventfd to wake its waiter and an
// event buffer allocated once.
package epoll

import (
	"errors"
	"math"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a descriptor may be registered for. Hang-up and error always come.
const (
	In       = unix.EPOLLIN
	Out      = unix.EPOLLOUT
	PeerShut = unix.EPOLLRDHUP
	Edge     = unix.EPOLLET
	HangUp   = unix.EPOLLHUP
	Err      = unix.EPOLLERR
)

// wakeSlot marks the eventfd among the events; callers use slots ≥ 0.
const wakeSlot = -1

// Event is one ready descriptor: what was given to Add, and what it is ready for.
type Event struct {
	Slot int32
	Gen  int32
	Bits uint32
}

// Set is one epoll set. All methods but Wake, and Add and Remove of a set that
// is not closed meanwhile, belong to one goroutine.
type Set struct {
	fd, wake int
	raw      []unix.EpollEvent
	noNS     bool       // the kernel has no epoll_pwait2 (before 5.11)
	parked   *parked    // nil: Wait sleeps in the kernel with its thread
	mu       sync.Mutex // Wake against Close: the number could be another's by then
}

// New makes a set that hands out up to n events at a time.
func New(n int) (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	s := &Set{fd: fd, wake: -1, raw: make([]unix.EpollEvent, n)}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := s.Add(s.wake, wakeSlot, 0, In); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// FDs is how many descriptors a set holds.
const FDs = 2

// Add registers fd; slot and gen come back with its events.
func (s *Set) Add(fd int, slot, gen int32, bits uint32) error {
	return unix.EpollCtl(s.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: bits, Fd: slot, Pad: gen})
}

// AddShared registers what several sets wait for, a listener. Level-triggered: what
// a limited batch left is reported again. In more than one set exclusive, so that
// what comes wakes one waiter and not all, and they share evenly.
func (s *Set) AddShared(fd int, slot int32, sets int) error {
	bits := uint32(In)
	if sets > 1 {
		bits |= unix.EPOLLEXCLUSIVE
	}
	return s.Add(fd, slot, 0, bits)
}

// Modify changes what fd is registered for; what it is ready for already is
// reported anew, also on an edge.
func (s *Set) Modify(fd int, slot, gen int32, bits uint32) error {
	return unix.EpollCtl(s.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: bits, Fd: slot, Pad: gen})
}

// Grow makes room for n events at a time.
func (s *Set) Grow(n int) {
	if n > len(s.raw) {
		s.raw = make([]unix.EpollEvent, n)
	}
}

// Remove takes fd out. Closing the descriptor does so too.
func (s *Set) Remove(fd int) error {
	return unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, fd, nil)
}

// Wait fills ev and returns how many are ready after at most ns nanoseconds
// (0: at once, math.MaxInt64: without limit) and whether Wake was called. An
// interruption by a signal returns 0 early.
func (s *Set) Wait(ns int64, ev []Event) (n int, woken bool, err error) {
	n, err = s.wait(ns, min(len(ev), len(s.raw)))
	if err != nil {
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
		return 0, false, err
	}
	k := 0
	for i := range n {
		r := &s.raw[i]
		if r.Fd == wakeSlot {
			woken = true
			s.drain()
			continue
		}
		ev[k] = Event{Slot: r.Fd, Gen: r.Pad, Bits: r.Events}
		k++
	}
	return k, woken, nil
}

func (s *Set) wait(ns int64, n int) (int, error) {
	if ns <= 0 {
		return unix.EpollWait(s.fd, s.raw[:n], 0)
	}
	if s.parked != nil {
		return s.park(ns, n)
	}
	if ns == math.MaxInt64 {
		return unix.EpollWait(s.fd, s.raw[:n], -1)
	}
	if !s.noNS {
		// Milliseconds are too coarse to pace a storm.
		ts := unix.NsecToTimespec(ns)
		r, _, no := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(s.fd), uintptr(unsafe.Pointer(&s.raw[0])),
			uintptr(n), uintptr(unsafe.Pointer(&ts)), 0, 0)
		switch no {
		case 0:
			return int(r), nil
		case unix.ENOSYS, unix.EPERM: // EPERM: old container filters
			s.noNS = true
		default:
			return 0, no
		}
	}
	ms := min((ns+999_999)/1_000_000, math.MaxInt32)
	return unix.EpollWait(s.fd, s.raw[:n], int(ms))
}

// Wake ends the running Wait, or else the next one. Any goroutine may call it.
func (s *Set) Wake() {
	one := [8]byte{1} // any number but 0 wakes, in either byte order
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake < 0 {
		return
	}
	// EAGAIN means that the counter is at its limit: the waiter is woken anyway.
	_, _ = unix.Write(s.wake, one[:])
}

func (s *Set) drain() {
	var b [8]byte
	_, _ = unix.Read(s.wake, b[:])
}

// Close releases both descriptors; idempotent.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.parked != nil:
		s.parked.file.Close() // closes fd
	case s.fd >= 0:
		unix.Close(s.fd)
	}
	if s.wake >= 0 {
		unix.Close(s.wake)
	}
	s.fd, s.wake, s.parked = -1, -1, nil
}
