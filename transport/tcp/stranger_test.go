package tcp

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

// skipClock is the real clock with a gap that a test can widen.
type skipClock struct {
	transport.Clock
	gap atomic.Int64
}

func (c *skipClock) Now() int64 { return c.Clock.Now() + c.gap.Load() }

func wholeHello() []byte {
	var b [helloFrame]byte
	putHello(&b, hello(1))
	return b[:]
}

// ended reads until the other side has closed; it says whether it was in order or by a reset.
func ended(t *testing.T, r *rig, fd int) {
	t.Helper()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	var b [64]byte
	r.until("the stranger being closed", func() bool {
		n, err := unix.Read(fd, b[:])
		return n == 0 && err == nil || err == unix.ECONNRESET
	})
}

func TestStrangersAreTurnedAway(t *testing.T) {
	h := wholeHello()
	wrongVersion := bytes.Clone(h)
	wrongVersion[4]++
	wrongKind := bytes.Clone(h)
	wrongKind[5] = kindAnswer
	wrongRest := bytes.Clone(h)
	wrongRest[7] = 1
	for what, said := range map[string][]byte{
		"http":          []byte("GET / HTTP/1.1\r\n\r\n"),
		"one byte":      {0},
		"wrong version": wrongVersion[:5],
		"wrong kind":    wrongKind,
		"wrong status":  wrongRest[:8],
		"too much":      append(bytes.Clone(h), 0),
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
			fd := dialRaw(t, r.addr)
			if _, err := unix.Write(fd, said); err != nil {
				t.Fatal(err)
			}
			ended(t, r, fd)
			r.life(5)
			if c := r.to.Counters(); c.Foreign != 1 || len(r.hellos) != 5 {
				t.Errorf("%d strangers counted, %d requests; want 1 and 5", c.Foreign, len(r.hellos))
			}
		})
	}
}

func TestHelloInPieces(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	if err := r.tw.Reserve(0, 1); err != nil {
		t.Fatal(err)
	}
	fd := dialRaw(t, r.addr)
	r.until("the accept", func() bool { return r.to.Counters().FDs == 5 })
	for _, b := range wholeHello() {
		if _, err := unix.Write(fd, []byte{b}); err != nil {
			t.Fatal(err)
		}
		r.turn()
	}
	r.until("the request", func() bool { return len(r.hellos) == 1 && r.got[1][transport.StepAccept] == 1 })
	if r.hellos[0].Hello != *hello(1) {
		t.Error("the hello is not what was said")
	}
	var b [shortFrame]byte
	if n, err := unix.Read(fd, b[:]); err != nil || n != shortFrame {
		t.Fatalf("answer: %d bytes, %v", n, err)
	}
	if kind, status, _, ok := parseShort(&b); !ok || kind != kindAnswer || status != statusAccepted {
		t.Errorf("answer %x", b)
	}
}

func TestHalfHelloAndEnd(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	fd := dialRaw(t, r.addr)
	if _, err := unix.Write(fd, wholeHello()[:30]); err != nil {
		t.Fatal(err)
	}
	r.until("the accept", func() bool { return r.to.Counters().FDs == 5 })
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	ended(t, r, fd)
}

func TestMuteAreClosedAfterTheirTime(t *testing.T) {
	cfg := config("127.0.0.1")
	clock := &skipClock{Clock: cfg.Clock}
	cfg.Clock = clock
	r := newRig(t, config("127.0.0.1"), cfg)
	const mute = 3
	var fds []int
	for range mute {
		fds = append(fds, dialRaw(t, r.addr))
	}
	r.until("the accepts", func() bool { return r.to.Counters().FDs == 4+mute })
	r.connect(5) // they do not disturb; Reserve however ends them, so let new ones wait
	if c := r.to.Counters(); c.Foreign != mute {
		t.Fatalf("Reserve left half-open ones: %d turned away", c.Foreign)
	}
	fds = append(fds, dialRaw(t, r.addr), dialRaw(t, r.addr))
	r.until("the accepts", func() bool { return r.to.Counters().FDs == 4+5+2 })
	clock.gap.Add(int64(helloDeadline - time.Second))
	for range 10 {
		r.turn()
	}
	if c := r.to.Counters(); c.Foreign != mute {
		t.Fatal("turned away before their time")
	}
	clock.gap.Add(int64(2 * time.Second))
	for _, fd := range fds {
		ended(t, r, fd)
	}
	before := r.got
	before[0][transport.StepDisconnect], before[1][transport.StepPeerDisconnect] = 0, 0
	r.teardown(5, before)
}

func TestWaitEndsForTheMute(t *testing.T) {
	cfg := config("127.0.0.1")
	clock := &skipClock{Clock: cfg.Clock}
	cfg.Clock = clock
	r := newRig(t, config("127.0.0.1"), cfg)
	dialRaw(t, r.addr)
	r.until("the accept", func() bool { return r.to.Counters().FDs == 5 })
	w := r.tw.(*worker)
	if got, want := w.nextDeadline(), w.conns[w.oldest].mark+int64(helloDeadline); got != want {
		t.Errorf("Wait looks again at %d, want %d", got, want)
	}
}

func TestFloodOfMutes(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	const n, more = 10, 20
	r.prepare(n)
	for range n + spare + more {
		dialRaw(t, r.addr)
		r.turn()
	}
	r.until("the oldest making room", func() bool { return r.to.Counters().Foreign == more })
	r.start(r.fw, transport.StepConnect, 0, n)
	r.until("answers", func() bool { return r.results(transport.StepFullConnect) == n })
	if len(r.failed) > 0 {
		t.Errorf("the flood cost %v", r.failed)
	}
	if c := r.to.Counters(); c.FDs != 4+n+spare || c.Conns != n {
		t.Errorf("the target holds %+v, want %d descriptors", c, 4+n+spare)
	}
}

func TestForeignAnswer(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	var to addr
	to, err := parseAddr("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := listenOn(&to, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	port, err := boundPort(fd)
	if err != nil {
		t.Fatal(err)
	}
	to.setPort(port)
	r.addr = to.encode()
	r.prepare(3)
	r.start(r.fw, transport.StepConnect, 0, 3)
	said := [][]byte{[]byte("220 smtp ready, hello\r\n"), []byte("0123456789abcdef"), nil}
	for _, b := range said {
		s, no := accept4(fd)
		if no != 0 {
			t.Fatal(no)
		}
		if b != nil {
			if _, err := unix.Write(s, b); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Shutdown(s, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(s)
	}
	r.until("failures", func() bool { return len(r.failed) == 3 })
	causes := map[transport.Cause]int{}
	for _, e := range r.failed {
		if e.Step != transport.StepEstablish {
			t.Errorf("failed in %v", e.Step)
		}
		causes[e.Cause]++
	}
	if causes[transport.CauseBadHello] != 2 || causes[transport.CauseClosed] != 1 {
		t.Errorf("causes %v", causes)
	}
}

// Without a descriptor a request waits in the backlog and the worker sleeps;
// once there is one it is taken.
func TestNoDescriptorForARequest(t *testing.T) {
	cfg := config("127.0.0.1")
	clock := &skipClock{Clock: cfg.Clock}
	cfg.Clock = clock
	r := newRig(t, config("127.0.0.1"), cfg)
	r.prepare(1)
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	low := lim
	low.Cur = 3 // every number below is taken
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Error(err)
		}
	}
	defer restore()
	r.start(r.fw, transport.StepConnect, 0, 1)
	r.until("starving", func() bool { return r.to.Counters().Starved > 0 })
	if w := r.tw.(*worker); w.nextDeadline() != w.resting || w.resting == 0 {
		t.Errorf("Wait looks again at %d, want the end of the rest at %d", w.nextDeadline(), w.resting)
	}
	restore()
	clock.gap.Add(int64(acceptRest))
	r.until("the request", func() bool { return r.got[0][transport.StepFullConnect] == 1 })
	if len(r.failed) > 0 {
		t.Errorf("failures %v", r.failed)
	}
}

// Turning requests off and on again ends a rest for good.
func TestAcceptingEndsARest(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	w := r.tw.(*worker)
	w.rest(int(w.e.listener.Load()))
	r.tw.Accepting(false)
	r.tw.Accepting(true)
	if w.resting != 0 {
		t.Error("still resting")
	}
	r.life(1)
}
