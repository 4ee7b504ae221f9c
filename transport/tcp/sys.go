package tcp

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// accept4 takes a connection without its address, which unix.Accept4 would
// allocate. The initiator says who it is in its hello.
func accept4(fd int) (int, unix.Errno) {
	r, _, no := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	return int(r), no
}

// socketDrops is sk_drops of a socket: for a listener the requests it dropped
// because a queue was full, and more (see requestsDropped). -1: not known.
func socketDrops(fd int) int64 {
	const drops = 8 // SK_MEMINFO_DROPS
	var mem [9]uint32
	n := uint32(unsafe.Sizeof(mem))
	_, _, no := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&mem)), uintptr(unsafe.Pointer(&n)), 0)
	if no != 0 || n < uint32(unsafe.Sizeof(mem)) {
		return -1
	}
	return int64(mem[drops])
}

// retransmits is how many packets fd's connection sent again so far.
func retransmits(fd int, info *unix.TCPInfo) int64 {
	n := uint32(unsafe.Sizeof(*info))
	_, _, no := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	if no != 0 {
		return 0
	}
	return int64(info.Total_retrans)
}

// descriptorTable grows the process's descriptor table ahead of time. In a
// process with several threads the kernel waits for an RCU grace period, some
// milliseconds, each time the table doubles; a storm that grows it on the way
// loses a third of its speed and shows slow connects at powers of two.
type descriptorTable struct {
	mu       sync.Mutex
	expected int // by all workers of the process
	size     int // grown to
}

// tableSlack is for the descriptors that are not connections.
const tableSlack = 64

// expect tells that a worker will hold n descriptors where it held was.
func (t *descriptorTable) expect(was, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected += n - was
	if n <= was {
		return
	}
	// The lowest free number stands in for what is open already. F_DUPFD,
	// because dup3 would close whoever has the number we aim at.
	low, err := dupAbove(0)
	if err != nil {
		return // no descriptor left: the connections will say so, with their step
	}
	want := low + t.expected + tableSlack
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err == nil && uint64(want) >= lim.Cur {
		want = int(lim.Cur) - 1
	}
	if want <= t.size {
		return
	}
	if _, err := dupAbove(want); err == nil {
		t.size = want
	}
}

// dupAbove opens the first free descriptor ≥ n, which grows the table, and
// closes it again; it returns its number.
func dupAbove(n int) (int, error) {
	src, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(src)
	fd, err := unix.FcntlInt(uintptr(src), unix.F_DUPFD_CLOEXEC, n)
	if err != nil {
		return 0, err
	}
	return fd, unix.Close(fd)
}
