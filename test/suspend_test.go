package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// All processes of a job are suspended for longer than the liveness timeout, as
// a launcher does that needs the place: when they go on each leaves with 1 and
// one line that says why, and nobody writes a document.
func TestSuspendedJob(t *testing.T) {
	const procs = 4
	controller := freeAddress(t)
	cmds, dirs := make([]*exec.Cmd, procs), make([]string, procs)
	said := func(i int) string {
		b, err := os.ReadFile(filepath.Join(dirs[i], "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for i := range cmds {
		dirs[i] = t.TempDir()
		cmds[i] = exec.Command(binary, "run", "-C", controller, "-P", fmt.Sprint(procs), "--rank", fmt.Sprint(i), "--topology", "ring",
			"--liveness-timeout", "1s", "--hold", "create=20s", "-o", "x.json")
		stderr, err := os.Create(filepath.Join(dirs[i], "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer stderr.Close()
		cmds[i].Dir, cmds[i].Stderr = dirs[i], stderr
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
		defer cmds[i].Process.Kill()
	}
	signal := func(s syscall.Signal) {
		for _, cmd := range cmds {
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range cmds {
		for end := time.Now().Add(time.Minute); !strings.Contains(said(i), "holding "); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d does not hold: %s", i, said(i))
			}
		}
	}
	signal(syscall.SIGSTOP)
	time.Sleep(5 * time.Second)
	signal(syscall.SIGCONT)
	for i, cmd := range cmds {
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			lines := strings.Count(said(i), "this process stood still for ")
			if code := exitCode(err); code != 1 || lines != 1 || len(entries(t, dirs[i])) != 1 { // what it said
				t.Errorf("process %d exits with %d, %d lines say why, files %v:\n%s", i, code, lines, entries(t, dirs[i]), said(i))
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("process %d has not ended", i)
		}
	}
}
