package nldev

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// waitFor bounds a read from the kernel, which answers at once.
const waitFor = 5 * time.Second

// Totals asks what each device holds. The error says that this kernel has no
// RDMA netlink: ib_core is not loaded.
func Totals() ([]Device, error) {
	s, err := open()
	if err != nil {
		return nil, err
	}
	defer s.close()
	return s.totals()
}

// Held is what one process holds at all devices together.
type Held struct {
	IDs int64 // CM ids that have a device: bound to a local address, or resolved
	QPs int64
	CQs int64
	MRs int64
	PDs int64
}

// HeldBy asks what a process holds; pid is of this process's name space. The
// kernel lists what all processes hold: more than most is an error. It names the
// thread that made an object; those of threads that have ended are not counted.
func HeldBy(pid int, most int64) (Held, error) {
	s, err := open()
	if err != nil {
		return Held{}, err
	}
	defer s.close()
	devices, err := s.totals()
	if err != nil {
		return Held{}, err
	}
	if n := listed(devices); n > most {
		return Held{}, fmt.Errorf("RDMA netlink: %d objects in all are more than the %d that are looked at", n, most)
	}
	tasks, err := tasksOf(pid)
	if err != nil {
		return Held{}, err
	}
	var h Held
	for _, d := range devices {
		for _, q := range []struct {
			cmd, table uint16
			to         *int64
		}{
			{cmdResCMIDGet, attrCMID, &h.IDs},
			{cmdResQPGet, attrQP, &h.QPs},
			{cmdResCQGet, attrCQ, &h.CQs},
			{cmdResMRGet, attrMR, &h.MRs},
			{cmdResPDGet, attrPD, &h.PDs},
		} {
			err := s.dump(q.cmd, d.Index, func(payload []byte) error {
				n, err := owned(payload, q.table, tasks)
				*q.to += n
				return err
			})
			if err != nil {
				return Held{}, fmt.Errorf("%s: %w", d.Name, err)
			}
		}
	}
	return h, nil
}

// tasksOf are a process's threads, the numbers that the kernel lists objects under.
func tasksOf(pid int) (map[uint32]bool, error) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil, fmt.Errorf("the threads of process %d: %w", pid, err)
	}
	tasks := make(map[uint32]bool, len(entries))
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			tasks[uint32(n)] = true
		}
	}
	return tasks, nil
}

// listed is how many objects HeldBy goes through.
func listed(devices []Device) (n int64) {
	for _, d := range devices {
		for _, kind := range []string{"cm_id", "qp", "cq", "mr", "pd"} {
			n += d.InUse[kind]
		}
	}
	return n
}

type socket struct {
	fd     int
	seq    uint32
	buffer []byte
}

func open() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, errors.New("the kernel has no RDMA netlink: is ib_core loaded?")
	case err != nil:
		return nil, fmt.Errorf("RDMA netlink: %w", err)
	}
	wait := unix.NsecToTimeval(int64(waitFor))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("RDMA netlink: %w", err)
	}
	return &socket{fd: fd, buffer: make([]byte, 64<<10)}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

func (s *socket) totals() ([]Device, error) {
	var list []Device
	err := s.dump(cmdResGet, -1, func(payload []byte) error {
		d, err := device(payload)
		list = append(list, d)
		return err
	})
	return list, err
}

// dump sends a query and hands on all that the kernel answers.
func (s *socket) dump(cmd uint16, device int64, each func(payload []byte) error) error {
	s.seq++
	if err := unix.Sendto(s.fd, query(cmd, s.seq, device), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("RDMA netlink: %w", err)
	}
	for {
		n, _, flags, from, err := unix.Recvmsg(s.fd, s.buffer, nil, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("RDMA netlink: %w", err)
		case flags&unix.MSG_TRUNC != 0:
			return fmt.Errorf("RDMA netlink: an answer of more than %d bytes", len(s.buffer))
		}
		if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
			continue // not from the kernel
		}
		more, err := answer(s.buffer[:n], s.seq, each)
		if err != nil {
			return fmt.Errorf("RDMA netlink: %w", err)
		}
		if !more {
			return nil
		}
	}
}
