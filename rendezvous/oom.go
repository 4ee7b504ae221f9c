package rendezvous

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// oomKills is how many processes of this machine the kernel has killed since it started because memory ran out, of the
// machine or of a cgroup; -1 if it does not tell.
func oomKills() int64 {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return -1
	}
	return oomKillsIn(string(b))
}

func oomKillsIn(vmstat string) int64 {
	for line := range strings.Lines(vmstat) {
		if number, ok := strings.CutPrefix(line, "oom_kill "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// signalText names the signal that ended a child. With SIGKILL it tells if the kernel has killed processes for want of
// memory since the count before.
func signalText(sig syscall.Signal, before, now int64) string {
	text := fmt.Sprintf("signal %d (%v)", sig, sig)
	switch n := now - before; {
	case sig != syscall.SIGKILL || before < 0 || n <= 0:
		return text
	case n == 1:
		text += "; meanwhile the kernel killed 1 process of this machine"
	default:
		text += fmt.Sprintf("; meanwhile the kernel killed %d processes of this machine", n)
	}
	return text + " because memory ran out, dmesg says which: start fewer processes or connections, or raise the memory limit of the cgroup"
}
