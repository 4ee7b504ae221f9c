package test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/collect"
	"rankstorm/test/cmtables"
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
		quiet  bool
		cwd    string // "": where the document can be written
		code   int
		says   string
		not    string
	}{
		{name: "a pipe that nobody reads", out: fifo, code: 1, says: "nobody reads this pipe: the result document is in "},
		{name: "a full device", out: func(*testing.T, string) string { return "/dev/full" }, code: 1, says: "no space left on device: the result document is in "},
		{
			name: "a reader of the table that is gone", stdout: closedPipe,
			out:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "r.json") },
			says: "result document on ", not: "could not be printed",
		},
		{
			name: "a reader of the document that is gone", stdout: closedPipe,
			out: func(*testing.T, string) string { return "-" }, code: 1, says: "broken pipe: the result document is in ",
		},
		{
			name: "no standard output for the table", closed: true,
			out:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "r.json") },
			says: "result document on ", not: "could not be printed",
		},
		{
			name: "no standard output for the document", closed: true,
			out: func(*testing.T, string) string { return "-" }, code: 1, says: "write standard output: file already closed: the result document is in ",
		},
		{
			name: "a full disk under the table", stdout: fullDevice,
			out:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "r.json") },
			code: 1, says: "the table could not be printed: write /dev/stdout: no space left on device: the result document is in ",
		},
		{
			name: "a full disk under the table, quietly", stdout: fullDevice, quiet: true,
			out:  func(_ *testing.T, dir string) string { return filepath.Join(dir, "r.json") },
			code: 1, says: "the table could not be printed: write /dev/stdout: no space left on device: the result document is in ", not: "result document on ",
		},
		{
			name: "a full disk under the table, and none for the document", stdout: fullDevice, cwd: "/proc",
			out:  func(*testing.T, string) string { return "" },
			code: 1, says: "the table could not be printed: write /dev/stdout: no space left on device: the result document is in ", not: "result document on ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, tmp := t.TempDir(), t.TempDir()
			how := "-v"
			if c.quiet {
				how = "-q"
			}
			cmd := exec.Command(binary, "run", "--spawn", "3", how, "-o", c.out(t, dir))
			if c.closed {
				cmd = exec.Command("sh", append([]string{"-c", `exec "$@" >&-`, "sh"}, cmd.Args...)...)
			}
			cmd.Dir, cmd.Env = cmp.Or(c.cwd, dir), append(os.Environ(), "TMPDIR="+tmp)
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
			if code := exitCode(err); code != c.code {
				t.Errorf("exit %d, want %d: %v", code, c.code, err)
			}
			if text := stderr.String(); !strings.Contains(text, c.says) || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("stderr says %q; want %q, not %q", text, c.says, c.not)
			}
			kept, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			elsewhere, _ := filepath.Glob(filepath.Join(tmp, "rankstorm-*.json"))
			if len(kept)+len(elsewhere) != 1 {
				t.Fatalf("documents %v and %v, want one", kept, elsewhere)
			}
			// It says how the job ended, also where that was decided by its own fate.
			b, err := os.ReadFile(append(kept, elsewhere...)[0])
			if err != nil {
				t.Fatal(err)
			}
			if d, err := collect.Decode(bytes.NewReader(b)); err != nil || d.Exit.Code != c.code || (c.code != 0) != strings.Contains(d.Exit.Text, strings.TrimSuffix(c.says, " ")) {
				t.Errorf("%v; exit of the document %+v", err, d.Exit)
			}
		})
	}
}

// The tables of cmtime are all that an instance leaves: it says that they are lost, and the other one has its own.
func TestTablesOfCmtimeThatAreLost(t *testing.T) {
	common := "--transport tcp -b 127.0.0.1 -C 127.0.0.1 -c 2 -p " + freePort(t, "127.0.0.1")
	server := cmStart(t, common, "-L")[0]
	client := exec.Command(binary, append([]string{"cmtime"}, strings.Fields(common)...)...)
	var stderr bytes.Buffer
	full := fullDevice(t)
	defer full.Close()
	client.Stdout, client.Stderr = full, &stderr
	if code := exitCode(client.Run()); code != 1 || !strings.HasSuffix(stderr.String(), "rankstorm: write /dev/stdout: no space left on device\n") {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
	server.wait(t, 0)
	if _, tables, err := cmtables.Read(server.stdout(t)); err != nil || len(tables) == 0 {
		t.Errorf("%v: %q", err, server.stdout(t))
	}
}

// A place where the document cannot be written is found before the storm, and costs nothing else.
func TestOutputThatIsRefused(t *testing.T) {
	for _, c := range []struct{ name, out, says string }{
		{"no such folder", "none/r.json", "-o/--out none/r.json: folder none: no such file or directory: name a file in a folder that can be written"},
		{"a file as folder", "file/r.json", "-o/--out file/r.json: folder file: not a directory: name a file in a folder that can be written"},
		{"a folder", "folder", "-o/--out folder: this is a folder: name a file in it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			port := freePort(t, "127.0.0.1")
			for _, how := range []struct {
				name string
				args []string
				says string
			}{
				{"spawned", []string{"--spawn", "3"}, "rankstorm: run: " + c.says},
				{"numbered", []string{"-C", "127.0.0.1:" + port, "-P", "2", "--rank", "0"}, "rankstorm: run: " + c.says},
				{"alone", []string{"-C", "127.0.0.1:" + port, "-P", "1"}, c.says}, // who writes is known with the table
			} {
				cmd := exec.Command(binary, append([]string{"run", "-o", c.out}, how.args...)...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				if code := exitCode(cmd.Run()); code != 2 || !strings.Contains(stderr.String(), how.says) {
					t.Errorf("%s: exit %d, want 2; stderr %q, want %q", how.name, code, stderr.String(), how.says)
				}
				if how.name != "alone" && strings.Count(stderr.String(), "\n") != 1 {
					t.Errorf("%s: stderr %q, want one line", how.name, stderr.String())
				}
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
