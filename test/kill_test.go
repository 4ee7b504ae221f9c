package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/printed"
)

// Kill any one process of a job at a seeded random moment: every survivor ends
// within 5 s, the loss is named, nothing is left.
// RANKSTORM_KILLS sets the number of moments, RANKSTORM_SEED replays one.
func TestKillAtRandomMoments(t *testing.T) {
	for _, seed := range seeds(t, "RANKSTORM_KILLS", 12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { killOnce(t, seed) })
	}
}

func killOnce(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	const procs, phaseTimeout = 8, 20 * time.Second
	cmd := exec.Command(binary, "run", "--spawn", fmt.Sprint(procs), "--topology", "all_to_all", "-c", "16", "--rounds", "100000", "--phase-timeout", phaseTimeout.String())
	cmd.Dir = t.TempDir()
	var stderr printed.Text // read while it writes if the job does not end
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	defer cmd.Process.Kill()

	var pids []int
	until(t, "all children", func() bool {
		pids = children(cmd.Process.Pid)
		return len(pids) == procs
	})
	// Half of the moments fall into the first 300 ms: gather, seal, clock and the first round.
	wait := time.Duration(rng.Int64N(int64(2 * time.Second)))
	if rng.IntN(2) == 0 {
		wait = time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
	}
	victim := pids[rng.IntN(procs)]
	time.Sleep(wait)
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	var err error
	select {
	case err = <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("seed %d: pid %d killed after %v: the job has not ended 30 s later\n%s", seed, victim, wait, stderr.String())
	}
	// Five seconds are promised, of which a loaded machine makes more; without the loss it would be the phase timeout.
	if took := time.Since(killed); took > phaseTimeout-5*time.Second {
		t.Errorf("seed %d: pid %d killed after %v: the job ended %v later", seed, victim, wait, took)
	}
	if code := exitCode(err); code != 1 {
		t.Errorf("seed %d: exit %d, want 1", seed, code)
	}
	if !strings.Contains(stderr.String(), fmt.Sprintf("pid %d", victim)) {
		t.Errorf("seed %d: pid %d was killed after %v and is not named:\n%s", seed, victim, wait, stderr.String())
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("seed %d: pid %d is left", seed, pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// The parent of a spawned job is killed: the children end by themselves, say once why, and the document agrees.
func TestSpawnParentKilled(t *testing.T) {
	for _, phase := range []string{"gather", "clock", "connect"} {
		t.Run(phase, func(t *testing.T) {
			dir := t.TempDir()
			stderr, err := os.Create(filepath.Join(dir, "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer stderr.Close()
			said := func() string {
				b, err := os.ReadFile(stderr.Name())
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			const procs = 5
			cmd := exec.Command(binary, "run", "--spawn", fmt.Sprint(procs), "--topology", "ring", "-o", "x.json", "--hold", phase+"=20s")
			cmd.Dir, cmd.Stderr = dir, stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			wait := func(what string, done func() bool) {
				for end := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("a minute, and not %s: %s", what, said())
					}
				}
			}
			wait("everybody holds", func() bool { return strings.Count(said(), "holding ") == procs })
			pids := children(cmd.Process.Pid)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			for _, pid := range pids {
				wait(fmt.Sprintf("pid %d has ended", pid), func() bool { return !alive(pid) })
			}
			if n := strings.Count(said(), "the process that spawned this job (pid "); n != 1 || strings.Contains(said(), "SIGTERM") {
				t.Errorf("%d lines say that the parent is gone, want 1:\n%s", n, said())
			}
			b, err := os.ReadFile(filepath.Join(dir, "x.json"))
			if phase == "gather" {
				if err == nil {
					t.Error("a document of a job that did not form")
				}
				return
			}
			var d struct {
				Exit struct {
					Code int
					Text string
				}
			}
			if err == nil {
				err = json.Unmarshal(b, &d)
			}
			if err != nil || d.Exit.Code != 1 || !strings.Contains(d.Exit.Text, "the process that spawned this job (pid ") {
				t.Errorf("document: %v, exit %+v", err, d.Exit)
			}
		})
	}
}
