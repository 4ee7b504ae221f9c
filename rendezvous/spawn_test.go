package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/rank"
	"rankstorm/test/printed"
)

// sorted lines of several processes.
func sorted(t *printed.Text) []string { return slices.Sorted(slices.Values(t.Lines())) }

// play spawns n children with a part.
func play(ctx context.Context, n, hosts int, part ...string) (code int, out, errs *printed.Text, err error) {
	out, errs = &printed.Text{}, &printed.Text{}
	code, err = Spawn(ctx, SpawnConfig{N: n, Hosts: hosts, Args: append([]string{"spawned"}, part...), Out: out, Err: errs})
	return code, out, errs, err
}

func TestSpawn(t *testing.T) {
	t.Setenv("RANKSTORM_RANK", "7")
	for _, n := range []int{1, 2, 9, 20} {
		code, out, errs, err := play(t.Context(), n, 0, "join")
		if code != 0 || err != nil || errs.String() != "" {
			t.Fatalf("%d processes: code %d, error %v, stderr %s", n, code, err, errs)
		}
		host := ThisProcess().Host
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("%d %d %s 32", i, n, host))
		}
		slices.Sort(want)
		if got := sorted(out); !slices.Equal(got, want) {
			t.Errorf("%d processes: got %q, want %q", n, got, want)
		}
	}
}

func TestSpawnHosts(t *testing.T) {
	code, out, errs, err := play(t.Context(), 5, 2, "join")
	if code != 0 || err != nil {
		t.Fatalf("code %d, error %v, stderr %s", code, err, errs)
	}
	if got, want := sorted(out), []string{"0 5 h0 32", "1 5 h0 32", "2 5 h0 32", "3 5 h1 32", "4 5 h1 32"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSpawnCodes(t *testing.T) {
	for _, c := range []struct {
		part []string
		code int
		says string // on stderr of the survivors
	}{
		{[]string{"code", "5"}, 5, ""},
		{[]string{"die", "2"}, 1, ""},
		{[]string{"die", "0"}, 1, ""},
		{[]string{"die-early", "2"}, 1, "process 2: process with pid"},
		{[]string{"die-early", "0"}, 1, "process 0: process with pid"},
		{[]string{"fail-early", "1", "1"}, 1, "exit code 1"},
		{[]string{"fail-early", "1", "2"}, 2, "exit code 2"},
		{[]string{"fail-early", "0", "3"}, 3, "exit code 3"},
	} {
		code, _, errs, err := play(t.Context(), 4, 0, c.part...)
		if code != c.code || err != nil {
			t.Errorf("%q: code %d, error %v, want code %d; stderr %s", c.part, code, err, c.code, errs)
		}
		if !strings.Contains(errs.String(), c.says) {
			t.Errorf("%q: stderr %q lacks %q", c.part, errs, c.says)
		}
	}
}

func TestSpawnNobodySurvives(t *testing.T) {
	code, _, _, err := play(t.Context(), 1, 0, "die", "0")
	if code != 1 || errorKind(err) != rank.KindLost || !strings.Contains(fmt.Sprint(err), "signal 9") {
		t.Errorf("code %d, error %v", code, err)
	}
}

func TestSpawnKillsStopped(t *testing.T) {
	code, _, errs, err := play(t.Context(), 3, 0, "stop", "1")
	if code != 0 || err != nil {
		t.Errorf("code %d, error %v, stderr %s", code, err, errs)
	}
}

// A root that stands still keeps nobody once the others have left.
func TestSpawnKillsStoppedRoot(t *testing.T) {
	code, _, errs, err := play(t.Context(), 3, 0, "stop", "0")
	if code != 0 || err != nil {
		t.Errorf("code %d, error %v, stderr %s", code, err, errs)
	}
}

// Who insists gets an end at once, and one line that says so.
func TestSpawnSecondSignal(t *testing.T) {
	out := &printed.Text{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said := func(word string) {
		for strings.Count(out.String(), word) < 3 {
			if pause(ctx, 5*time.Millisecond) != nil {
				return
			}
		}
	}
	go func() {
		said("ready")
		syscall.Kill(os.Getpid(), syscall.SIGINT)
		said("not yet")
		pause(ctx, 2*OneSignal)
		syscall.Kill(os.Getpid(), syscall.SIGINT)
	}()
	code, err := Spawn(ctx, SpawnConfig{N: 3, Args: []string{"spawned", "deaf"}, Out: out, Err: os.Stderr})
	if code != 130 || errorKind(err) != rank.KindCancelled || !strings.Contains(fmt.Sprint(err), "second time") {
		t.Errorf("code %d, error %v", code, err)
	}
}

func TestSpawnSignals(t *testing.T) {
	interrupted := &rank.Error{Kind: rank.KindCancelled, Signal: int(syscall.SIGINT)}
	for _, c := range []struct {
		name  string
		send  func(cancel context.CancelCauseFunc)
		codes int
	}{
		{"the same signal twice at once", func(context.CancelCauseFunc) {
			syscall.Kill(os.Getpid(), syscall.SIGTERM)
			syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}, 143},
		{"signal to the parent", func(context.CancelCauseFunc) { syscall.Kill(os.Getpid(), syscall.SIGTERM) }, 143},
		{"end of the context", func(cancel context.CancelCauseFunc) { cancel(errors.New("enough")) }, 143},
		{"cause with a signal", func(cancel context.CancelCauseFunc) { cancel(interrupted) }, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			out := &printed.Text{}
			go func() {
				for strings.Count(out.String(), "ready") < 3 {
					if pause(ctx, 5*time.Millisecond) != nil {
						return
					}
				}
				c.send(cancel)
			}()
			code, err := Spawn(ctx, SpawnConfig{N: 3, Args: []string{"spawned", "wait"}, Out: out, Err: os.Stderr})
			if code != c.codes || rank.ExitCode(err) != c.codes || !strings.Contains(fmt.Sprint(err), "interrupted by SIG") {
				t.Errorf("code %d, error %v, want %d", code, err, c.codes)
			}
		})
	}
}

func TestSpawnRefuses(t *testing.T) {
	for _, cfg := range []SpawnConfig{{N: 0}, {N: 2, Hosts: 3}, {N: 2, Hosts: -1}} {
		if code, err := Spawn(t.Context(), cfg); code != 2 || errorKind(err) != rank.KindUsage {
			t.Errorf("%+v: code %d, error %v", cfg, code, err)
		}
	}
	if code, err := Spawn(t.Context(), SpawnConfig{N: 2, Path: filepath.Join(t.TempDir(), "none")}); code != 2 || errorKind(err) != rank.KindResource {
		t.Errorf("no executable: code %d, error %v", code, err)
	}
}

// TestSpawnOrphans kills the parent, which is a process of its own here.
func TestSpawnOrphans(t *testing.T) {
	if mark := os.Getenv("SPAWN_ORPHANS"); mark != "" {
		Spawn(t.Context(), SpawnConfig{N: 3, Args: []string{"spawned", "orphan", mark}, Out: os.Stdout, Err: os.Stderr})
		return
	}
	mark := filepath.Join(t.TempDir(), "ended")
	parent := exec.Command(os.Args[0], "-test.run=^TestSpawnOrphans$")
	parent.Env = append(os.Environ(), "SPAWN_ORPHANS="+mark)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	children := func() (n int) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent.Process.Pid))
		for _, o := range tasks {
			if all, err := os.ReadFile(o); err == nil {
				n += len(bytes.Fields(all))
			}
		}
		return n
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for children() < 3 {
		if pause(ctx, 5*time.Millisecond) != nil {
			t.Fatal("the children did not start")
		}
	}
	if err := pause(ctx, 300*time.Millisecond); err != nil { // they read their pipes now
		t.Fatal(err)
	}
	parent.Process.Kill()
	parent.Wait()
	for i := range 3 {
		for {
			if _, err := os.Stat(fmt.Sprintf("%s.%d", mark, i)); err == nil {
				break
			}
			if pause(ctx, 5*time.Millisecond) != nil {
				t.Fatalf("child %d did not see the end of its parent", i)
			}
		}
	}
}
