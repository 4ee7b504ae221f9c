package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/printed"
)

// Kill one process of a job in the milliseconds in which the job ends: all
// others leave with one exit code. 0 means that rank 0's document is there and
// says so.
// RANKSTORM_KILLS sets the number of moments, RANKSTORM_SEED replays one.
func TestKillAroundTheEnd(t *testing.T) {
	codes := map[int]int{}
	for _, seed := range seeds(t, "RANKSTORM_KILLS", 12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { codes[killAtEnd(t, seed)]++ })
	}
	t.Logf("exit codes: %v", codes)
}

func killAtEnd(t *testing.T, seed uint64) int {
	rng := rand.New(rand.NewPCG(seed, 1))
	const procs = 6
	dir := t.TempDir()
	controller := freeAddress(t)
	cmds := make([]*exec.Cmd, procs)
	outs := make([]printed.Text, procs)
	for i := range cmds {
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}
		cmds[i] = exec.Command(binary, "run", "-C", controller, "-P", fmt.Sprint(procs), "--rank", fmt.Sprint(i), "--topology", "ring",
			"--tree-arity", "2", "-o", "x.json", "--hold", "destroy=300ms")
		cmds[i].Dir, cmds[i].Stderr = own, &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
		defer cmds[i].Process.Kill()
	}
	// Rank 0 makes its document in a temporary file first: from then on the end is a matter of some ms.
	written := filepath.Join(dir, "0", "x.json")
	for end := time.Now().Add(time.Minute); len(entries(t, filepath.Join(dir, "0"))) == 0; time.Sleep(time.Millisecond / 2) {
		if time.Now().After(end) {
			t.Fatalf("no document after a minute: %s", outs[0].String())
		}
	}
	time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Millisecond))))
	victim := []int{0, 1, 2, rng.IntN(procs)}[rng.IntN(4)]
	_ = cmds[victim].Process.Signal(syscall.SIGKILL) // it may have left just now
	code, from := -1, 0
	for i, cmd := range cmds {
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if i == victim {
				continue
			}
			if code < 0 {
				code, from = exitCode(err), i
			} else if got := exitCode(err); got != code {
				t.Errorf("seed %d: process %d was killed; process %d exits with %d, process %d with %d\n%s\n%s", seed, victim, from, code, i, got, outs[from].String(), outs[i].String())
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("seed %d: process %d was killed; process %d has not ended after 30 s", seed, victim, i)
		}
	}
	if code == 0 {
		var d document
		b, err := os.ReadFile(written)
		if err == nil {
			err = json.Unmarshal(b, &d)
		}
		if err != nil || d.Exit.Code != 0 {
			t.Errorf("seed %d: exit 0, and the document: %v, exit %+v", seed, err, d.Exit)
		}
	}
	return code
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
