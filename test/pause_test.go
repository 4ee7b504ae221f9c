package test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/need"
)

// paused is what a document says of pauses.
type paused struct {
	Pauses []struct {
		Proc   int
		Phase  string
		When   string
		GapNS  int64  `json:"gap_ns"`
		WaitNS *int64 `json:"wait_ns"`
		RunNS  *int64 `json:"run_ns"`
	}
	Causes []struct {
		Kind, Phase, Evidence, Fix string
		Rank                       *int
		Count                      *int64
		ValueNS                    *int64 `json:"value_ns"`
	}
	Exit struct{ Code int }
}

// stopInHold stops some processes of a job of four for 400 ms while all hold between two phases.
func stopInHold(t *testing.T, ranks ...int) (d paused, table string) {
	t.Helper()
	const procs = 4
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	cmd := exec.Command(binary, "run", "--spawn", strconv.Itoa(procs), "-c", "4", "--hold", "qp=1500ms", "-o", path)
	cmd.Dir = dir
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := inHold(t, cmd, procs, func(pids map[int]int) {
		time.Sleep(200 * time.Millisecond)
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
			for _, r := range ranks {
				if err := syscall.Kill(pids[r], s); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(400 * time.Millisecond)
		}
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	recompute(t, ended{stdout: stdout.String(), path: path})
	return d, stdout.String()
}

// proven says that the kernel's scheduler counted that all these processes were stopped between phases.
func (d *paused) proven(t *testing.T, ranks []int) bool {
	t.Helper()
	var seen []int
	for _, p := range d.Pauses {
		if p.WaitNS == nil {
			need.Absent(t, "schedstat", "this kernel does not count how long threads wait for a CPU")
		}
		if p.Phase == "qp" && p.When == "after" && p.GapNS >= int64(340*time.Millisecond) && 2*(*p.WaitNS+*p.RunNS) <= p.GapNS && !slices.Contains(seen, p.Proc) {
			seen = append(seen, p.Proc)
		}
	}
	slices.Sort(seen)
	return slices.Equal(seen, ranks)
}

// A stop that falls between two phases changes no figure of either, but others waited for it: it is named. If all
// processes of a host are stopped together, the host is, once.
func TestStopsBetweenPhasesAreNamed(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks []int
		begin string
	}{
		{"a rank", []int{2}, "after qp: rank 2 ("},
		{"all of a host", []int{0, 1, 2, 3}, "after qp: all 4 ranks of host "},
	} {
		t.Run(c.name, func(t *testing.T) {
			for try := range 5 { // where others load the machine a stop may look like starvation
				d, table := stopInHold(t, c.ranks...)
				if !d.proven(t, c.ranks) {
					t.Logf("try %d: not proven by %+v", try, d.Pauses)
					continue
				}
				stops := 0
				for _, cause := range d.Causes {
					if cause.Kind == "stopped" && cause.Phase == "qp" {
						stops++
						if !strings.HasPrefix(cause.Evidence, c.begin) || *cause.ValueNS < int64(340*time.Millisecond) {
							t.Errorf("%s (%v)", cause.Evidence, time.Duration(*cause.ValueNS))
						}
						t.Log(cause.Evidence)
					}
				}
				if stops != 1 || d.Exit.Code != 0 {
					t.Errorf("%d stops are told, exit %d:\n%s", stops, d.Exit.Code, table)
				}
				return
			}
			t.Error("no stop was proven")
		})
	}
}
