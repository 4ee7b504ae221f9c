package runner

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// countingProvider has a port that counts 10 requests more at each reading.
type countingProvider struct {
	transport.Provider
	host     int
	readings *atomic.Int64
}

func (p countingProvider) PortCounts(local []netip.Addr) []transport.PortCounts {
	n := p.readings.Add(1)
	return []transport.PortCounts{{
		Device: fmt.Sprintf("rxe%d", p.host), Port: 1, Addresses: local,
		Counts: map[string]int64{"cm_rx_msgs/req": 1000 + 10*n, "cm_tx_msgs/rep": 7, "hw/rdma_sends": n},
	}}
}

// TestPortsAreReadOncePerMachine: of each machine the process with the lowest
// number reads the counters, after the phases in which messages come; the
// document sums them over hosts and rounds, and names the ranks behind a port.
func TestPortsAreReadOncePerMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const procs, hosts, rounds = 4, 2, 2
		var readings [procs]atomic.Int64
		d := start(t, hosts, spec(procs, func(s *phases.Spec) { s.Rounds = rounds }), sim.FabricConfig{}, func(i int, cfg *Config) {
			cfg.Provider = countingProvider{cfg.Provider, i * hosts / procs, &readings[i]}
			cfg.Bind = []string{fmt.Sprintf("10.9.0.%d", i)}
			cfg.Rendezvous.Record.Own = []rank.KV{{Key: OwnBind, Value: cfg.Bind[0]}, {Key: OwnBindFrom, Value: "-b"}}
		}).clean()
		const after = int64(4) // phases of each round
		for i := range readings {
			want := int64(0)
			if i%2 == 0 {
				want = 1 + rounds*after
			}
			if got := readings[i].Load(); got != want {
				t.Errorf("process %d read %d times, want %d", i, got, want)
			}
		}
		c := d.DeviceCounters
		if c == nil || c.Ports != hosts || len(c.List) != hosts || c.LeftOut != 0 {
			t.Fatalf("device counters %+v", c)
		}
		var names []string
		for _, p := range c.Phases {
			names = append(names, p.Phase)
			if n := p.Counts["cm_rx_msgs/req"]; n != 10*rounds*hosts || len(p.Counts) != 2 {
				t.Errorf("%s: %v, want %d requests", p.Phase, p.Counts, 10*rounds*hosts)
			}
		}
		if want := []string{"connect", "probe", "disconnect", "destroy"}; !slices.Equal(names, want) {
			t.Errorf("phases %q, want %q", names, want)
		}
		for h, p := range c.List {
			first := rank.Rank(2 * h)
			if p.Proc != rank.Proc(2*h) || p.Host != fmt.Sprintf("n%d", h) || p.Device != fmt.Sprintf("rxe%d", h) || !slices.Equal(p.Ranks, []rank.Rank{first, first + 1}) {
				t.Errorf("port %d: %+v", h, p)
			}
		}
		// 80 requests came to each port, 2 ranks × 3 × 2 rounds were accepted there.
		named := 0
		for _, cause := range d.Causes {
			if cause.Kind == "backlog" {
				named++
				if *cause.Count != 10*rounds*after-2*3*rounds {
					t.Errorf("%+v", cause)
				}
			}
		}
		if named != hosts {
			t.Errorf("%d causes of kind backlog, want one a host: %+v", named, d.Causes)
		}
	})
}

// A provider that counts nothing has no counters in the document.
func TestNoPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if d := start(t, 1, spec(2, nil), sim.FabricConfig{}).clean(); d.DeviceCounters != nil {
			t.Errorf("%+v", d.DeviceCounters)
		}
	})
}

// leakyProvider's kernel says that a queue pair more is there at each question.
type leakyProvider struct {
	transport.Provider
	asked *atomic.Int64
}

func (p leakyProvider) KernelCounts() (transport.KernelCounts, error) {
	return transport.KernelCounts{QPs: p.asked.Add(1)}, nil
}

// TestKernelCountsAreJudged: what the kernel counts for a process that has one to
// itself is told and judged like the provider's own counts.
func TestKernelCountsAreJudged(t *testing.T) {
	for _, shared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			b := start(t, 1, spec(1, nil), sim.FabricConfig{}, func(_ int, cfg *Config) {
				cfg.Provider, cfg.Shared = leakyProvider{cfg.Provider, &asked}, shared
			})
			b.wait()
			d := b.document(0)
			r := d.Resources[0]
			if r.Before.IDs == nil || *r.Before.IDs != 0 || r.After.QPs == nil || *r.After.QPs != 0 {
				t.Fatalf("own counts: before %+v, after %+v", r.Before, r.After)
			}
			leaks := slices.ContainsFunc(d.Leaks(), func(l collect.Leak) bool { return l.What == "queue pairs in the kernel" })
			if shared == (r.Before.KernelQPs != nil) || leaks == shared {
				t.Errorf("shared %v: before %v, leaks %+v", shared, r.Before.KernelQPs, d.Leaks())
			}
		})
	}
}
