package tcp

import (
	"encoding/binary"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rankstorm/test/need"
	"rankstorm/transport"
)

// alone runs a test again in a network namespace of its own, in which setup (sh) has succeeded; false: this is the outer
// one, which has nothing left to do.
func alone(t *testing.T, setup string) bool {
	t.Helper()
	const inside = "RANKSTORM_TEST_ALONE"
	if os.Getenv(inside) == t.Name() {
		return true
	}
	cmd := exec.Command("sh", "-c", "ip link set lo up && "+setup+` || exit 77; exec "$@"`, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 77 {
		need.Absent(t, "netns", "no network namespace can be made: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

func TestTCPExt(t *testing.T) {
	for _, c := range []struct {
		netstat string
		want    int64
	}{
		{"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 7 8 9\nIpExt: ListenDrops\nIpExt: 5\n", 9},
		{"IpExt: ListenDrops\nIpExt: 5\nTcpExt: ListenDrops X\nTcpExt: 18446744073 1", 18446744073},
		{"IpExt: ListenDrops\nIpExt: 5\n", -1},
		{"TcpExt: ListenOverflows\nTcpExt: 8\n", -1},
		{"TcpExt: A ListenDrops\nTcpExt: 8\n", -1},
		{"TcpExt: ListenDrops\n", -1},
		{"TcpExt: ListenDrops\nTcpExt: many\n", -1},
		{"\n\nTcpExt:\n", -1},
		{"", -1},
	} {
		if got := tcpExt(c.netstat, "ListenDrops"); got != c.want {
			t.Errorf("%q has %d, want %d", c.netstat, got, c.want)
		}
	}
	if n := namespaceDrops(); n < 0 {
		t.Errorf("this namespace dropped %d", n)
	}
}

func TestRequestsDropped(t *testing.T) {
	for _, c := range []struct{ socket, now, before, want int64 }{
		{1229, 1223, 0, 1223}, // six were resets
		{1223, 1323, 100, 1223},
		{1229, 1323, 100, 1223},
		{20, 5000, 100, 20}, // other listeners dropped the rest
		{5, 100, 100, 0},    // no request at all
		{5, 99, 100, 0},     // the file of another namespace
		{5, -1, 100, 5},
		{5, 100, -1, 5},
		{-1, 200, 100, -1},
		{0, 200, 100, 0},
	} {
		if got := requestsDropped(c.socket, c.now, c.before); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// What a listener discards is no request that it dropped: the kernel counts a reset without a connection like one.
func TestDiscardedSegmentsAreNoRequests(t *testing.T) {
	if !alone(t, "true") {
		return
	}
	to := open(t, config("127.0.0.1"))
	before := namespaceDrops()
	addr, _, _, err := to.Listen(1)
	if err != nil {
		t.Fatal(err)
	}
	ip, port, _, err := decodeAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	listener := int(to.(*endpoint).listener.Load())
	until := func(n int64) {
		for c := transport.NewClock(); socketDrops(listener) < n; {
			if c.Now() > int64(patience) {
				t.Fatalf("the socket counts %d, want %d", socketDrops(listener), n)
			}
		}
	}
	const resets = 5
	for range resets {
		reset(t, ip.As4(), port)
	}
	until(resets)
	if n := to.Counters().ListenDrops; n != 0 {
		t.Errorf("%d requests dropped of none", n)
	}
	to4, err := newAddr(ip, port)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 { // two have room
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, to4.sockaddr()); err != nil && err != unix.EINPROGRESS {
			t.Fatal(err)
		}
	}
	until(resets + 1)
	reset(t, ip.As4(), port)
	until(resets + 2)
	// Requests are sent again, so it is what the namespace counted just before or just after.
	least := namespaceDrops() - before
	n := to.Counters().ListenDrops
	if most := namespaceDrops() - before; n < least || n > most || n == 0 {
		t.Errorf("%d requests dropped, the namespace counts %d to %d, the socket %d", n, least, most, socketDrops(listener))
	}
	to.Close()
	if after := to.Counters().ListenDrops; after < n || after > namespaceDrops()-before {
		t.Errorf("%d requests dropped after close, %d before", after, n)
	}
}

// reset sends the listener a reset segment that belongs to nothing.
func reset(t *testing.T, ip [4]byte, port uint16) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const from, length, flagRST = 9, 20, 4
	h := make([]byte, 0, 12+length)
	h = append(h, ip[:]...) // the pseudo header: from here to here
	h = append(h, ip[:]...)
	h = append(h, 0, unix.IPPROTO_TCP, 0, length)
	h = binary.BigEndian.AppendUint16(h, from)
	h = binary.BigEndian.AppendUint16(h, port)
	h = append(h, make([]byte, 8)...)
	h = append(h, length/4<<4, flagRST, 0, 0, 0, 0, 0, 0)
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(h[12+16:], ^uint16(sum))
	if err := unix.Sendto(fd, h[12:], 0, &unix.SockaddrInet4{Addr: ip}); err != nil {
		t.Fatal(err)
	}
}
