// Command sidebyside runs the product and its peers in turn on this machine
// and prints, for each comparison, the medians, the ratio and the peer's own
// spread. It is no test: on a shared machine only ratios of the same run mean
// anything.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var (
	dir   = flag.String("dir", "bench/out", "where the built programs are")
	runs  = flag.Int("runs", 7, "alternating runs of each side")
	only  = flag.String("only", "", "one comparison: storm, burst, start, barrier, growth")
	conns = flag.Int("conns", 8000, "connections of the storm")
	slots = flag.Int("slots", 256, "connections under way")
)

func main() {
	flag.Parse()
	for _, c := range []struct {
		name string
		run  func() error
	}{{"storm", storm}, {"burst", burst}, {"start", start}, {"barrier", barrier}, {"growth", growth}} {
		if *only != "" && *only != c.name {
			continue
		}
		if err := c.run(); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", c.name, err)
			os.Exit(1)
		}
	}
}

// document is what the comparisons read of a result document.
type document struct {
	StartedUTC  time.Time `json:"started_utc"`
	Connections struct{ Planned, Established, Accepted int64 }
	Barriers    []struct {
		LastOutNS *int64 `json:"last_out_ns"`
		BarrierNS *int64 `json:"barrier_ns"`
	}
	Phases []struct {
		Phase string
		Steps []struct {
			Step   string
			Side   string
			Count  int64
			WallNS *int64 `json:"wall_ns"`
			P50NS  *int64 `json:"p50_ns"`
			P99NS  *int64 `json:"p99_ns"`
		}
	}
	Resources []struct {
		Proc         int
		Before, Peak *struct {
			RSSBytes int64 `json:"rss_bytes"`
		}
	}
}

// job runs the product and reads its document; begun is the moment before the exec.
func job(args ...string) (d document, begun time.Time, err error) {
	out := filepath.Join(*dir, "result.json")
	_ = os.Remove(out)
	begun = time.Now()
	text, err := command(time.Minute, filepath.Join(*dir, "rankstorm"), append(append([]string{"run"}, args...), "-q", "-o", out)...)
	if err != nil {
		return d, begun, fmt.Errorf("%w\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return d, begun, err
	}
	return d, begun, json.Unmarshal(b, &d)
}

// command runs a program with a limit and gives back what it printed. A launcher that hangs is ended with its children.
func command(limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s did not end within %v", name, limit)
	}
	return string(out), err
}

// wall of one step, ns.
func (d document) wall(phase, step string) (ns, count int64) {
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			if p.Phase == phase && s.Step == step && s.Side != "target" && s.WallNS != nil {
				return *s.WallNS, s.Count
			}
		}
	}
	return 0, 0
}

// sample is one side's figures.
type sample []float64

func (s sample) median() float64 {
	if len(s) == 0 {
		return 0
	}
	c := slices.Clone(s)
	slices.Sort(c)
	if n := len(c); n%2 == 0 {
		return (c[n/2-1] + c[n/2]) / 2
	}
	return c[len(c)/2]
}

func (s sample) String() string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%10.4g  (%.4g … %.4g, %d runs)", s.median(), slices.Min(s), slices.Max(s), len(s))
}

// verdict prints two sides and their ratio.
func verdict(what, unit, bar string, ours, peer sample, peerName string) {
	fmt.Printf("%s\n  rankstorm  %s %s\n", what, ours, unit)
	if len(peer) == 0 {
		fmt.Printf("  %-9s  not measured\n", peerName)
		return
	}
	fmt.Printf("  %-9s  %s %s\n  ratio      %.3f (bar: %s)\n", peerName, peer, unit, ours.median()/peer.median(), bar)
}

// storm compares connections per second with the C loop. Both sides have their sockets made, bound and registered
// before the clock starts and the descriptor tables grown; from connect to the target's answer read is timed. The
// whole of create, bind, qp and connect is compared with the C loop that does all that inside its storm.
func storm() error {
	var ours, peer, oursAll, peerAll sample
	for range *runs {
		d, _, err := job("--spawn", "2", "--topology", "fanout", "-c", fmt.Sprint(*conns), "--connect", fmt.Sprintf("parallel=%d", *slots))
		if err != nil {
			return err
		}
		ns, n := d.wall("connect", "full connect")
		if n != int64(*conns) {
			return fmt.Errorf("%d of %d connections measured", n, *conns)
		}
		ours = append(ours, float64(n)/float64(ns)*1e9)
		all := ns
		for _, p := range d.Phases {
			if p.Phase == "create" || p.Phase == "bind" || p.Phase == "qp" {
				for _, s := range p.Steps {
					w, _ := d.wall(p.Phase, s.Step)
					all += w
				}
			}
		}
		oursAll = append(oursAll, float64(n)/float64(all)*1e9)
		for _, pre := range []bool{true, false} {
			args := []string{"-n", fmt.Sprint(*conns), "-w", fmt.Sprint(*slots)}
			if pre {
				args = append(args, "--precreate")
			}
			rate, err := peerRate(args)
			if err != nil {
				return err
			}
			if pre {
				peer = append(peer, rate)
			} else {
				peerAll = append(peerAll, rate)
			}
		}
	}
	verdict(fmt.Sprintf("connect storm, %d connections, %d under way, two processes: connect, hello, answer", *conns, *slots), "conn/s", "≥ 1.0", ours, peer, "C epoll")
	verdict("the same with socket, bind, options and registration", "conn/s", "–", oursAll, peerAll, "C epoll")
	return nil
}

// peerRate runs the C loop and reads "N connections/s" from its line.
func peerRate(args []string) (float64, error) {
	out, err := command(time.Minute, filepath.Join(*dir, "storm"), args...)
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	var v float64
	if _, err := fmt.Sscanf(out, "%g connections/s", &v); err != nil {
		return 0, fmt.Errorf("no rate in %q", out)
	}
	return v, nil
}

// burst starts 10,000 connections at once and states what one costs in memory.
func burst() error {
	const n = 10000
	d, _, err := job("--spawn", "2", "--topology", "fanout", "-c", fmt.Sprint(n), "--connect", "burst")
	if err != nil {
		return err
	}
	ns, count := d.wall("connect", "full connect")
	fmt.Printf("burst of %d connections: %d established, wall of full connect %.1f ms\n", n, count, float64(ns)/1e6)
	for _, r := range d.Resources {
		if r.Before != nil && r.Peak != nil {
			fmt.Printf("  process %d: %.1f MB resident before, %.1f MB at the peak: %.2f KB a connection\n",
				r.Proc, float64(r.Before.RSSBytes)/1e6, float64(r.Peak.RSSBytes)/1e6, float64(r.Peak.RSSBytes-r.Before.RSSBytes)/n/1e3)
		}
	}
	return nil
}

// start compares the time from exec to the end of the first barrier at the slowest of 64 processes.
func start() error {
	for _, procs := range []int{64} {
		var ours, peer sample
		for range *runs {
			d, begun, err := job("--spawn", fmt.Sprint(procs), "--topology", "ring")
			if err != nil {
				return err
			}
			if len(d.Barriers) == 0 || d.Barriers[0].LastOutNS == nil {
				return errors.New("no barrier in the document")
			}
			ours = append(ours, d.StartedUTC.Add(time.Duration(*d.Barriers[0].LastOutNS)).Sub(begun).Seconds())
			if first, _, ok := mpi(procs, 0); ok {
				peer = append(peer, first)
			}
		}
		verdict(fmt.Sprintf("start → first barrier, %d processes", procs), "s", "≤ 0.333", ours, peer, "mpirun")
	}
	return nil
}

// barrier states the barrier of 64 processes × 16 virtual ranks over at least 200 barriers.
func barrier() error {
	d, _, err := job("--spawn", "64", "--ranks-per-proc", "16", "--topology", "ring", "--rounds", "25")
	if err != nil {
		return err
	}
	var ours sample
	for _, b := range d.Barriers {
		if b.BarrierNS != nil {
			ours = append(ours, float64(*b.BarrierNS)/1e6)
		}
	}
	if len(ours) < 200 {
		return fmt.Errorf("only %d barriers", len(ours))
	}
	fmt.Printf("barrier, 64 processes × 16 virtual ranks, last in → last out\n  rankstorm  %s ms (bar: median < 3 ms)\n", ours)
	if _, median, ok := mpi(64, 200); ok {
		fmt.Printf("  mpirun     %10.4g ms over shared memory, 64 ranks, 200 barriers\n", median/1e3)
	}
	return nil
}

// mpi runs the MPI peer; mpirun of many ranks sometimes hangs, so each try has a limit and there are three.
func mpi(procs, barriers int) (firstS, medianUS float64, ok bool) {
	bin := filepath.Join(*dir, "mpibar")
	if _, err := os.Stat(bin); err != nil {
		return 0, 0, false
	}
	for range 3 {
		t0 := float64(time.Now().UnixNano()) / 1e9
		out, _ := command(20*time.Second, "mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1",
			"-np", fmt.Sprint(procs), bin, fmt.Sprintf("%.9f", t0), fmt.Sprint(barriers))
		// The figures count even if mpirun then hangs in its own teardown.
		if i := strings.Index(out, "ranks "); i >= 0 {
			var ranks, n int
			if _, err := fmt.Sscanf(out[i:], "ranks %d first_barrier_s %g barrier_median_us %g barriers %d", &ranks, &firstS, &medianUS, &n); err == nil {
				return firstS, medianUS, true
			}
		}
	}
	return 0, 0, false
}
