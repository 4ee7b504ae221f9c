package test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Where the table and the document go may be broken in many ways; the job still
// ends, and its document is somewhere that a line on stderr names.
func TestOutputThatFails(t *testing.T) {
	fifo := func(t *testing.T, dir string) string {
		path := filepath.Join(dir, "fifo")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name   string
		out    func(t *testing.T, dir string) string // value of -o
		stdout func(t *testing.T) *os.File           // nil: read to the end
		closed bool                                  // no standard output at all
		says   string
		not    string
	}{
		{name: "a pipe that nobody reads", out: fifo, says: "nobody reads this pipe: the result document is in "},
		{name: "a full device", out: func(*testing.T, string) string { return "/dev/full" }, says: "no space left on device: the result document is in "},
		{name: "a directory", out: func(_ *testing.T, dir string) string { return dir }, says: "is a directory: the result document is in "},
		{
			name: "a reader of the table that is gone", stdout: closedPipe,
			out:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "r.json") },
			says: "result document on ", not: "could not be printed",
		},
		{
			name: "a reader of the document that is gone", stdout: closedPipe,
			out: func(*testing.T, string) string { return "-" }, says: "broken pipe: the result document is in ",
		},
		{
			name: "no standard output for the table", closed: true,
			out:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "r.json") },
			says: "result document on ", not: "could not be printed",
		},
		{
			name: "no standard output for the document", closed: true,
			out: func(*testing.T, string) string { return "-" }, says: "write standard output: file already closed: the result document is in ",
		},
		{
			name: "a full disk under the table", stdout: fullDevice,
			out:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "r.json") },
			says: "the table could not be printed: ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, tmp := t.TempDir(), t.TempDir()
			cmd := exec.Command(binary, "run", "--spawn", "3", "-v", "-o", c.out(t, dir))
			if c.closed {
				cmd = exec.Command("sh", append([]string{"-c", `exec "$@" >&-`, "sh"}, cmd.Args...)...)
			}
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+tmp)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if c.stdout != nil {
				f := c.stdout(t)
				defer f.Close()
				cmd.Stdout = f
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			limit := time.AfterFunc(time.Minute, func() { cmd.Process.Signal(syscall.SIGQUIT) })
			defer limit.Stop()
			err := cmd.Wait()
			if code := exitCode(err); code != 0 {
				t.Errorf("exit %d, want 0: %v", code, err)
			}
			if text := stderr.String(); !strings.Contains(text, c.says) || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("stderr says %q; want %q, not %q", text, c.says, c.not)
			}
			kept, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			elsewhere, _ := filepath.Glob(filepath.Join(tmp, "rankstorm-*.json"))
			if len(kept)+len(elsewhere) != 1 {
				t.Errorf("documents %v and %v, want one", kept, elsewhere)
			}
		})
	}
}

func closedPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	return w
}

func fullDevice(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal("no /dev/full: ", err)
	}
	return f
}

// A reader of stderr that is gone is no reason to end either.
func TestStderrThatIsGone(t *testing.T) {
	w := closedPipe(t)
	defer w.Close()
	dir := t.TempDir()
	cmd := exec.Command(binary, "run", "--spawn", "4", "-v", "--hold", "connect=1ms", "-o", filepath.Join(dir, "r.json"))
	cmd.Dir, cmd.Stderr = dir, w
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "0 clean") {
		t.Errorf("%v: %s", err, out)
	}
}

// An interrupt is told once, whatever the processes are doing and whoever else
// got the signal.
func TestInterruptIsToldOnce(t *testing.T) {
	for _, phase := range []string{"gather", "seal", "clock", "create", "connect", "destroy"} {
		t.Run(phase, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(binary, "run", "--spawn", "4", "--hold", phase+"=20s", "-o", filepath.Join(dir, "r.json"))
			cmd.Dir = dir
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			limit := time.AfterFunc(time.Minute, func() { cmd.Process.Signal(syscall.SIGQUIT) })
			defer limit.Stop()
			var told []string
			holding := 0
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				text := lines.Text()
				if strings.Contains(text, " holding ") {
					if holding++; holding == 4 {
						pids := children(cmd.Process.Pid)
						cmd.Process.Signal(syscall.SIGINT)
						cmd.Process.Signal(syscall.SIGINT)
						for _, pid := range pids {
							syscall.Kill(pid, syscall.SIGINT)
						}
					}
					continue
				}
				if !strings.Contains(text, "result document on") {
					told = append(told, text)
				}
			}
			if code := exitCode(cmd.Wait()); code != 130 {
				t.Errorf("exit %d, want 130", code)
			}
			if len(told) != 1 || told[0] != "rankstorm: interrupted by SIGINT" {
				t.Errorf("stderr says %q, want one line", told)
			}
			lockstep := phase != "gather" && phase != "seal" && phase != "clock"
			if _, err := os.Stat(filepath.Join(dir, "r.json")); lockstep && err != nil {
				t.Errorf("what was measured is not kept: %v", err)
			}
		})
	}
}
