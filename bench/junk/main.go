// Command junk runs the same job in turn without strangers, with strangers from
// another host at all of its ports on one host, and with the same strangers at a
// bystander's ports, who cost this one machine as much; it prints medians, spread
// and ratios. bench/junk.sh builds what it needs and puts the hosts up.
package main

import (
	"bytes"
	"encoding/json"
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
	dir    = flag.String("dir", "bench/out", "where the built programs are")
	lab    = flag.String("lab", "test/lab/hosts", "the script that runs a command on a host")
	runs   = flag.Int("runs", 7, "alternating runs of each side")
	rate   = flag.Int("rate", 1000, "connections of strangers a second")
	conns  = flag.Int("conns", 100, "connections of each of the 12 edges")
	rounds = flag.Int("rounds", 5, "set-ups in each job")
)

const procs = 4

func main() {
	flag.Parse()
	if err := compare(); err != nil {
		fmt.Fprintln(os.Stderr, "bench junk:", err)
		os.Exit(1)
	}
}

type document struct {
	Connections struct{ Planned, Established, Dead, Failed, Broken int64 }
	Barriers    []struct {
		BarrierNS *int64 `json:"barrier_ns"`
	}
	Phases []struct {
		Phase string
		Steps []struct {
			Step   string
			WallNS *int64 `json:"wall_ns"`
			P50NS  *int64 `json:"p50_ns"`
			P99NS  *int64 `json:"p99_ns"`
		}
	}
	Causes   []struct{ Kind, Evidence string }
	Warnings []string
}

// figures of a job, in ms.
var figures = []string{"full connect, wall", "full connect, p50", "full connect, p99", "first round trip, p50", "first round trip, p99", "barrier, median", "whole job"}

// The sides of the comparison: whom the strangers go to.
const (
	nobody = iota
	bystander
	victim
	sideCount
)

func compare() error {
	var sides [sideCount]map[string][]float64
	for i := range sides {
		sides[i] = map[string][]float64{}
	}
	var said []string
	for run := range *runs {
		for i := range sides {
			side := (run + i) % sideCount // who is first changes as well
			f, text, err := job(side)
			if err != nil {
				return err
			}
			if side == victim {
				said = append(said, text)
			}
			for k, v := range f {
				sides[side][k] = append(sides[side][k], v)
			}
		}
	}
	fmt.Printf("two hosts, %d processes, 12 edges × %d connections, %d rounds; %d jobs a side, with a secret\n", procs, *conns, *rounds, *runs)
	fmt.Printf("%-22s %28s %28s %28s %9s %9s\n", "ms: median (min … max)", "undisturbed", "bystander", "disturbed", "d/u", "d/b")
	for _, k := range figures {
		u, b, d := sides[nobody][k], sides[bystander][k], sides[victim][k]
		fmt.Printf("%-22s %28s %28s %28s %9.3f %9.3f\n", k, spread(u), spread(b), spread(d), median(d)/median(u), median(d)/median(b))
	}
	for _, s := range said {
		fmt.Println(s)
	}
	return nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func spread(v []float64) string {
	return fmt.Sprintf("%.4g (%.4g … %.4g)", median(v), slices.Min(v), slices.Max(v))
}

func on(host string, args ...string) *exec.Cmd {
	return exec.Command(*lab, append([]string{"exec", host}, args...)...)
}

// job runs one and reads its figures; sent is what the strangers say.
func job(side int) (figure map[string]float64, sent string, err error) {
	home, err := filepath.Abs(*dir)
	if err != nil {
		return nil, "", err
	}
	out, secret := filepath.Join(home, "junk.json"), filepath.Join(home, "junk.secret")
	_ = os.Remove(out)
	if err := os.WriteFile(secret, []byte("what nobody guesses\n"), 0o600); err != nil {
		return nil, "", err
	}
	// The holds give the strangers time to find the listeners: same on both sides.
	line := []string{
		filepath.Join(home, "rankstorm"), "run", "-q", "-C", "n0", "-P", fmt.Sprint(procs), "-c", fmt.Sprint(*conns),
		"--rounds", fmt.Sprint(*rounds), "--hold", "listen=500ms", "--hold", "qp=100ms", "--secret-file", secret, "-o", out,
	}
	var all []*exec.Cmd
	var stderr [procs]bytes.Buffer
	begun := time.Now()
	for i := range procs {
		cmd := on(fmt.Sprintf("n%d", i%2), line...)
		cmd.Stderr = &stderr[i]
		if err := cmd.Start(); err != nil {
			return nil, "", err
		}
		all = append(all, cmd)
	}
	var strangers []*exec.Cmd
	var text bytes.Buffer
	to, pids := "10.97.0.1", fmt.Sprintf("%d,%d", all[0].Process.Pid, all[2].Process.Pid)
	if side == bystander {
		sink := on("head", filepath.Join(home, "junk"), "-sink", "6")
		if err := sink.Start(); err != nil {
			return nil, "", err
		}
		strangers = append(strangers, sink)
		to, pids = "10.97.0.254", fmt.Sprint(sink.Process.Pid)
	}
	if side != nobody {
		stranger := on("n2", filepath.Join(home, "junk"), "-host", to, "-rate", fmt.Sprint(*rate), "-pids", pids)
		stranger.Stdout = &text
		if err := stranger.Start(); err != nil {
			return nil, "", err
		}
		strangers = append(strangers, stranger)
	}
	for i, cmd := range all {
		if e := cmd.Wait(); e != nil {
			err = fmt.Errorf("process %d, side %d: %w\n%s", i, side, e, stderr[i].String())
		}
	}
	took := time.Since(begun)
	for _, cmd := range strangers {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if e := cmd.Wait(); e != nil && err == nil {
			err = e
		}
	}
	if err != nil {
		return nil, "", err
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return nil, "", err
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, "", err
	}
	if c := d.Connections; c.Established != c.Planned || c.Dead+c.Failed+c.Broken > 0 {
		return nil, "", fmt.Errorf("connections %+v", c)
	}
	for _, c := range d.Causes {
		text.WriteString("  cause " + c.Kind + ": " + c.Evidence + "\n")
	}
	for _, w := range d.Warnings {
		text.WriteString("  " + w + "\n")
	}
	var lines []string
	for i, l := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		if i == 0 || strings.Contains(l, "turned away") || strings.Contains(l, "cause ") {
			lines = append(lines, l)
		}
	}
	return read(&d, took), strings.Join(lines, "\n"), nil
}

// read takes the figures out of a document; several rounds have several walls, of which the median counts.
func read(d *document, took time.Duration) map[string]float64 {
	of := map[string][]float64{}
	add := func(k string, ns *int64) {
		if ns != nil {
			of[k] = append(of[k], float64(*ns)/1e6)
		}
	}
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			switch s.Step {
			case "full connect":
				add("full connect, wall", s.WallNS)
				add("full connect, p50", s.P50NS)
				add("full connect, p99", s.P99NS)
			case "first round trip":
				add("first round trip, p50", s.P50NS)
				add("first round trip, p99", s.P99NS)
			}
		}
	}
	for _, b := range d.Barriers {
		add("barrier, median", b.BarrierNS)
	}
	f := map[string]float64{"whole job": took.Seconds() * 1000}
	for k, v := range of {
		f[k] = median(v)
	}
	return f
}
