//go:build cgo

package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/nldev"
	"rankstorm/transport/rdma/internal/verbs"
)

// side is an endpoint with one worker, driven by the test.
type side struct {
	t    *testing.T
	ep   transport.Endpoint
	w    transport.Worker
	addr transport.Address
	ev   []transport.Event // all that was told
	in   []transport.Conn  // accepted
}

func openSide(t *testing.T, cfg transport.Config) *side {
	t.Helper()
	ep, err := New().Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &side{t: t, ep: ep, w: ep.Worker(0)}
	if s.addr, _, _, err = ep.Listen(0); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *side) reserve(out, in int) {
	s.t.Helper()
	if err := s.w.Reserve(out, in); err != nil {
		s.t.Fatal(err)
	}
}

// poll takes what has happened and accepts every request.
func (s *side) poll() {
	s.t.Helper()
	var ev [32]transport.Event
	for _, e := range ev[:s.w.Poll(ev[:])] {
		s.ev = append(s.ev, e)
		if e.Kind == transport.EventRequest {
			s.in = append(s.in, e.Conn)
			if err := s.w.Answer(e.Conn, true, 0); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// run takes n connections from first on through a step while others serve, and
// gives the events that ended it, failures too.
func (s *side) run(st transport.Step, first, n int, others ...*side) []transport.Event {
	s.t.Helper()
	last := st
	if st == transport.StepConnect {
		last = transport.StepFullConnect
	}
	from := len(s.ev)
	deadline := time.Now().Add(30 * time.Second)
	for begun := 0; ; {
		if begun < n {
			k, err := s.w.Start(st, transport.Conn(first+begun), n-begun, nil)
			if err != nil && !errors.Is(err, transport.ErrAgain) {
				s.t.Fatalf("%v of connection %d: %v", st, first+begun+k, err)
			}
			begun += k
		}
		for _, o := range append(others, s) {
			o.poll()
		}
		var ended []transport.Event
		for _, e := range s.ev[from:] {
			if e.Step == last && e.Kind == transport.StepDone || e.Kind == transport.StepFailed {
				ended = append(ended, e)
			}
		}
		if len(ended) >= n {
			return ended
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%v: %d of %d ended: %+v", st, len(ended), n, s.ev[from:])
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// must is run without a failure.
func (s *side) must(st transport.Step, first, n int, others ...*side) {
	s.t.Helper()
	for _, e := range s.run(st, first, n, others...) {
		if e.Kind == transport.StepFailed {
			s.t.Fatalf("%v of connection %d failed: %v %v", e.Step, e.Conn, e.Cause, e.Err)
		}
	}
}

var upToConnect = []transport.Step{
	transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute,
	transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP,
}

// prepare takes n connections towards another endpoint up to connect.
func (s *side) prepare(n int, to transport.Address) {
	s.t.Helper()
	s.reserve(n, 0)
	for c := range n {
		if err := s.w.Assign(transport.Conn(c), to, &transport.Hello{byte(c)}); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, st := range upToConnect {
		s.must(st, 0, n)
	}
}

func (s *side) query(c transport.Conn) verbs.QPState {
	s.t.Helper()
	q, err := s.w.(*worker).table.Query(int32(c))
	if err != nil {
		s.t.Fatal(err)
	}
	return q
}

// TestQueuePairs asks the device for what the queue pairs of an established
// connection are like: what the connection manager leaves out has been added.
func TestQueuePairs(t *testing.T) {
	ips := lab(t)
	const remote = 2 | 4 // write and read
	for _, c := range []struct {
		options map[string]string
		want    verbs.QPState
	}{
		{nil, verbs.QPState{MinRNR: 12, RetryCnt: 7, RNRRetry: 7, MTU: 3}},
		{
			map[string]string{OptionMTU: "512", OptionRetryCnt: "5", OptionRNRRetry: "6", OptionAckTimeout: "16", OptionSL: "2", OptionTOS: "104"},
			verbs.QPState{MinRNR: 12, RetryCnt: 5, RNRRetry: 6, MTU: 2, Timeout: 16, TrafficClass: 104},
		},
	} {
		cfgs := [2]transport.Config{config(ips[0]), config(ips[1])}
		for i := range cfgs {
			cfgs[i].Options = c.options
		}
		from, to := openSide(t, cfgs[0]), openSide(t, cfgs[1])
		to.reserve(0, 1)
		from.prepare(1, to.addr)
		from.must(transport.StepConnect, 0, 1, to)
		from.must(transport.StepProbe, 0, 1, to)
		for what, got := range map[string]verbs.QPState{"initiator": from.query(0), "target": to.query(to.in[0])} {
			if got.AccessFlags&remote != remote {
				t.Errorf("%s: access flags %#x: the peer could not write and read", what, got.AccessFlags)
			}
			got.AccessFlags, got.SGIDIndex = 0, 0
			got.SL = 0            // soft-RoCE has none to keep
			if c.options == nil { // whatever the path says
				got.Timeout, got.TrafficClass = 0, 0
			}
			if got != c.want {
				t.Errorf("%s with %v: %+v, want %+v", what, c.options, got, c.want)
			}
		}
	}
}

// TestGIDIndex takes an entry that holds the address, and no other.
func TestGIDIndex(t *testing.T) {
	ip := lab(t)[0]
	cfg := config(ip)
	cfg.Options = map[string]string{OptionGIDIndex: "200"}
	err := New().Probe(cfg)
	if err == nil || !strings.Contains(err.Error(), "is not the entry of "+ip+": that is ") {
		t.Fatalf("index 200: %v", err)
	}
	_, index, _ := strings.Cut(err.Error(), "that is ")
	index, _, _ = strings.Cut(index, " ")
	cfg.Options[OptionGIDIndex] = index
	from, to := openSide(t, cfg), openSide(t, cfg)
	to.reserve(0, 1)
	from.prepare(1, to.addr)
	from.must(transport.StepConnect, 0, 1, to)
	from.must(transport.StepProbe, 0, 1, to)
	if got := fmt.Sprint(from.query(0).SGIDIndex); got != index {
		t.Errorf("the queue pair has the GID index %s, want %s", got, index)
	}
}

// TestProbeExplains: each thing that is missing has its own line.
func TestProbeExplains(t *testing.T) {
	ips := lab(t)
	for _, c := range []struct {
		what   string
		change func(*transport.Config)
		says   string
	}{
		{"an address without a device", func(c *transport.Config) { c.Advertise, c.Bind = "127.0.0.1", nil }, "no RDMA device has this address"},
		{"an address of another machine", func(c *transport.Config) { c.Bind = []string{"192.0.2.7"} }, "not an address of this machine"},
		{"another device's address", func(c *transport.Config) { c.Device = os.Getenv("RDMALAB_DEV1") }, "belongs to device " + os.Getenv("RDMALAB_DEV0")},
		{"an MTU above the port's", func(c *transport.Config) { c.Options = map[string]string{OptionMTU: "4096"} }, "carries 1024 bytes now"},
	} {
		cfg := config(ips[0])
		c.change(&cfg)
		err := New().Probe(cfg)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.what, err, c.says)
		}
		if ep, err2 := New().Open(cfg); err2 == nil {
			ep.Close()
			t.Errorf("%s: Open succeeded", c.what)
		}
	}
}

// TestPortsRunOut: the kernel says EADDRNOTAVAIL for that, as it does for an
// address of another machine.
func TestPortsRunOut(t *testing.T) {
	ips := lab(t)
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := openSide(t, config(ips[0]))
	if err := os.WriteFile(file, []byte("50000 50009"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, before, 0o644); err != nil {
			t.Error(err)
		}
	})
	s.reserve(12, 0)
	s.must(transport.StepCreateID, 0, 12)
	bound := 0
	for _, e := range s.run(transport.StepBindAddr, 0, 12) {
		if e.Kind == transport.StepDone {
			bound++
			continue
		}
		if e.Cause != transport.CauseNoPorts || !strings.Contains(e.Err.Error(), "no RDMA port is left") {
			t.Errorf("connection %d: %v, %v", e.Conn, e.Cause, e.Err)
		}
	}
	if bound != 10 {
		t.Errorf("%d of 10 ports were bound to", bound)
	}
}

// TestTargetWithoutQueuePairs: a target that has none left says so, and no initiator waits for it.
func TestTargetWithoutQueuePairs(t *testing.T) {
	ips := lab(t)
	from, to := openSide(t, config(ips[0])), openSide(t, config(ips[1]))
	to.reserve(0, 2)
	from.prepare(2, to.addr)
	leave := rdmaCgroup(t, os.Getenv("RDMALAB_DEV1")+" hca_object=0")
	begin := time.Now()
	for _, e := range from.run(transport.StepConnect, 0, 2, to) {
		if e.Kind != transport.StepFailed || e.Cause != transport.CauseNoMemory || !strings.Contains(e.Err.Error(), "the target has no resources left") {
			t.Errorf("connection %d: %v %v, %v", e.Conn, e.Kind, e.Cause, e.Err)
		}
	}
	if d := time.Since(begin); d > 4*time.Second {
		t.Errorf("it took %v, which is a retry", d)
	}
	for _, e := range to.ev {
		if e.Kind == transport.StepFailed && e.Cause != transport.CauseNoMemory {
			t.Errorf("the target: %v, %v", e.Cause, e.Err)
		}
	}
	leave()
	from.must(transport.StepDestroyQP, 0, 2)
	from.must(transport.StepDestroyID, 0, 2)
}

// rdmaCgroup takes this process into a cgroup with such a limit, until leave or the end of the test.
func rdmaCgroup(t *testing.T, limit string) (leave func()) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "limited")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var once sync.Once
	leave = func() {
		once.Do(func() {
			write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(os.Getpid()))
			if err := errors.Join(os.Remove(own), unix.Unmount(dir, 0)); err != nil {
				t.Error(err)
			}
		})
	}
	write(filepath.Join(dir, "cgroup.subtree_control"), "+rdma")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	write(filepath.Join(own, "rdma.max"), limit)
	write(filepath.Join(own, "cgroup.procs"), strconv.Itoa(os.Getpid()))
	return leave
}

// TestIPv6 between endpoints of one device.
func TestIPv6(t *testing.T) {
	lab(t)
	cfg := config("fd66::1")
	from, to := openSide(t, cfg), openSide(t, cfg)
	to.reserve(0, 2)
	from.prepare(2, to.addr)
	from.must(transport.StepConnect, 0, 2, to)
	from.must(transport.StepProbe, 0, 2, to)
	from.must(transport.StepDisconnect, 0, 2, to)
}

// TestResolveTriesAgain counts the tries in the error of an address that nobody has.
func TestResolveTriesAgain(t *testing.T) {
	ip := netip.MustParseAddr(lab(t)[0])
	cfg := config(ip.String())
	cfg.Options = map[string]string{transport.OptionResolveTimeout: "100", transport.OptionResolveRetries: "3"}
	s := openSide(t, cfg)
	s.reserve(1, 0)
	nobody := encodeAddr(netip.AddrPortFrom(ip.Next().Next().Next().Next(), 9))
	if err := s.w.Assign(0, nobody, &transport.Hello{}); err != nil {
		t.Fatal(err)
	}
	s.must(transport.StepCreateID, 0, 1)
	s.must(transport.StepBindAddr, 0, 1)
	e := s.run(transport.StepResolveAddr, 0, 1)[0]
	if e.Kind != transport.StepFailed || e.Cause != transport.CauseTimeout || !strings.Contains(e.Err.Error(), "after 4 tries of 100 ms") {
		t.Errorf("got %+v", e)
	}
	if d := time.Duration(e.End - e.Begin); d < 400*time.Millisecond {
		t.Errorf("four tries of 100 ms took %v", d)
	}
}

// TestKernelAgrees compares the provider's own counts with the kernel's.
func TestKernelAgrees(t *testing.T) {
	ips := lab(t)
	from, to := openSide(t, config(ips[0])), openSide(t, config(ips[1]))
	same := func(when string) {
		t.Helper()
		kernel, err := nldev.HeldBy(os.Getpid(), mostHeld)
		if err != nil {
			t.Fatal(err)
		}
		a, b := from.ep.Counters(), to.ep.Counters()
		got := [4]int64{a.IDs + b.IDs, a.QPs + b.QPs, a.CQs + b.CQs, a.MRs + b.MRs}
		if want := [4]int64{kernel.IDs, kernel.QPs, kernel.CQs, kernel.MRs}; got != want {
			t.Errorf("%s: %v ids, queue pairs, completion queues and regions are counted, the kernel has %v", when, got, want)
		}
	}
	const n = 7
	same("at first")
	to.reserve(0, n)
	from.prepare(n, to.addr)
	same("before connect")
	from.must(transport.StepConnect, 0, n, to)
	same("connected")
	from.must(transport.StepDisconnect, 0, n, to)
	from.must(transport.StepDestroyQP, 0, n)
	same("without the initiator's queue pairs")
	from.must(transport.StepDestroyID, 0, n)
	to.must(transport.StepDestroyQP, 0, n)
	to.must(transport.StepDestroyID, 0, n)
	same("at the end")
}

// TestNumbersCollide: two endpoints that name the same queue pair numbers on
// one adapter look like one that connects twice.
func TestNumbersCollide(t *testing.T) {
	ip := lab(t)[0]
	to := openSide(t, config(ip))
	var ends []transport.Event
	for i := range 2 {
		from := openSide(t, config(ip))
		m := transport.Mimic{On: true, First: 500, Count: 1}
		if err := from.ep.(transport.Mimicker).Mimic(m); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			m.First = 900
			m.Count = 2
			if err := to.ep.(transport.Mimicker).Mimic(m); err != nil {
				t.Fatal(err)
			}
			to.reserve(0, 2)
		}
		from.prepare(1, to.addr)
		ends = append(ends, from.run(transport.StepConnect, 0, 1, to)...)
	}
	if ends[0].Kind != transport.StepDone {
		t.Fatalf("the first: %+v", ends[0])
	}
	if e := ends[1]; e.Kind != transport.StepFailed || e.Cause != transport.CauseReset || !strings.Contains(e.Err.Error(), "stale connection") {
		t.Errorf("the second: %v, %v", e.Cause, e.Err)
	}
}

func TestMimicRefuses(t *testing.T) {
	s := openSide(t, config(lab(t)[0]))
	m := s.ep.(transport.Mimicker)
	for says, bad := range map[string]transport.Mimic{
		"do not fit 24 bits": {On: true, First: 1<<24 - 5, Count: 6},
		"is negative":        {On: true, Delay: -1, First: 1, Count: 1},
	} {
		if err := m.Mimic(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", bad, err, says)
		}
	}
	if err := m.Mimic(transport.Mimic{On: true, First: 1<<24 - 6, Count: 6}); err != nil {
		t.Error(err)
	}
	if err := s.w.Reserve(7, 0); err == nil || !strings.Contains(err.Error(), "only 6 queue pair numbers") {
		t.Errorf("7 connections with 6 numbers: %v", err)
	}
	s.reserve(6, 0)
}

// TestBacklogTooLarge: the kernel would take less without a word.
func TestBacklogTooLarge(t *testing.T) {
	ep, err := New().Open(config(lab(t)[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	if _, _, _, err := ep.Listen(maxBacklog() + 1); err == nil || !strings.Contains(err.Error(), "sysctl -w net.rdma_ucm.max_backlog") {
		t.Errorf("got %v", err)
	}
	if _, _, _, err := ep.Listen(maxBacklog()); err != nil {
		t.Error(err)
	}
}
