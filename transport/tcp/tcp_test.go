package tcp

import (
	"errors"
	"math"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

func TestWholeLifeOnEveryFamily(t *testing.T) {
	for _, a := range localAddrs(t) {
		t.Run(a, func(t *testing.T) {
			r := newRig(t, config(a), config(a))
			const n = 300
			r.life(n)
			r.life(n) // the listener and its port stay
			if len(r.failed) > 0 || len(r.closed) > 0 {
				t.Fatalf("failures %v, closes %v", r.failed, r.closed)
			}
			for s, want := range map[transport.Step]int{
				transport.StepCreateID: 2 * n, transport.StepBindAddr: 2 * n, transport.StepResolveAddr: 2 * n,
				transport.StepResolveRoute: 2 * n, transport.StepCreateQP: 2 * n, transport.StepConnect: 2 * n,
				transport.StepEstablish: 2 * n, transport.StepFullConnect: 2 * n, transport.StepProbe: 2 * n,
				transport.StepDisconnect: 2 * n, transport.StepDestroyQP: 2 * n, transport.StepDestroyID: 2 * n,
			} {
				if got := r.got[0][s]; got != want {
					t.Errorf("initiator: %d × %v, want %d", got, s, want)
				}
			}
			for _, s := range []transport.Step{transport.StepAccept, transport.StepProbeAnswer, transport.StepPeerDisconnect} {
				if got := r.got[1][s]; got != 2*n {
					t.Errorf("target: %d × %v, want %d", got, s, 2*n)
				}
			}
			// One peer, so one lookup a round.
			for _, s := range []transport.Step{transport.StepResolveAddr, transport.StepResolveRoute} {
				if got := r.idle[s]; got != 2*(n-1) {
					t.Errorf("%v had nothing to do for %d connections, want %d", s, got, 2*(n-1))
				}
			}
			for i, e := range r.hellos[:n] {
				if int(e.Conn) != i {
					t.Fatalf("request %d came as connection %d", i, e.Conn)
				}
			}
			seen := map[transport.Hello]bool{}
			for _, e := range r.hellos[:n] {
				seen[e.Hello] = true
			}
			for i := range n {
				if !seen[*hello(i)] {
					t.Fatalf("the hello of connection %d did not arrive", i)
				}
			}
		})
	}
}

func TestStepsAreAdvertised(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	r.life(3)
	have := New().Steps()
	for s := range transport.StepCount {
		if done := r.got[0][s]+r.got[1][s] > 0; done && !have.Has(s) {
			t.Errorf("%v is done but not advertised", s)
		} else if !done && have.Has(s) && s != transport.StepListen {
			t.Errorf("%v is advertised but was not done", s)
		}
	}
}

func TestBindGoesInTurn(t *testing.T) {
	r := newRig(t, config("127.0.0.1", "127.0.0.2", "127.0.0.3"), config("127.0.0.1"))
	const n = 6
	r.connect(n)
	seen := map[netip.Addr]int{}
	for i := range n {
		sa, err := unix.Getsockname(int(r.fw.(*worker).conns[i].fd))
		if err != nil {
			t.Fatal(err)
		}
		seen[netip.AddrFrom4(sa.(*unix.SockaddrInet4).Addr)]++
	}
	if seen[netip.MustParseAddr("127.0.0.2")] != n/2 || seen[netip.MustParseAddr("127.0.0.3")] != n/2 {
		t.Errorf("%d connections are bound to %v", n, seen)
	}
}

func TestPortsRunOutByName(t *testing.T) {
	from := config("127.0.0.1")
	from.Options = map[string]string{OptionPortRange: "45000-45003"}
	r := newRig(t, from, config("127.0.0.1"))
	const n = 8
	r.connect(n)
	if got := r.got[0][transport.StepFullConnect]; got > 4 || got == 0 {
		t.Fatalf("%d connections from 4 ports", got)
	}
	for _, e := range r.failed {
		if e.Step != transport.StepConnect || e.Cause != transport.CauseNoPorts {
			t.Errorf("connection %d failed in %v for %q, want connect for no ports", e.Conn, e.Step, e.Cause)
		}
		var oe *transport.OpError
		if !errors.As(e.Err, &oe) || oe.Remote == "" {
			t.Errorf("the error does not name the peer: %v", e.Err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, a := range localAddrs(t) {
		r := newRig(t, config(a), config(a))
		r.to.Close()
		r.tw = r.fw // nothing to poll there any more
		const n = 5
		if err := r.fw.Reserve(n, 0); err != nil {
			t.Fatal(err)
		}
		for _, s := range []transport.Step{transport.StepCreateID, transport.StepBindAddr} {
			r.start(r.fw, s, 0, n)
		}
		for i := range n {
			if err := r.fw.Assign(transport.Conn(i), r.addr, hello(i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range []transport.Step{transport.StepResolveAddr, transport.StepResolveRoute, transport.StepCreateQP, transport.StepConnect} {
			r.start(r.fw, s, 0, n)
		}
		r.until("refusals", func() bool { return len(r.failed) == n })
		for _, e := range r.failed {
			if e.Step != transport.StepConnect || e.Cause != transport.CauseRefused {
				t.Errorf("%s: connection %d failed in %v for %q (%v)", a, e.Conn, e.Step, e.Cause, e.Err)
			}
		}
		// Failed ones are passed over, destroy reports them.
		if k, err := r.fw.Start(transport.StepDisconnect, 0, n, nil); k != n || err != nil {
			t.Errorf("disconnect on failed connections: %d, %v", k, err)
		}
		r.start(r.fw, transport.StepDestroyQP, 0, n)
		r.start(r.fw, transport.StepDestroyID, 0, n)
		if c := r.from.Counters(); c.Conns != 0 || c.FDs != 4-1 {
			t.Errorf("after destroy: %+v", c)
		}
	}
}

func TestReject(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	came, places := 0, 0
	r.accept = func(e *transport.Event) (bool, uint16) {
		if came++; came%2 == 1 {
			places = max(places, int(e.Conn)+1)
		}
		return came%2 == 1, 77
	}
	const n = 10
	r.prepare(n)
	r.start(r.fw, transport.StepConnect, 0, n)
	r.until("answers", func() bool { return r.results(transport.StepFullConnect) == n })
	if len(r.failed) != n/2 {
		t.Fatalf("%d of %d rejected", len(r.failed), n)
	}
	for _, e := range r.failed {
		if e.Step != transport.StepEstablish || e.Cause != transport.CauseRejected || e.Reason != 77 {
			t.Errorf("got %v %q reason %d", e.Step, e.Cause, e.Reason)
		}
	}
	for _, s := range []transport.Step{transport.StepDestroyQP, transport.StepDestroyID} {
		r.start(r.fw, s, 0, n)
		r.start(r.tw, s, 0, places) // what was rejected is gone already
	}
	if c := r.to.Counters(); c.Conns != 0 {
		t.Errorf("the target keeps %d connections", c.Conns)
	}
}

func TestMoreRequestsThanReserved(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	r.prepare(5)
	if err := r.tw.Reserve(0, 3); err != nil {
		t.Fatal(err)
	}
	r.start(r.fw, transport.StepConnect, 0, 5)
	r.until("answers", func() bool { return r.results(transport.StepFullConnect) == 5 })
	if len(r.failed) != 2 || r.failed[0].Reason != ReasonNoRoom || r.failed[0].Cause != transport.CauseRejected {
		t.Errorf("failures %+v", r.failed)
	}
	if got := r.to.Counters().Foreign; got != 2 {
		t.Errorf("%d counted as turned away, want 2", got)
	}
}

func TestPeerDies(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	const n = 4
	r.connect(n)
	r.to.Close()
	r.tw = r.fw
	r.until("peer's closes", func() bool { return len(r.closed) == n })
	before := r.got
	r.start(r.fw, transport.StepDisconnect, 0, n)
	r.until("disconnects", func() bool {
		return r.got[0][transport.StepDisconnect]+r.got[1][transport.StepDisconnect]-before[0][transport.StepDisconnect] == n
	})
}

func TestAbandonedIsSilent(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	r.tw.Accepting(false)
	r.prepare(2)
	r.start(r.fw, transport.StepConnect, 0, 2)
	r.fw.Abandon(1)
	r.tw.Accepting(true)
	r.until("the other one", func() bool { return r.got[0][transport.StepFullConnect] == 1 })
	r.until("the abandoned one's request", func() bool { return len(r.hellos) == 2 })
	for range 100 {
		r.turn()
	}
	if len(r.failed) > 0 || r.got[0][transport.StepFullConnect] != 1 {
		t.Errorf("failures %v, %d answers", r.failed, r.got[0][transport.StepFullConnect])
	}
	for _, s := range []transport.Step{transport.StepDestroyQP, transport.StepDestroyID} {
		r.start(r.fw, s, 0, 2)
	}
	if c := r.from.Counters(); c.Conns != 0 {
		t.Errorf("%d connections left", c.Conns)
	}
}

func TestDescriptorsAreCounted(t *testing.T) {
	before := openFDs(t)
	from, to := config("127.0.0.1"), config("127.0.0.1")
	to.Workers = 3
	p := New()
	r := newRig(t, from, to)
	own := func() int { return int(r.from.Counters().FDs + r.to.Counters().FDs) }
	if got := openFDs(t) - before; got != own() {
		t.Errorf("%d descriptors opened, %d counted", got, own())
	}
	_, _, one := p.FDs(1)
	_, _, three := p.FDs(3)
	if want := one - 1 + three; own() != want { // the initiator does not listen
		t.Errorf("%d counted, FDs promises %d", own(), want)
	}
	const n = 50
	r.tw.Accepting(true)
	for i := 1; i < 3; i++ {
		r.to.Worker(i).Accepting(false)
	}
	r.connect(n)
	if got := openFDs(t) - before; got != own() || got != one-1+three+2*n {
		t.Errorf("connected: %d descriptors opened, %d counted", got, own())
	}
	r.from.Close()
	r.to.Close()
	r.to.Close()
	if got := openFDs(t) - before; got != 0 || own() != 0 {
		t.Errorf("closed: %d descriptors left, %d counted", got, own())
	}
}

func TestReserveGrowsTheTableOnce(t *testing.T) {
	var d descriptorTable
	d.expect(0, 3000)
	size := d.size
	if size < 3000 {
		t.Fatalf("grown to %d for 3000", size)
	}
	d.expect(3000, 0)
	d.expect(0, 2900)
	if d.size != size {
		t.Errorf("a smaller need grew the table from %d to %d", size, d.size)
	}
	d.expect(2900, 1<<30) // beyond the limit: as far as it goes, and no harm
}

func TestMisuseIsAnError(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	if _, err := r.fw.Start(transport.StepConnect, 0, 1, nil); err == nil {
		t.Error("connect without Reserve")
	}
	r.prepare(1)
	for _, s := range []transport.Step{transport.StepCreateID, transport.StepProbe, transport.StepDisconnect, transport.StepAccept, transport.StepRTR} {
		if k, err := r.fw.Start(s, 0, 1, nil); err == nil || k != 0 {
			t.Errorf("%v on a connection that only has its queue pair: %d, %v", s, k, err)
		}
	}
	if err := r.fw.Reserve(1, 0); err == nil {
		t.Error("Reserve with a connection left")
	}
	if err := r.fw.Answer(0, true, 0); err == nil {
		t.Error("Answer without a request")
	}
	if err := r.fw.Assign(1, r.addr, hello(0)); err == nil {
		t.Error("Assign beyond the reserve")
	}
	if _, _, _, err := r.to.Listen(0); err == nil {
		t.Error("Listen twice")
	}
}

func TestBadConfig(t *testing.T) {
	for what, change := range map[string]func(*transport.Config){
		"no clock":       func(c *transport.Config) { c.Clock = nil },
		"no workers":     func(c *transport.Config) { c.Workers = 0 },
		"device":         func(c *transport.Config) { c.Device = "eth0" },
		"option":         func(c *transport.Config) { c.Options = map[string]string{"colour": "red"} },
		"port range":     func(c *transport.Config) { c.Options = map[string]string{OptionPortRange: "5-4"} },
		"no address":     func(c *transport.Config) { c.Advertise = "" },
		"name":           func(c *transport.Config) { c.Advertise = "localhost" },
		"wildcard":       func(c *transport.Config) { c.Advertise = "0.0.0.0" },
		"no zone":        func(c *transport.Config) { c.Advertise = "fe80::1" },
		"unknown zone":   func(c *transport.Config) { c.Advertise = "fe80::1%nowhere0" },
		"two families":   func(c *transport.Config) { c.Bind = []string{"::1"} },
		"bind with port": func(c *transport.Config) { c.Bind = []string{"127.0.0.1:4000"} },
	} {
		cfg := config("127.0.0.1")
		change(&cfg)
		if _, err := New().Open(cfg); err == nil {
			t.Errorf("%s: accepted", what)
		}
		if err := New().Probe(cfg); err == nil {
			t.Errorf("%s: probe accepted", what)
		}
	}
	if err := New().Probe(config("127.0.0.1", "192.0.2.77")); err == nil {
		t.Error("probe accepts an address that is not ours")
	}
}

func TestBusyWait(t *testing.T) {
	cfg := config("127.0.0.1")
	cfg.Busy = time.Hour // it never gets to sleep
	r := newRig(t, cfg, config("127.0.0.1"))
	until := r.clock.Now() + int64(3*time.Millisecond)
	if n, err := r.fw.Wait(until, r.ev); n != 0 || err != nil || r.clock.Now() < until {
		t.Errorf("%d events, %v, %d ns early", n, err, until-r.clock.Now())
	}
	r.fw.Wake()
	if n, err := r.fw.Wait(math.MaxInt64, r.ev); n != 0 || err != nil {
		t.Errorf("%d events, %v after Wake", n, err)
	}
	r.connect(1)
	r.start(r.fw, transport.StepProbe, 0, 1)
	r.until("the echo", func() bool {
		if r.got[0][transport.StepProbe] == 1 {
			return true
		}
		_, err := r.fw.Wait(r.clock.Now()+int64(time.Millisecond), nil)
		return err != nil
	})
}

// A Wait without room keeps what it found.
func TestWaitWithoutRoom(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	if err := r.fw.Reserve(1, 0); err != nil {
		t.Fatal(err)
	}
	if k, err := r.fw.Start(transport.StepCreateID, 0, 1, nil); k != 1 || err != nil {
		t.Fatal(k, err)
	}
	for range 2 {
		if n, err := r.fw.Wait(math.MaxInt64, nil); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := r.fw.Poll(r.ev); n != 1 || r.ev[0].Step != transport.StepCreateID {
		t.Errorf("%d events, first %v", n, r.ev[0].Step)
	}
}
