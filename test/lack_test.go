package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process runs out of descriptors while the job gathers: the error of the job
// names it and what it lacks, whoever tells it.
func TestNoDescriptorsWhileGathering(t *testing.T) {
	for _, victim := range []int{0, 2} { // the controller, and a process that is the root
		t.Run(fmt.Sprint(victim), func(t *testing.T) {
			const procs = 4
			controller := freeAddress(t)
			cmds, outs := make([]*exec.Cmd, procs), make([]bytes.Buffer, procs)
			begin := func(i int) {
				number := (i + procs - 2) % procs // process 0 of the table is the third to come
				cmds[i] = exec.Command(binary, "run", "-C", controller, "-P", fmt.Sprint(procs), "--rank", fmt.Sprint(number), "--topology", "ring", "--join-timeout", "6s")
				cmds[i].Dir, cmds[i].Stderr = t.TempDir(), &outs[i]
				if err := cmds[i].Start(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range procs - 1 {
				begin(i)
				defer cmds[i].Process.Kill()
				time.Sleep(300 * time.Millisecond) // the first is the controller; all have come before the limit
			}
			pid := cmds[victim].Process.Pid
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)), Max: 1024}, nil); err != nil {
				t.Fatal(err)
			}
			begin(procs - 1)
			defer cmds[procs-1].Process.Kill()
			told := 0
			for i, cmd := range cmds {
				done := make(chan error, 1)
				go func() { done <- cmd.Wait() }()
				select {
				case err := <-done:
					if code := exitCode(err); code != 3 {
						t.Errorf("process %d exits with %d: %s", i, code, outs[i].String())
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("process %d has not ended after 30 s", i)
				}
				for line := range strings.Lines(outs[i].String()) {
					gathered := strings.Contains(line, "did not form") && strings.Contains(line, fmt.Sprintf("pid %d has no descriptors left (too many open files, limit %d)", pid, len(open)))
					// The root may come as far as the table.
					sealed := victim == 2 && strings.Contains(line, "process 0 ") && strings.Contains(line, "cannot open its link to process") && strings.Contains(line, "too many open files")
					if gathered || sealed {
						told++
					}
				}
			}
			if told < 1 || told > 2 { // the controller, and the process itself
				t.Errorf("%d errors name pid %d and what it lacks, want 1 or 2:\n%s\n%s\n%s\n%s", told, pid, &outs[0], &outs[1], &outs[2], &outs[3])
			}
		})
	}
}
