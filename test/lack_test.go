package test

import (
	"fmt"
	"net"
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
			t.Parallel()
			const procs = 4
			controller := freeAddress(t)
			all := make([]*watched, procs)
			begin := func(i int) {
				number := (i + procs - 2) % procs // process 0 of the table is the third to come
				v := &watched{cmd: exec.Command(binary, "run", "-C", controller, "-P", fmt.Sprint(procs), "--rank", fmt.Sprint(number), "--topology", "ring", "--join-timeout", "10s")}
				v.cmd.Dir, v.cmd.Stderr = t.TempDir(), &v.stderr
				if err := v.cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = v.cmd.Process.Kill() })
				all[i] = v
			}
			begin(0) // the controller
			until(t, "the controller", func() bool {
				c, err := net.Dial("tcp", controller)
				if err == nil {
					c.Close()
				}
				return err == nil
			})
			begin(1)
			begin(2)
			all[0].waitsFor(t, fmt.Sprintf("waiting for 1 of %d", procs)) // all have come before the limit
			pid := all[victim].pid()
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)), Max: 1024}, nil); err != nil {
				t.Fatal(err)
			}
			begin(procs - 1)
			told := 0
			for i, v := range all {
				done := make(chan error, 1)
				go func() { done <- v.cmd.Wait() }()
				select {
				case err := <-done:
					if code := exitCode(err); code != 3 {
						t.Errorf("process %d exits with %d: %s", i, code, v.stderr.String())
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("process %d has not ended after 30 s: %s", i, v.stderr.String())
				}
				for line := range strings.Lines(v.stderr.String()) {
					gathered := strings.Contains(line, "did not form") && strings.Contains(line, fmt.Sprintf("pid %d has no descriptors left (too many open files, limit %d)", pid, len(open)))
					// The root may come as far as the table.
					sealed := victim == 2 && strings.Contains(line, "process 0 ") && strings.Contains(line, "cannot open its link to process") && strings.Contains(line, "too many open files")
					if gathered || sealed {
						told++
					}
				}
			}
			if told < 1 || told > 2 { // the controller, and the process itself
				t.Errorf("%d errors name pid %d and what it lacks, want 1 or 2:\n%s\n%s\n%s\n%s", told, pid, &all[0].stderr, &all[1].stderr, &all[2].stderr, &all[3].stderr)
			}
		})
	}
}
