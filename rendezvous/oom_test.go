package rendezvous

import (
	"syscall"
	"testing"
)

func TestSignalText(t *testing.T) {
	const advice = " because memory ran out, dmesg says which: start fewer processes or connections, or raise the memory limit of the cgroup"
	for _, c := range []struct {
		sig         syscall.Signal
		before, now int64
		want        string
	}{
		{syscall.SIGKILL, 7, 7, "signal 9 (killed)"},
		{syscall.SIGKILL, 7, 8, "signal 9 (killed); meanwhile the kernel killed 1 process of this machine" + advice},
		{syscall.SIGKILL, 7, 10, "signal 9 (killed); meanwhile the kernel killed 3 processes of this machine" + advice},
		{syscall.SIGKILL, -1, 5, "signal 9 (killed)"},
		{syscall.SIGKILL, 7, -1, "signal 9 (killed)"},
		{syscall.SIGABRT, 7, 8, "signal 6 (aborted)"},
	} {
		if got := signalText(c.sig, c.before, c.now); got != c.want {
			t.Errorf("%d, %d to %d: %q, want %q", c.sig, c.before, c.now, got, c.want)
		}
	}
	for text, want := range map[string]int64{"nr_free 1\noom_kill 42\ndrop 2\n": 42, "": -1, "oom_kill x\n": -1, "not_oom_kill 3\n": -1} {
		if got := oomKillsIn(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
