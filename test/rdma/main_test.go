// Package rdma runs the real binary over real RDMA: in machines of test/rdmalab.
// make test-rdma runs it, and the tests of the provider beside it.
package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rankstorm/test/need"
)

var (
	binary string // the program, in folder
	folder string // of this test run; the machines see it at its own path
)

func TestMain(m *testing.M) {
	os.Exit(need.Run("rdma", "start virtual machines", func() (int, error) { return prepared(m.Run) }))
}

// prepared builds the program, runs the tests, and leaves nothing.
func prepared(tests func() int) (code int, err error) {
	if folder, err = os.MkdirTemp("", "rankstorm-rdma"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "rankstorm")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/rankstorm").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return tests(), nil
}

// outcome is what a command in a machine left.
type outcome struct {
	stdout, stderr string
	code           int
}

// machine is test/rdmalab/vm with its arguments, in the folder, not yet started.
func machine(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	script, err := filepath.Abs(filepath.Join("..", "rdmalab", "vm"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, script, append([]string{"--share", folder}, args...)...)
	cmd.Dir, cmd.WaitDelay = folder, 20*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for _, name := range []string{"RDMALAB_CACHE", "XDG_CACHE_HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// in runs a command in a machine: options of vm, "--", the command. The test
// fails if the machine breaks down or does not end.
func in(t *testing.T, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := machine(ctx, t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o := outcome{stdout: stdout.String(), stderr: stderr.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		o.code = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, o.stderr)
	}
	return o
}

// script runs lines of bash in a machine; they end at the first command that fails.
func script(t *testing.T, options []string, lines string) outcome {
	t.Helper()
	return in(t, append(options, "--", "bash", "-euc", lines)...)
}

// clean fails the test unless the command succeeded and the kernel had nothing to say.
func (o outcome) clean(t *testing.T) outcome {
	t.Helper()
	if o.code != 0 || strings.Contains(o.stderr, "the kernel says") {
		t.Fatalf("exit %d\n%s\n%s", o.code, o.stdout, o.stderr)
	}
	return o
}
