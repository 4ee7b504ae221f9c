package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/test/freeport"
	"rankstorm/transport"
	"rankstorm/transport/sim"
	"rankstorm/transport/tcp"
)

// tap is a provider that lets the test see every hello and where it goes, as
// somebody on the path would.
type tap struct {
	transport.Provider
	mu   sync.Mutex
	log  []tapped
	up   int           // connections that their initiators know to be up
	gate chan struct{} // not nil: nobody connects before it is closed
}

type tapped struct {
	to    transport.Address
	hello transport.Hello
}

func (p *tap) Open(c transport.Config) (transport.Endpoint, error) {
	ep, err := p.Provider.Open(c)
	return tapEndpoint{ep, p}, err
}

type tapEndpoint struct {
	transport.Endpoint
	p *tap
}

func (e tapEndpoint) Worker(i int) transport.Worker { return tapWorker{e.Endpoint.Worker(i), e.p} }

type tapWorker struct {
	transport.Worker
	p *tap
}

func (w tapWorker) Assign(c transport.Conn, to transport.Address, h *transport.Hello) error {
	w.p.mu.Lock()
	w.p.log = append(w.p.log, tapped{to, *h})
	w.p.mu.Unlock()
	return w.Worker.Assign(c, to, h)
}

func (w tapWorker) Start(s transport.Step, first transport.Conn, n int, due []int64) (int, error) {
	if s == transport.StepConnect && w.p.gate != nil {
		<-w.p.gate
	}
	return w.Worker.Start(s, first, n, due)
}

func (w tapWorker) Poll(ev []transport.Event) int {
	n := w.Worker.Poll(ev)
	w.p.count(ev[:n])
	return n
}

func (w tapWorker) Wait(until int64, ev []transport.Event) (int, error) {
	n, err := w.Worker.Wait(until, ev)
	w.p.count(ev[:n])
	return n, err
}

func (p *tap) count(list []transport.Event) {
	for _, e := range list {
		if e.Kind == transport.StepDone && e.Step == transport.StepFullConnect {
			p.mu.Lock()
			p.up++
			p.mu.Unlock()
		}
	}
}

// connected is how many connections are up.
func (p *tap) connected() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// seen are the hellos so far.
func (p *tap) seen() []tapped {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]tapped{}, p.log...)
}

// stranger connects with the given hellos and returns the reasons with which it was rejected; 0: it was taken.
func stranger(t *testing.T, p transport.Provider, clk transport.Clock, bind string, list []tapped) []uint16 {
	t.Helper()
	ep, err := p.Open(transport.Config{Clock: clk, Name: "stranger", Bind: []string{bind}, Advertise: bind, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	w := ep.Worker(0)
	if err := w.Reserve(len(list), 0); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if err := w.Assign(transport.Conn(i), list[i].to, &list[i].hello); err != nil {
			t.Fatal(err)
		}
	}
	reasons := make([]uint16, len(list))
	ev := make([]transport.Event, 64)
	const wave = 32 // who opens more at once than a target keeps half-open may be closed instead of answered
	for _, s := range []transport.Step{
		transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute, transport.StepCreateQP, transport.StepConnect,
	} {
		if !p.Steps().Has(s) {
			continue
		}
		last := s
		if s == transport.StepConnect {
			last = transport.StepFullConnect
		}
		for got, begun := 0, 0; got < len(list); {
			if begun < len(list) && begun < got+wave {
				n, err := w.Start(s, transport.Conn(begun), min(len(list), got+wave)-begun, nil)
				if begun += n; err != nil && !errors.Is(err, transport.ErrAgain) {
					t.Fatal(err)
				}
			}
			n, err := w.Wait(clk.Now()+int64(time.Minute), ev)
			if err != nil || n == 0 {
				t.Fatalf("%v: %d of %d answered, error %v", s, got, len(list), err)
			}
			for _, e := range ev[:n] {
				if e.Kind == transport.StepFailed {
					if e.Cause != transport.CauseRejected || e.Reason == 0 {
						t.Fatalf("%v failed: %v, reason %d, %v", e.Step, e.Cause, e.Reason, e.Err)
					}
					reasons[e.Conn] = e.Reason
				}
				if e.Kind == transport.StepFailed || e.Step == last {
					got++
				}
			}
		}
	}
	return reasons
}

// attacks are what somebody can make of a hello that was seen: itself, and changed in every part.
func attacks(h tapped) (list []tapped, want []uint16) {
	list, want = []tapped{h}, []uint16{rejectRepeated}
	for _, at := range []int{0, 3, 7, 11, 15, 16, 31, 32, 47} {
		forged := h
		forged.hello[at] ^= 1
		list, want = append(list, forged), append(want, rejectForeign)
	}
	unsigned := h
	clear(unsigned.hello[helloSaid:])
	return append(list, unsigned), append(want, rejectForeign)
}

// turnedAway checks what the document says about requests that were not taken.
func turnedAway(t *testing.T, d *collect.Document, foreign, repeated int64) {
	t.Helper()
	var f, r int64
	for _, p := range d.Resources {
		f, r = f+p.After.Foreign, r+p.After.Repeated
	}
	if f != foreign || r != repeated {
		t.Errorf("%d foreign and %d repeated requests, want %d and %d", f, r, foreign, repeated)
	}
	want := fmt.Sprintf("%d not of this job or forged, %d repeated", foreign, repeated)
	if !strings.Contains(strings.Join(d.Warnings, "\n"), want) {
		t.Errorf("no warning with %q among %q", want, d.Warnings)
	}
}

// Hellos that were seen on the way and are said again, in the same round or a later one, and forged ones: every one
// is refused, and the job does not notice.
func TestReplayedAndForgedHellos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds, conns = 3, 4
		s := spec(4, func(s *phases.Spec) {
			s.Secret, s.Rounds, s.Connections, s.Threads = true, rounds, conns, 2
			s.Holds = []phases.Hold{{Phase: phases.Bind, For: time.Second}, {Phase: phases.Connect, For: time.Second}}
		})
		var wire *tap
		b := start(t, 2, s, sim.FabricConfig{}, func(_ int, cfg *Config) {
			cfg.Rendezvous.Secret = []byte("s3cret")
			if wire == nil {
				wire = &tap{Provider: cfg.Provider}
			}
			cfg.Provider = sharedTap{wire, cfg.Provider}
		})
		const perRound = 4 * 3 * conns
		var foreign, repeated int64
		for round := range rounds {
			for len(wire.seen()) < perRound*(round+1) {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(500 * time.Millisecond) // all processes hold in connect
			list, want := attacks(wire.seen()[perRound*round+7])
			if round > 0 { // of the round before
				list, want = append(list, wire.seen()[perRound*(round-1)+7]), append(want, rejectForeign)
			}
			got := stranger(t, sim.New(b.fabric), sim.NewClock(0), fmt.Sprintf("stranger%d", round), list)
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("round %d: hello %d was answered with %d, want %d", round, i, got[i], want[i])
				}
				if want[i] == rejectRepeated {
					repeated++
				} else {
					foreign++
				}
			}
		}
		d := b.clean()
		whole(t, d, perRound*rounds)
		turnedAway(t, d, foreign, repeated)
	})
}

// sharedTap taps a provider of its own into a common log.
type sharedTap struct {
	*tap
	own transport.Provider
}

func (s sharedTap) Open(c transport.Config) (transport.Endpoint, error) {
	ep, err := s.own.Open(c)
	return tapEndpoint{ep, s.tap}, err
}

// In an open job a hello said twice is refused as well; whoever knows the table can make one up.
func TestReplayedHelloInOpenJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spec(2, func(s *phases.Spec) {
			s.Connections, s.Threads = 2, 2 // each thread has places for all
			s.Holds = []phases.Hold{{Phase: phases.Connect, For: time.Second}}
		})
		var wire *tap
		b := start(t, 1, s, sim.FabricConfig{}, func(_ int, cfg *Config) {
			if wire == nil {
				wire = &tap{Provider: cfg.Provider}
			}
			cfg.Provider = sharedTap{wire, cfg.Provider}
		})
		for len(wire.seen()) < 4 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		list := wire.seen()
		for i, reason := range stranger(t, sim.New(b.fabric), sim.NewClock(0), "stranger", list) {
			if reason != rejectRepeated {
				t.Errorf("hello %d was answered with %d, want %d", i, reason, rejectRepeated)
			}
			if !bytes.Equal(list[i].hello[helloSaid:], make([]byte, 16)) {
				t.Errorf("a token in an open job: %x", list[i].hello)
			}
		}
		d := b.clean()
		whole(t, d, 4)
		turnedAway(t, d, 0, 4)
	})
}

// Strangers who come before the storm, as many as the backlog holds, are gone when it begins: no peer has to try again.
func TestFullBacklogBeforeTheStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog, conns = 8, 4
		s := spec(2, func(s *phases.Spec) {
			s.Connections = conns
			s.Holds = []phases.Hold{{Phase: phases.QP, For: time.Second}}
		})
		var wire *tap
		fc := sim.FabricConfig{MaxBacklog: backlog}
		fc.Costs[transport.StepConnect] = time.Millisecond // a target is busy with its own when the first request comes
		b := start(t, 1, s, fc, func(_ int, cfg *Config) {
			if wire == nil {
				wire = &tap{Provider: cfg.Provider}
			}
			cfg.Provider = sharedTap{wire, cfg.Provider}
		})
		for len(wire.seen()) < 2*conns {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond) // all processes hold in qp, the last phase before
		var junk []tapped
		for _, h := range wire.seen() {
			h.hello[31] ^= 1
			for range backlog / conns {
				junk = append(junk, h)
			}
		}
		for i, reason := range stranger(t, sim.New(b.fabric), sim.NewClock(0), "stranger", junk) {
			if reason != rejectForeign {
				t.Errorf("hello %d was answered with %d, want %d", i, reason, rejectForeign)
			}
		}
		d := b.clean()
		whole(t, d, 2*conns)
		turnedAway(t, d, int64(len(junk)), 0)
		for _, p := range d.Resources {
			if *p.After.SYNRetries != 0 || *p.After.ListenDrops != 0 {
				t.Errorf("process %d: %d requests sent again, %d dropped", p.Proc, *p.After.SYNRetries, *p.After.ListenDrops)
			}
		}
	})
}

// The same over TCP on loopback, while a third process has not connected yet: its places stay free for it.
func TestReplayedHellosOverTCP(t *testing.T) {
	port := freeport.At(t, "127.0.0.1")
	const procs, conns = 3, 40
	s := spec(procs, func(s *phases.Spec) { s.Secret, s.Transport, s.Connections = true, "tcp", conns })
	early, late := &tap{Provider: tcp.New()}, &tap{Provider: tcp.New(), gate: make(chan struct{})}
	out := filepath.Join(t.TempDir(), "out.json")
	errs := make(chan error, procs)
	for i := range procs {
		provider := early
		if i == procs-1 {
			provider = late
		}
		go func() {
			errs <- Run(context.Background(), Config{
				Spec: s, Provider: provider, Clock: transport.NewClock(),
				Rendezvous: rendezvous.Config{
					Controller: "127.0.0.1", Port: port, JobKey: "replay", Secret: []byte("s3cret"),
					BindAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
					Record:    rank.Record{Host: "here", HostID: [16]byte{1}, PID: 100 + i, LauncherProc: i, LocalIndex: -1},
				},
				Bind: []string{"127.0.0.1"}, Out: out, Columns: 160, CPUs: 1, Shared: true,
			})
		}()
	}
	for early.connected() < 2*conns { // both ways between ranks 0 and 1
		time.Sleep(time.Millisecond)
	}
	var list []tapped
	var want []uint16
	for _, h := range early.seen() {
		if to := h.hello[11]; to != procs-1 { // the third does not answer yet
			l, w := attacks(h)
			list, want = append(list, l...), append(want, w...)
		}
	}
	var foreign, repeated int64
	for i, reason := range stranger(t, tcp.New(), transport.NewClock(), "127.0.0.1", list) {
		if reason != want[i] {
			t.Errorf("hello %d was answered with %d, want %d", i, reason, want[i])
		}
		if want[i] == rejectRepeated {
			repeated++
		} else {
			foreign++
		}
	}
	close(late.gate)
	for range procs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	d := (&bubble{t: t, procs: []*bubbleProc{{out: out}}}).document(0)
	whole(t, d, procs*(procs-1)*conns)
	turnedAway(t, d, foreign, repeated)
}

// The token is what its comment says: a vector computed apart.
func TestTokenIsAsWritten(t *testing.T) {
	table := &rank.Table{}
	for i := range table.Digest {
		table.Digest[i] = byte(i)
	}
	key := bytes.Repeat([]byte{0x0b}, 32)
	w := &worker{rk: &localRank{p: &process{table: table}}, vouch: newVouch(key), slot: phases.Slot{Round: 5}}
	var h transport.Hello
	w.hello(&h, 3, 258, 7)
	const want = "02000005000000030000010200000007000102030405060708090a0b0c0d0e0fc38325112250257c0716b39c193e1f11"
	if got := fmt.Sprintf("%x", h); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What a connection pays for its token, on either side.
func BenchmarkHello(b *testing.B) {
	for _, c := range []struct {
		name string
		key  []byte
	}{{"open", nil}, {"secret", make([]byte, 32)}} {
		b.Run(c.name, func(b *testing.B) {
			topo, err := rank.NewTopology(rank.NewLayout(2, 1), rank.Params{Name: "all_to_all"})
			if err != nil {
				b.Fatal(err)
			}
			p := &process{table: &rank.Table{}}
			w := &worker{rk: &localRank{p: p, rank: 1, load: load{expect: newExpected(topo, 1, 1024)}}, vouch: newVouch(c.key)}
			hellos := make([]transport.Hello, 1024)
			for i := range hellos {
				w.hello(&hellos[i], 0, 1, int32(i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%1024 == 0 {
					w.rk.expect.reset()
				}
				if _, _, reason := w.checkHello(&hellos[i%1024]); reason != 0 {
					b.Fatal(reason)
				}
			}
		})
	}
}
