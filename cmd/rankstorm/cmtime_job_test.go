package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/phases/runner"
	"rankstorm/rendezvous/memnet"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// instances runs a whole job of the face on a fake clock, over simulated RDMA CM,
// each instance on a host of its own, and gives what each printed.
func instances(t *testing.T, fc sim.FabricConfig, common string, lines ...string) (out []string, errs []error) {
	t.Helper()
	fc.Steps, fc.Latency = sim.StepsRDMA, 20*time.Microsecond
	net, fabric := memnet.New(memnet.Config{Seed: 1, Latency: 50 * time.Microsecond}), sim.NewFabric(fc)
	was, had := providers["rdma"]
	providers["rdma"] = func() transport.Provider { return optionless{sim.New(fabric)} }
	defer func() {
		delete(providers, "rdma")
		if had {
			providers["rdma"] = was
		}
	}()
	stdout, stderr := make([]bytes.Buffer, len(lines)), make([]bytes.Buffer, len(lines))
	errs = make([]error, len(lines))
	var wg sync.WaitGroup
	for i, line := range lines {
		host := net.AddHost(fmt.Sprintf("n%d", i), netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}))
		a := &app{env: environment{}, text: &textOutput{w: &stdout[i]}, stderr: &stderr[i]}
		f, err := parseCmtime(cmtimeName, strings.Fields(line+" "+common), a.env, a.stderr)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		f.host = fmt.Sprintf("n%d", i)
		cfg, err := a.cmtimeConfig(f, cmtimePlan(f), fmt.Sprintf("p%d", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Rendezvous.Network, cfg.Clock, cfg.Shared, cfg.Preflight = host.Proc(), sim.NewClock(0), true, nil
		cfg.Rendezvous.Record.HostID = [16]byte{byte(i + 1)}
		wg.Go(func() { errs[i] = runner.Run(context.Background(), cfg) })
	}
	wg.Wait()
	time.Sleep(time.Minute) // a probe of gossip under way ends by its timeout
	for i := range lines {
		out = append(out, stdout[i].String())
		if errs[i] != nil {
			t.Logf("%s: %v\n%s", lines[i], errs[i], &stderr[i])
		}
	}
	return out, errs
}

// optionless hides from the simulation the options that a real provider takes.
type optionless struct{ transport.Provider }

func (p optionless) Open(c transport.Config) (transport.Endpoint, error) {
	c.Options = nil
	return p.Provider.Open(c)
}

func (p optionless) Probe(c transport.Config) error {
	want := map[string]string{transport.OptionResolveTimeout: "1500", transport.OptionResolveRetries: "7"}
	for k, v := range c.Options {
		if want[k] != v {
			return fmt.Errorf("option %s is %q, want %q", k, v, want[k])
		}
	}
	if len(c.Options) != len(want) {
		return fmt.Errorf("options %v, want %v", c.Options, want)
	}
	c.Options = nil
	return p.Provider.Probe(c)
}

// cellsOf says which cells of the k-th table of an output are filled: a row of
// "G" (total) and "C" (maximum of one connection) for each row.
func cellsOf(t *testing.T, out string, k int) map[string]string {
	t.Helper()
	tables := strings.Split(out, "step             avg/conn")
	if len(tables) < k+2 {
		t.Fatalf("there is no table %d in\n%s", k, out)
	}
	row := regexp.MustCompile(`(?m)^(.{13})  +\d+ +(\d+) +\d+ +\d+ +(\d+) +\d+`)
	cells := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(tables[k+1], -1) {
		if m[2] != "0" {
			cells[strings.TrimSpace(m[1])] += "G"
		}
		if m[3] != "0" {
			cells[strings.TrimSpace(m[1])] += "C"
		}
	}
	return cells
}

// TestCmtimeFillsWhatCmtimeFills: with the steps of RDMA CM exactly the cells that
// cmtime fills are filled, in all three passes, with played queue pairs and without.
func TestCmtimeFillsWhatCmtimeFills(t *testing.T) {
	client := map[string]string{
		"full connect": "GC", "create id": "GC", "bind addr": "GC", "resolve addr": "GC", "resolve route": "GC", "create qp": "GC",
		"init qp attr": "C", "init qp": "GC", "rtr qp attr": "C", "rtr qp": "C", "rts qp attr": "C", "rts qp": "C",
		"cm connect": "GC", "establish": "C", "disconnect": "GC", "destroy id": "GC", "destroy qp": "GC",
	}
	server := map[string]string{
		"create qp": "C", "init qp attr": "C", "init qp": "C", "rtr qp attr": "C", "rtr qp": "C", "rts qp attr": "C", "rts qp": "C",
		"cm connect": "G", "disconnect": "GC", "destroy id": "GC", "destroy qp": "GC",
	}
	none := func(cells map[string]string, rows ...string) map[string]string {
		less := maps.Clone(cells)
		for _, r := range rows {
			delete(less, r)
		}
		return less
	}
	played := []string{"create qp", "init qp", "rtr qp", "rts qp", "destroy qp"} // a sleep of 0 takes no time on a fake clock
	for _, c := range []struct {
		name, flags    string
		client, server []map[string]string // per table
	}{
		{
			"queue pairs", "-c 5",
			[]map[string]string{client, none(client, played...)},
			[]map[string]string{server, none(server, played...)},
		},
		{
			"played", "-c 5 -m 300",
			[]map[string]string{none(client, "destroy qp"), none(client, played...)},
			[]map[string]string{none(server, "destroy qp"), none(server, played...)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, errs := instances(t, sim.FabricConfig{PerConnCost: 5 * time.Microsecond}, "-b 10.0.0.1 -C n0 -r 7 -t1500 "+c.flags, "-L", "")
				for i, err := range errs {
					if err != nil {
						t.Fatalf("instance %d: %v", i, err)
					}
				}
				for k := range c.client {
					if got := cellsOf(t, out[1], k); fmt.Sprint(got) != fmt.Sprint(c.client[k]) {
						t.Errorf("client, table %d: filled\n%v, want\n%v\n%s", k, got, c.client[k], out[1])
					}
					if got := cellsOf(t, out[0], k); fmt.Sprint(got) != fmt.Sprint(c.server[k]) {
						t.Errorf("server, table %d: filled\n%v, want\n%v\n%s", k, got, c.server[k], out[0])
					}
				}
				for i, text := range out {
					if want := "\tAllocating verbs resources"; strings.Count(text, want) != 1 || strings.Index(text, want) > strings.Index(text, "test") {
						t.Errorf("instance %d does not allocate verbs resources once, in the warm-up:\n%s", i, text)
					}
				}
				if !strings.HasPrefix(out[0], "Running as OOB root\n") || strings.Contains(out[1], "root") {
					t.Errorf("the instance on the host of -C is not the root:\n%s", out[0])
				}
			})
		})
	}
}

// TestCmtimeControllerAnywhere: a client on the last host is the controller and
// comes last; it is the one that prints the tables of all.
func TestCmtimeControllerAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, errs := instances(t, sim.FabricConfig{PerConnCost: 5 * time.Microsecond}, "-b 10.0.0.1 -C n3 -r 7 -t1500 -c 4 -P 4", "-L", "-q 77", "-L -n 2", "-n 3 -q 5000")
		for i, err := range errs {
			if err != nil {
				t.Fatalf("instance %d: %v", i, err)
			}
			tables := 1
			if i == 3 {
				tables = 3
			}
			if got := strings.Count(out[i], "step  "); got != tables || strings.Contains(out[i], "All ") != (i == 3) || strings.Contains(out[i], "OOB root") != (i == 3) {
				t.Errorf("instance %d printed %d tables, want %d:\n%s", i, got, tables, out[i])
			}
		}
		for _, want := range []string{
			"All clients (2): Connect (16) QPs test\nqp_conn                16\nthreads                 4\n",
			"All servers (2): Accept (16) QPs test\nqp_conn                16\nthreads                 3\n",
		} {
			if !strings.Contains(out[3], want) {
				t.Errorf("no %q in\n%s", want, out[3])
			}
		}
	})
}
