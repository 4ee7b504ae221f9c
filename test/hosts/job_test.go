package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/printed"
)

// document is the part of the result document that these tests read.
type document struct {
	RunID       string `json:"run_id"`
	Size        int
	Procs       int
	Edges       int64
	Connections struct{ Planned, Started, Established, Accepted, Dead, Failed int64 }
	Hosts       []struct {
		Host  string
		Procs int
	}
	Ranks []struct {
		Rank, Proc, PID int
		Host            string
	}
	Exit struct {
		Code int
		Text string
	}
}

// running is one started command: a process of a job, or a launcher of many.
type running struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr printed.Text
	done           chan struct{} // closed when it has ended
	ended          time.Time
	code           int // -1 if a signal ended it
}

// start starts cmd; at the end of the test it is gone.
func start(t *testing.T, name string, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &r.stdout, &r.stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		err := cmd.Wait()
		r.ended = time.Now()
		var exit *exec.ExitError
		switch {
		case err == nil:
		case errors.As(err, &exit):
			r.code = exit.ExitCode()
		default:
			r.code = -1
		}
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-r.done
	})
	return r
}

// onHost starts the program on a host, as somebody in a terminal there does.
// The command's pid is the program's.
func onHost(t *testing.T, host string, args ...string) *running {
	t.Helper()
	return start(t, host, lab("hosts", append([]string{"exec", host, binary}, args...)...))
}

// wait fails the test if it does not end in time, with what it printed.
func (r *running) wait(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(limit):
		_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-r.done:
		case <-time.After(5 * time.Second):
		}
		t.Fatalf("%s did not end within %v\n%s", r.name, limit, r.said())
	}
}

func (r *running) said() string {
	const most = 6000
	clip := func(s string) string {
		if len(s) > most {
			return s[:most/2] + "\n…\n" + s[len(s)-most/2:]
		}
		return s
	}
	return "stdout:\n" + clip(r.stdout.String()) + "\nstderr:\n" + clip(r.stderr.String())
}

// says waits until it has printed the text on standard error.
func (r *running) says(t *testing.T, text string, limit time.Duration) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !strings.Contains(r.stderr.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not say %q within %v\n%s", r.name, text, limit, r.said())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// waitAll waits for all and demands an exit code of everybody.
func waitAll(t *testing.T, all []*running, code int, limit time.Duration) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for _, r := range all {
		r.wait(t, time.Until(deadline))
	}
	for i, r := range all {
		if r.code != code {
			t.Errorf("process %d on %s: exit %d, want %d\n%s", i, r.name, r.code, code, r.said())
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// resultFile is a fresh place for a result document; all hosts see it.
func resultFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "result.json")
}

func readDocument(t *testing.T, path string) *document {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := &document{}
	if err := json.Unmarshal(b, d); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return d
}

// wanted is what a clean job's document has to say.
type wanted struct {
	procs       int
	connections int64
	perHost     map[string]int // processes by host
}

// clean reads a document and holds it against what was asked for.
func clean(t *testing.T, path string, w wanted) *document {
	t.Helper()
	d := readDocument(t, path)
	c := d.Connections
	if d.Exit.Code != 0 || d.Procs != w.procs || d.Size != w.procs || len(d.Ranks) != w.procs {
		t.Fatalf("exit %d %q, %d processes, size %d, %d ranks; want a clean job of %d", d.Exit.Code, d.Exit.Text, d.Procs, d.Size, len(d.Ranks), w.procs)
	}
	if c.Planned != w.connections || c.Started != c.Planned || c.Established != c.Planned || c.Accepted != c.Planned || c.Dead+c.Failed != 0 {
		t.Errorf("connections %+v, want %d planned, started, established and accepted", c, w.connections)
	}
	perHost, pids := map[string]int{}, map[int]bool{}
	for i, r := range d.Ranks {
		if r.Rank != i || r.Proc != i {
			t.Errorf("entry %d of ranks is rank %d, process %d", i, r.Rank, r.Proc)
		}
		perHost[r.Host]++
		pids[r.PID] = true
	}
	if !maps.Equal(perHost, w.perHost) {
		t.Errorf("processes by host %v, want %v", perHost, w.perHost)
	}
	if len(pids) != w.procs {
		t.Errorf("%d different pids, want %d", len(pids), w.procs)
	}
	for _, h := range d.Hosts {
		if h.Procs != w.perHost[h.Host] {
			t.Errorf("host %s has %d processes in hosts, want %d", h.Host, h.Procs, w.perHost[h.Host])
		}
	}
	return d
}

// allToAll is the number of connections of an all_to_all job.
func allToAll(procs, perEdge int) int64 { return int64(procs * (procs - 1) * perEdge) }

// spread is n processes on each of the first hosts.
func spread(hosts, n int) map[string]int {
	m := map[string]int{}
	for i := range hosts {
		m[host(i)] = n
	}
	return m
}

func host(i int) string { return "n" + itoa(i) }

func itoa(n int) string { return strconv.Itoa(n) }

// ours lists the processes of the program, on whatever host, by its file.
func ours() []string {
	paths, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil
	}
	var left []string
	for _, p := range paths {
		file, err := os.Readlink(p)
		if err != nil || !strings.HasPrefix(file, folder+"/bin/") {
			continue
		}
		pid := filepath.Base(filepath.Dir(p))
		line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil || len(line) == 0 {
			continue // ended, and not yet collected
		}
		left = append(left, pid+": "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	slices.Sort(left)
	return left
}

// noneLeft fails the test if a process of the program outlives its job. Ends
// travel: 5 s are given.
func noneLeft(t *testing.T) {
	t.Helper()
	var left []string
	for range 50 {
		if left = ours(); len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("processes are left:\n%s", strings.Join(left, "\n"))
	for _, l := range left {
		var pid int
		if _, err := fmt.Sscanf(l, "%d:", &pid); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
