// Package test runs the real binary as its users do: whole jobs of real
// processes on this machine.
package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rankstorm-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "rankstorm")
	build := exec.Command("go", "build", "-o", binary, "../cmd/rankstorm")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// document is the part of the result document that these tests read; decoded
// here on its own so that a wrong key in the product cannot hide.
type document struct {
	RunID       string `json:"run_id"`
	Args        []string
	Size        int
	Procs       int
	Edges       int64
	Connections struct{ Planned, Started, Established, Accepted, Dead, Failed int64 }
	Ranks       []struct {
		Rank int
		Proc int
		Host string
		PID  int
	}
	Barriers []struct {
		LastInNS  int64 `json:"last_in_ns"`
		LastOutNS int64 `json:"last_out_ns"`
	}
	Phases []struct {
		Phase string
		Steps []struct {
			Step  string
			Side  string
			Count int64
			SumNS int64 `json:"sum_ns"`
			MinNS int64 `json:"min_ns"`
			MaxNS int64 `json:"max_ns"`
		}
	}
	Causes []struct {
		Rank    *int
		Kind    string
		Phase   string
		ValueNS int64 `json:"value_ns"`
	}
	Exit struct {
		Code int
		Text string
	}
}

// ended is how a job went.
type ended struct {
	stdout, stderr string
	code           int
	took           time.Duration
	path           string // result document
	doc            *document
}

// run starts the binary and waits; a job that does not end is a failure here, never a hang.
func run(t *testing.T, limit time.Duration, args ...string) ended {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	if args[0] == "run" {
		args = append(args, "-o", path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	err := cmd.Run()
	e := ended{stdout: stdout.String(), stderr: stderr.String(), code: exitCode(err), took: time.Since(begin), path: path}
	if ctx.Err() != nil {
		t.Fatalf("%s did not end within %v\nstderr:\n%s", strings.Join(args, " "), limit, e.stderr)
	}
	if b, err := os.ReadFile(path); err == nil {
		e.doc = &document{}
		if err := json.Unmarshal(b, e.doc); err != nil {
			t.Fatalf("result document: %v", err)
		}
		if args[0] == "run" && !slices.Equal(e.doc.Args, args) {
			t.Errorf("the document says the command was %q, typed was %q", e.doc.Args, args)
		}
	}
	return e
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// ok runs a job that must end clean and leave a document.
func ok(t *testing.T, args ...string) ended {
	t.Helper()
	e := run(t, time.Minute, args...)
	if e.code != 0 {
		t.Fatalf("rankstorm %s: exit %d\nstdout:\n%s\nstderr:\n%s", strings.Join(args, " "), e.code, e.stdout, e.stderr)
	}
	if e.doc == nil {
		t.Fatalf("rankstorm %s: no result document\nstderr:\n%s", strings.Join(args, " "), e.stderr)
	}
	return e
}

// recompute lets the independent script check every printed cell against the document.
func recompute(t *testing.T, e ended) {
	t.Helper()
	table := filepath.Join(t.TempDir(), "table.txt")
	if err := os.WriteFile(table, []byte(e.stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "recompute.py", e.path, table).CombinedOutput()
	if err != nil {
		t.Errorf("recompute.py: %v\n%s\ntable:\n%s", err, out, e.stdout)
	}
}

// children are the pids of a process's children.
func children(pid int) []int {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// alive says whether a process exists and is not a zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}
