package tcp

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankstorm/test/need"
	"rankstorm/transport"
)

// patience bounds every wait of the tests; nothing is measured against it.
const patience = 60 * time.Second

// rig is an initiator and a target, each with one worker, driven by turns
// from the test's goroutine.
type rig struct {
	t        testing.TB
	clock    transport.Clock
	from, to transport.Endpoint
	fw, tw   transport.Worker
	addr     transport.Address
	ev       []transport.Event
	accept   func(*transport.Event) (bool, uint16)
	got      [2][transport.StepCount]int // done: initiator, target
	idle     [transport.StepCount]int    // done with nothing to do, initiator
	failed   []transport.Event
	closed   []transport.Event
	hellos   []transport.Event
}

func config(advertise string, bind ...string) transport.Config {
	return transport.Config{Clock: transport.NewClock(), Name: "test", Advertise: advertise, Bind: bind, Workers: 1}
}

func open(t testing.TB, cfg transport.Config) transport.Endpoint {
	t.Helper()
	e, err := New().Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func newRig(t testing.TB, from, to transport.Config) *rig {
	t.Helper()
	r := &rig{
		t: t, clock: from.Clock, from: open(t, from), to: open(t, to), ev: make([]transport.Event, 128),
		accept: func(*transport.Event) (bool, uint16) { return true, 0 },
	}
	r.fw, r.tw = r.from.Worker(0), r.to.Worker(0)
	addr, begin, end, err := r.to.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	if begin <= 0 || end < begin {
		t.Errorf("listen is stamped %d to %d", begin, end)
	}
	r.addr = addr
	return r
}

// turn polls both sides once.
func (r *rig) turn() {
	for side, w := range []transport.Worker{r.fw, r.tw} {
		n := w.Poll(r.ev)
		for i := range r.ev[:n] {
			e := &r.ev[i]
			switch e.Kind {
			case transport.StepDone:
				switch {
				case e.Begin == 0 && e.End == 0:
					r.idle[e.Step]++
				case e.Begin <= 0 || e.End < e.Begin:
					r.t.Errorf("%v of connection %d is stamped %d to %d", e.Step, e.Conn, e.Begin, e.End)
				}
				r.got[side][e.Step]++
			case transport.StepFailed:
				r.failed = append(r.failed, *e)
			case transport.EventPeerClosed:
				r.closed = append(r.closed, *e)
			case transport.EventRequest:
				r.hellos = append(r.hellos, *e)
				ok, reason := r.accept(e)
				if err := w.Answer(e.Conn, ok, reason); err != nil {
					r.t.Error(err)
				}
			}
		}
	}
}

// until takes turns until ok.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		r.turn()
		if time.Now().After(end) {
			r.t.Fatalf("waited %v for %s: done %v, failed %v", patience, what, r.got, r.failed)
		}
	}
}

// step starts s on connections [0, n) and waits for n results of the initiator.
func (r *rig) step(s transport.Step, n int) {
	r.t.Helper()
	before := r.results(s)
	r.start(r.fw, s, 0, n)
	r.until(s.String(), func() bool { return r.results(s) >= before+n })
}

func (r *rig) results(s transport.Step) int { return r.got[0][s] + len(r.failed) }

func (r *rig) start(w transport.Worker, s transport.Step, first, n int) {
	r.t.Helper()
	for end := first + n; first < end; {
		k, err := w.Start(s, transport.Conn(first), min(end-first, 64), nil)
		if err != nil && err != transport.ErrAgain {
			r.t.Fatal(err)
		}
		first += k
		r.turn()
	}
}

func hello(i int) *transport.Hello {
	var h transport.Hello
	binary.BigEndian.PutUint32(h[:], uint32(i))
	h[transport.HelloSize-1] = 0xA5
	return &h
}

// prepare brings n connections to the edge of connect.
func (r *rig) prepare(n int) {
	r.t.Helper()
	if err := r.fw.Reserve(n, 0); err != nil {
		r.t.Fatal(err)
	}
	if err := r.tw.Reserve(0, n); err != nil {
		r.t.Fatal(err)
	}
	r.step(transport.StepCreateID, n)
	r.step(transport.StepBindAddr, n)
	for i := range n {
		if err := r.fw.Assign(transport.Conn(i), r.addr, hello(i)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.step(transport.StepResolveAddr, n)
	r.step(transport.StepResolveRoute, n)
	r.step(transport.StepCreateQP, n)
}

func (r *rig) connect(n int) {
	r.t.Helper()
	r.prepare(n)
	before := r.results(transport.StepFullConnect)
	r.start(r.fw, transport.StepConnect, 0, n)
	r.until("answers", func() bool { return r.results(transport.StepFullConnect) >= before+n })
}

// life takes n connections from nothing to nothing and checks every count.
func (r *rig) life(n int) {
	r.t.Helper()
	before := r.got
	r.connect(n)
	r.step(transport.StepProbe, n)
	r.teardown(n, before)
}

func (r *rig) teardown(n int, before [2][transport.StepCount]int) {
	r.t.Helper()
	r.start(r.fw, transport.StepDisconnect, 0, n)
	r.until("both closes", func() bool {
		return r.got[0][transport.StepDisconnect]-before[0][transport.StepDisconnect] == n &&
			r.got[1][transport.StepPeerDisconnect]-before[1][transport.StepPeerDisconnect] == n
	})
	for _, s := range []transport.Step{transport.StepDestroyQP, transport.StepDestroyID} {
		r.start(r.fw, s, 0, n)
		r.start(r.tw, s, 0, n)
	}
	r.until("destroy", func() bool {
		return r.got[0][transport.StepDestroyID]-before[0][transport.StepDestroyID] == n &&
			r.got[1][transport.StepDestroyID]-before[1][transport.StepDestroyID] == n
	})
	for _, e := range []transport.Endpoint{r.from, r.to} {
		if c := e.Counters(); c.Conns != 0 {
			r.t.Errorf("%d connections are left", c.Conns)
		}
	}
}

// openFDs are the process's open descriptors.
func openFDs(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// dialRaw connects as somebody who is no rank.
func dialRaw(t testing.TB, a transport.Address) int {
	t.Helper()
	ip, port, _, err := decodeAddr(a)
	if err != nil {
		t.Fatal(err)
	}
	to, err := newAddr(ip, port)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(to.domain(), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Connect(fd, to.sockaddr()); err != nil {
		t.Fatal(err)
	}
	return fd
}

// localAddrs are addresses of this machine to test with, and why others are missing.
func localAddrs(t testing.TB) []string {
	t.Helper()
	addrs := []string{"127.0.0.1"}
	p := New()
	for _, a := range []string{"::1", linkLocal(t)} {
		if a == "" {
			continue
		}
		if err := p.Probe(config(a)); err != nil {
			if a == "::1" && need.Required("ipv6") {
				t.Fatalf("RANKSTORM_REQUIRE names ipv6: %v", err)
			}
			t.Logf("without %s: %v", a, err)
			continue
		}
		addrs = append(addrs, a)
	}
	return addrs
}

// linkLocal finds a scoped address in /proc/net/if_inet6.
func linkLocal(t testing.TB) string {
	b, err := os.ReadFile("/proc/net/if_inet6")
	if err != nil {
		t.Logf("no link-local address to test with: %v", err)
		return ""
	}
	for _, line := range splitLines(string(b)) {
		var hex, index, plen, scope, flags, dev string
		if _, err := fmt.Sscan(line, &hex, &index, &plen, &scope, &flags, &dev); err != nil || scope != "20" {
			continue
		}
		s := ""
		for i := 0; i < 32; i += 4 {
			s += hex[i:i+4] + ":"
		}
		return s[:len(s)-1] + "%" + dev
	}
	t.Log("no link-local address to test with: no interface has one")
	return ""
}

func splitLines(s string) (lines []string) {
	for len(s) > 0 {
		i := 0
		for i < len(s) && s[i] != '\n' {
			i++
		}
		lines = append(lines, s[:i])
		s = s[min(i+1, len(s)):]
	}
	return lines
}
