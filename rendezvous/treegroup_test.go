package rendezvous

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rankstorm/rank"
)

// testTable makes a table of n processes on hosts of 8, listening where
// controls say (nil: nowhere).
func testTable(t testing.TB, n int, controls []*control) *rank.Table {
	t.Helper()
	recs := make([]rank.Record, n)
	for p := range recs {
		recs[p] = testRecord(p)
		if controls != nil {
			recs[p].Control = controls[p].addrs()
		}
	}
	table, err := rank.Build(recs, 1, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func testRecord(p int) rank.Record {
	r := rank.Record{
		Host: fmt.Sprintf("n%d", p/8), PID: 1000 + p, Start: uint64(p),
		LauncherProc: p, LocalIndex: p % 8, BuildID: "b1", CPUs: 1,
	}
	binary.BigEndian.PutUint64(r.Nonce[:], uint64(p+1))
	return r
}

func testConfig(p, n int) *Config {
	return &Config{
		Network: Machine(), Procs: n, K: 1, JobKey: "job", Record: testRecord(p),
		BindAddrs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})},
	}
}

// open opens the ports of n processes; change may alter the configurations.
func open(t testing.TB, n int, change func(p int, cfg *Config)) []*control {
	t.Helper()
	cs := make([]*control, n)
	for p := range cs {
		cfg := testConfig(p, n)
		if change != nil {
			change(p, cfg)
		}
		c, err := openControl(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cs[p] = c
	}
	return cs
}

// form seals table over controls; errs[p] is what process p got.
func form(cs []*control, table *rank.Table) (gs []*Group, errs []error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	gs, errs = make([]*Group, len(cs)), make([]error, len(cs))
	var wg sync.WaitGroup
	for p := range cs {
		wg.Go(func() {
			if p == 0 {
				if gs[p], errs[p] = cs[p].seal(ctx, table); errs[p] != nil {
					// Whom no parent had reached yet would wait on.
					time.AfterFunc(failWait+time.Second, cancel)
				}
			} else {
				gs[p], errs[p] = cs[p].await(ctx)
			}
		})
	}
	wg.Wait()
	return gs, errs
}

func sealed(t testing.TB, n int, change func(p int, cfg *Config)) []*Group {
	t.Helper()
	cs := open(t, n, change)
	gs, errs := form(cs, testTable(t, n, cs))
	for p, err := range errs {
		if err != nil {
			t.Errorf("process %d: %v", p, err)
		}
	}
	if t.Failed() {
		closeGroups(gs)
		for p, c := range cs {
			if gs[p] == nil {
				c.close()
			}
		}
		t.FailNow()
	}
	return gs
}

func closeGroups(gs []*Group) {
	var wg sync.WaitGroup
	for _, g := range gs {
		if g != nil {
			wg.Go(func() { g.Close() })
		}
	}
	wg.Wait()
}

// reduce is what every process does in a barrier: wait for the children, tell
// the parent, wait for the answer and pass it on. The sum of all process
// numbers goes up.
func reduce(g *Group) (uint64, error) {
	sum := uint64(g.Self())
	var buf [8]byte
	for range g.Children() {
		e := <-g.Events()
		if e.Kind != FromChild {
			return 0, fmt.Errorf("process %d: event %+v", g.Self(), e)
		}
		sum += binary.BigEndian.Uint64(e.Payload)
	}
	binary.BigEndian.PutUint64(buf[:], sum)
	if g.Parent() >= 0 {
		if err := g.SendUp(buf[:]); err != nil {
			return 0, err
		}
		e := <-g.Events()
		if e.Kind != FromParent || e.Proc != g.Parent() {
			return 0, fmt.Errorf("process %d: event %+v", g.Self(), e)
		}
		copy(buf[:], e.Payload)
	}
	return binary.BigEndian.Uint64(buf[:]), g.Broadcast(buf[:])
}

func TestSealAndReduce(t *testing.T) {
	for _, n := range []int{1, 2, 8, 17, 40, 300} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			gs := sealed(t, n, func(_ int, cfg *Config) { cfg.TreeArity = 4 })
			if n > 1 && gs[0].TreeTime() <= 0 {
				t.Error("no tree time at the root")
			}
			var wg sync.WaitGroup
			for p, g := range gs {
				if g.Self() != rank.Proc(p) || g.Table().Digest != gs[0].Table().Digest {
					t.Errorf("process %d: self %d, digest %x", p, g.Self(), g.Table().Digest[:4])
				}
				wg.Go(func() {
					for range 20 {
						sum, err := reduce(g)
						if want := uint64(n * (n - 1) / 2); err != nil || sum != want {
							t.Errorf("process %d: sum %d, want %d, error %v", p, sum, want, err)
							return
						}
					}
				})
			}
			wg.Wait()
			closeGroups(gs)
			for p, g := range gs {
				select {
				case e := <-g.Events():
					t.Errorf("process %d: closing gave event %+v", p, e)
				default:
				}
				g.Close() // again does nothing
			}
		})
	}
}

func TestLongPayloads(t *testing.T) {
	defer goleak.VerifyNone(t)
	gs := sealed(t, 3, nil)
	defer closeGroups(gs)
	body := make([]byte, 6<<20)
	for i := range body {
		body[i] = byte(i >> 8)
	}
	// Nobody reads yet: neither call may wait for a reader.
	if err := gs[0].Broadcast(body); err != nil {
		t.Fatal(err)
	}
	if err := gs[1].SendUp(body); err != nil {
		t.Fatal(err)
	}
	clear(body[:1000])
	for _, g := range gs {
		e := <-g.Events()
		if g.Self() == 2 || g.Self() == 1 {
			if e.Kind != FromParent {
				t.Fatalf("event kind %d", e.Kind)
			}
		}
		if len(e.Payload) != len(body) || e.Payload[999] != byte(999>>8) || e.Payload[5<<20] != byte(5<<20>>8&0xff) {
			t.Fatalf("process %d got %d bytes, changed", g.Self(), len(e.Payload))
		}
		if g.Self() == 0 {
			break
		}
	}
	if err := gs[0].SendDown(2, []byte("two")); err != nil {
		t.Fatal(err)
	}
	if e := <-gs[2].Events(); len(e.Payload) != len(body) {
		t.Fatalf("first event has %d bytes", len(e.Payload))
	}
	if e := <-gs[2].Events(); string(e.Payload) != "two" {
		t.Fatalf("second event is %q", e.Payload)
	}
	if err := gs[0].SendUp(nil); err == nil {
		t.Error("the root sent upwards")
	}
	if err := gs[0].SendDown(0, nil); err == nil {
		t.Error("sent to a process that is no child")
	}
	if err := gs[0].Broadcast(make([]byte, maxBody+1)); !errors.Is(err, errBodySize) {
		t.Errorf("a payload over the limit: %v", err)
	}
}

// unreached: the seal failed before anybody had dialled process p, which hears
// of it in another way than over the tree.
func unreached(p int, e *rank.Error) bool {
	return p > 2 && strings.HasPrefix(e.Text, "no rank table came")
}

func TestDifferentSettingsAreRefused(t *testing.T) {
	defer goleak.VerifyNone(t)
	cs := open(t, 7, func(p int, cfg *Config) {
		cfg.TreeArity = 2
		if p == 5 { // below process 2
			cfg.Settings = []rank.KV{{Key: "topology", Value: "ring"}}
		}
	})
	_, errs := form(cs, testTable(t, 7, cs))
	for p, err := range errs {
		var e *rank.Error
		if !errors.As(err, &e) || rank.ExitCode(err) != 3 {
			t.Fatalf("process %d: error %v", p, err)
		}
		if p != 5 && e.Proc != 5 && !unreached(p, e) {
			t.Errorf("process %d blames process %d: %v", p, e.Proc, err)
		}
		cs[p].close()
	}
}

func TestUnreachableChildEndsTheSeal(t *testing.T) {
	defer goleak.VerifyNone(t)
	cs := open(t, 7, func(_ int, cfg *Config) { cfg.TreeArity = 2 })
	table := testTable(t, 7, cs)
	cs[6].close()
	_, errs := form(cs[:6], table)
	for p, err := range errs {
		var e *rank.Error
		if !errors.As(err, &e) || rank.ExitCode(err) != 3 || (e.Proc != 6 || e.Host != "n0") && !unreached(p, e) {
			t.Fatalf("process %d: error %v", p, err)
		}
		cs[p].close()
	}
}

func TestStaleTableIsRefused(t *testing.T) {
	defer goleak.VerifyNone(t)
	cs := open(t, 2, func(p int, cfg *Config) {
		if p == 1 { // another start of the process has the port now
			cfg.Record.Nonce[15] = 9
		}
	})
	table := testTable(t, 2, cs)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	awaiting, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() {
		_, err := cs[1].await(awaiting)
		done <- err
	}()
	_, err := cs[0].seal(ctx, table)
	var e *rank.Error
	if !errors.As(err, &e) || e.Proc != 1 || rank.ExitCode(err) != 3 {
		t.Fatalf("error %v", err)
	}
	stop()
	if err := <-done; rank.ExitCode(err) != 3 {
		t.Fatalf("await: %v", err)
	}
	cs[0].close()
	cs[1].close()
}

// BenchmarkBarrier64 is one reduction up and one broadcast down through 64
// processes (here in one), user goroutines included.
func BenchmarkBarrier64(b *testing.B) { benchmarkBarrier(b, 64, nil) }

// BenchmarkBarrier64TLS is the same over protected links.
func BenchmarkBarrier64TLS(b *testing.B) { benchmarkBarrier(b, 64, []byte("secret")) }

// BenchmarkBarrier256 is the same with 256.
func BenchmarkBarrier256(b *testing.B) { benchmarkBarrier(b, 256, nil) }

func benchmarkBarrier(b *testing.B, n int, secret []byte) {
	gs := sealed(b, n, func(_ int, cfg *Config) { cfg.Record.HostID, cfg.Secret = [16]byte{1}, secret })
	defer closeGroups(gs)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, g := range gs {
		wg.Go(func() {
			for range b.N {
				if _, err := reduce(g); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
