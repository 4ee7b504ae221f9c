package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankstorm/phases"
	"rankstorm/rank"
)

func TestWorstNeed(t *testing.T) {
	incast, err := rank.NewTopology(rank.NewLayout(8, 4), rank.Params{Name: "incast"})
	if err != nil {
		t.Fatal(err)
	}
	fds := rank.FDCost{Fixed: 3, PerOut: 1, PerIn: 1}
	// Process 0 has the sink (7 × 10 accepted) and rank 1 (10 initiated).
	got, err := worstNeed(incast, 8, job{procs: 4, k: 2, at: evenly(4, nil), connections: 10, arity: 16, backlog: 5}, fds)
	if err != nil {
		t.Fatal(err)
	}
	want := need{fds: controlFDs + 4 + (70 + 3) + (10 + 3), ports: 40, listeners: 6, perListen: 70, backlog: 5, outs: 4 + 40}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	spawned, err := worstNeed(incast, 8, job{procs: 4, k: 2, at: evenly(4, nil), connections: 10, arity: 16, controller: true}, fds)
	if err != nil || spawned.fds != want.fds+4 || spawned.listeners != want.listeners+1 {
		t.Errorf("controller: got %+v, %v", spawned, err)
	}
	// Two addresses: each has half of the ranks, and the listeners of the control plane, which have none of them.
	two, err := worstNeed(incast, 8, job{procs: 4, k: 2, at: evenly(4, []string{"10.0.0.1", "10.0.0.2"}), connections: 10, arity: 16}, fds)
	if err != nil || two.ports != 20 || two.listeners != 4 || two.outs != 2+20 {
		t.Errorf("two addresses: got %+v, %v", two, err)
	}
	own, err := worstNeed(incast, 8, job{procs: 4, k: 2, at: evenly(4, []string{"10.0.{local_rank}.1"}), connections: 10, arity: 16}, fds)
	if err != nil || own.ports != 10 || own.listeners != 3 || own.outs != 1+10 {
		t.Errorf("an address for each: got %+v, %v", own, err)
	}
	for shape, want := range map[phases.Shape]int64{
		{Kind: phases.Burst}: 70, {Kind: phases.Parallel, Slots: 3}: 21, {Kind: phases.Parallel, Slots: 11}: 70, {Kind: phases.Rate, PerS: 5}: 0,
	} {
		got, err := worstNeed(incast, 8, job{procs: 4, k: 2, at: evenly(4, nil), connections: 10, arity: 16, shape: shape}, fds)
		if err != nil || got.perListen != want {
			t.Errorf("%s: %d at once, %v, want %d", shape, got.perListen, err, want)
		}
	}
	ring, err := rank.NewTopology(rank.NewLayout(64, 1), rank.Params{Name: "ring"})
	if err != nil {
		t.Fatal(err)
	}
	many, err := worstNeed(ring, 64, job{procs: 64, k: 1, at: evenly(64, nil), connections: 1, arity: 16, controller: true}, fds)
	if err != nil || many.fds != controlFDs+2*64 {
		t.Errorf("the parent of many: got %+v, %v", many, err)
	}
}

func TestCheck(t *testing.T) {
	roomy := limits{fdsHard: 1 << 20, portLow: 32768, portHigh: 60999, somaxconn: 4096}
	with := func(change func(*limits)) limits { l := roomy; change(&l); return l }
	cases := []struct {
		name     string
		need     need
		limits   limits
		err      string
		warnings []string
	}{
		{name: "fits", need: need{fds: 1000, ports: 100, perListen: 100}, limits: roomy},
		{name: "nothing known", need: need{fds: 1 << 40, ports: 1 << 40, perListen: 1 << 40}, limits: limits{}},
		{name: "exactly enough fds", need: need{fds: 1024}, limits: with(func(l *limits) { l.fdsHard, l.fdsUsed = 1024, controlFDs })},
		{
			name: "one fd short", need: need{fds: 1024}, limits: with(func(l *limits) { l.fdsHard, l.fdsUsed = 1024, controlFDs+1 }),
			err: "a process needs 1025 file descriptors, has 1024: ulimit -n 1025 as root, or a hard limit of that many (limits.conf, LimitNOFILE); or use fewer connections",
		},
		{name: "all ports", need: need{ports: 28232, rounds: 1}, limits: roomy},
		{name: "one port short", need: need{ports: 28233}, limits: roomy, err: "one local address needs 28233 local ports towards one listener, has 28232: sysctl"},
		{name: "room for the listeners", need: need{ports: 28000, listeners: 232, rounds: 1}, limits: roomy},
		{
			name: "the listeners take the last port", need: need{ports: 28000, listeners: 233, rounds: 1}, limits: roomy,
			err: "one local address needs 28000 local ports towards one listener, has 27999 (233 of 28232 are taken by its own listeners): sysctl",
		},
		{name: "nothing but listeners", need: need{ports: 1, listeners: 4}, limits: limits{portLow: 40000, portHigh: 40002}, err: "one local address needs 1 local ports towards one listener, has 0 (4 of 3"},
		{
			name: "rounds that use up the ports", need: need{ports: 1000, rounds: 29}, limits: with(func(l *limits) { l.reuse = reuseLoopback }),
			warnings: []string{"a round takes 1000 of 28232 local ports towards one listener, and each rests for 60 s in TIME_WAIT: more rounds than 28"},
		},
		{name: "rounds that fit", need: need{ports: 1000, rounds: 28}, limits: with(func(l *limits) { l.reuse = reuseNever })},
		{name: "rounds on one machine", need: need{ports: 1000, loopback: true}, limits: with(func(l *limits) { l.reuse = reuseLoopback })},
		{name: "reused everywhere", need: need{ports: 1000}, limits: with(func(l *limits) { l.reuse = reuseAlways })},
		{
			name: "rounds without end", need: need{ports: 1, loopback: true}, limits: with(func(l *limits) { l.reuse = reuseNever }),
			warnings: []string{"more rounds than 28232 within that time"},
		},
		{name: "backlog cut", need: need{backlog: 5000}, limits: roomy, warnings: []string{"--backlog 5000 is cut to 4096"}},
		{name: "burst past the queue", need: need{perListen: 5000}, limits: roomy, warnings: []string{"up to 5000 connections reach one listener"}},
		{name: "small backlog", need: need{perListen: 500, backlog: 100}, limits: roomy, warnings: []string{"--backlog 100 holds fewer"}},
		{name: "rdma fits", need: need{rdma: true, outs: 28232, perListen: 1024, ports: 1 << 40}, limits: with(func(l *limits) { l.rdmaBacklog = 1024 })},
		{
			name: "one RDMA port short", need: need{rdma: true, outs: 28233}, limits: roomy,
			err: "the ranks of one local address need 28233 RDMA ports, listeners included, and it has 28232: sysctl",
		},
		{
			name: "RDMA backlog that the kernel would cut", need: need{rdma: true, backlog: 2000}, limits: with(func(l *limits) { l.rdmaBacklog = 1024 }),
			err: "--backlog 2000: net.rdma_ucm.max_backlog is 1024: sysctl -w net.rdma_ucm.max_backlog=2000",
		},
		{
			name: "RDMA burst past the queue", need: need{rdma: true, perListen: 1025}, limits: with(func(l *limits) { l.rdmaBacklog = 1024 }),
			warnings: []string{"requests beyond are dropped"},
		},
		{
			name: "small RDMA backlog", need: need{rdma: true, perListen: 500, backlog: 100}, limits: with(func(l *limits) { l.rdmaBacklog = 1024 }),
			warnings: []string{"--backlog 100 holds fewer: requests beyond are dropped"},
		},
	}
	for _, c := range cases {
		warnings, err := check(c.need, c.limits)
		switch {
		case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err) || rank.ExitCode(err) != 2):
			t.Errorf("%s: got error %v, want %q", c.name, err, c.err)
		case len(warnings) != len(c.warnings):
			t.Errorf("%s: got warnings %q, want %q", c.name, warnings, c.warnings)
		}
		for i := range min(len(warnings), len(c.warnings)) {
			if !strings.Contains(warnings[i], c.warnings[i]) {
				t.Errorf("%s: got warning %q, want %q", c.name, warnings[i], c.warnings[i])
			}
		}
	}
}

func TestReadLimits(t *testing.T) {
	l := readLimits()
	if l.fdsHard == 0 || l.fdsUsed < 3 || l.reuse == reuseUnknown {
		t.Errorf("got %+v", l)
	}
}

func TestSpawnedView(t *testing.T) {
	for _, v := range []spawnedView{{8, 1, 1}, {7, 2, 3}, {5, 3, 5}, {16, 4, 6}, {3, 1, 2}} {
		seen := 0
		for _, h := range v.Hosts() {
			for i, r := range v.HostRanks(h) {
				if v.HostOf(r) != h || v.LocalRank(r) != i || int(r) != seen {
					t.Errorf("%+v: rank %d is on %s as %d, listed on %s as %d", v, r, v.HostOf(r), v.LocalRank(r), h, i)
				}
				// The rule of --spawn: process i is on host i*h/N.
				if want := int(r) / v.k * v.hosts / v.procs; v.host(r) != want {
					t.Errorf("%+v: rank %d on host %d, want %d", v, r, v.host(r), want)
				}
				seen++
			}
		}
		if seen != v.Size() {
			t.Errorf("%+v: hosts list %d of %d ranks", v, seen, v.Size())
		}
	}
}

func TestControllerKey(t *testing.T) {
	for text, want := range map[string]string{
		"n0": "n0:7471", "N0": "n0:7471", "n0:80": "n0:80", "10.0.0.1": "10.0.0.1:7471", "::1": "[::1]:7471", "[::1]": "[::1]:7471",
		"[::1]:9": "[::1]:9", "fe80::1%eth0": "[fe80::1]:7471", "[fe80::1%eth1]:9": "[fe80::1]:9", "::ffff:10.0.0.1": "10.0.0.1:7471", "n0:": "", "n0:0": "", "n0:70000": "", ":80": "", "a:b:c": "",
	} {
		got, err := controllerKey(text, 7471)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestNamesHosts(t *testing.T) {
	for _, c := range []struct {
		params rank.Params
		want   bool
	}{
		{rank.Params{Name: "ring"}, false},
		{rank.Params{Name: "fanout", Targets: "0-3, 5,7-9:2"}, false},
		{rank.Params{Name: "fanout", Targets: "0-3,n1"}, true},
		{rank.Params{Name: "hotspot", Hot: "gpu*"}, true},
		{rank.Params{Name: "incast", Initiators: "*"}, true}, // every host
		{rank.Params{Name: "incast", Initiators: "0,*"}, true},
		{rank.Params{Name: "rail"}, true},
		{rank.Params{Name: "ring", ExcludeSameHost: true}, true},
		{rank.Params{Name: "custom", Custom: []byte("# hosts n0 and n1\n0: 1*2.5, 2-3*1e3\n")}, false},
		{rank.Params{Name: "custom", Custom: []byte("0 64K\n1.5M 0 # size\n")}, false},
		{rank.Params{Name: "custom", Custom: []byte("0: n1*2\n")}, true},
	} {
		if got := namesHosts(c.params); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.params, got, c.want)
		}
	}
}

// The names of limits in the document stand in its description.
func TestLimitsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "result-schema.md"))
	if err != nil {
		t.Fatal(err)
	}
	list := limits{fdsHard: 1, portHigh: 1, somaxconn: 1, rdmaBacklog: 1, rdmaRecvQueue: 1, rdmaSendQueue: 1}.list()
	if len(list) != 6 {
		t.Fatalf("%d limits, want all 6: %v", len(list), list)
	}
	for _, l := range list {
		if !strings.Contains(string(page), "`"+l.Name+"`") {
			t.Errorf("docs/result-schema.md does not explain the limit %s", l.Name)
		}
	}
}
