package epoll

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// parked lets Wait sleep in the runtime's poller: the goroutine is parked and
// holds no thread. An epoll descriptor is readable when it has something ready,
// so one set can wait inside another.
type parked struct {
	file *os.File
	raw  syscall.RawConn
	try  func(fd uintptr) bool // made once: a closure per Wait would allocate
	room int
	n    int // ready
	err  error
}

// Park makes Wait sleep without a thread from now on. A wake-up takes a little
// longer than from the kernel, but costs no thread of its own: for many more
// workers than cores. Before the first Wait.
func (s *Set) Park() error {
	if err := unix.SetNonblock(s.fd, true); err != nil {
		return err
	}
	p := &parked{file: os.NewFile(uintptr(s.fd), "epoll")}
	raw, err := p.file.SyscallConn()
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // fails if the runtime does not poll it
	}
	if err != nil {
		return err
	}
	p.raw = raw
	p.try = func(fd uintptr) bool {
		p.n, p.err = unix.EpollWait(int(fd), s.raw[:p.room], 0)
		return p.n != 0 || p.err != nil
	}
	s.parked = p
	return nil
}

// park is wait in the runtime's poller, ns > 0.
func (s *Set) park(ns int64, n int) (int, error) {
	p := s.parked
	var deadline time.Time
	if ns < int64(time.Hour) { // longer is as good as for ever, and cannot overflow
		deadline = time.Now().Add(time.Duration(ns))
	}
	if err := p.file.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	p.room = n
	err := p.raw.Read(p.try)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return p.n, p.err
}
