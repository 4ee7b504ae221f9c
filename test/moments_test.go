package test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seeds of a test of random moments: as many as the variable says, from the one on that RANKSTORM_SEED names. Without
// the variable that is the only one.
func seeds(t *testing.T, variable string, usual uint64) (list []uint64) {
	t.Helper()
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s: want a number from 1 on", name, text)
		}
		return n
	}
	first := number("RANKSTORM_SEED", 0)
	if first > 0 {
		usual = 1
	}
	for i := range number(variable, usual) {
		list = append(list, max(1, first)+i)
	}
	return list
}

var holding = regexp.MustCompile(`holding rank (\d+) pid (\d+) phase `)

// inHold runs a job to its end, and does something to its processes, by rank, as soon as all of them hold.
func inHold(t *testing.T, cmd *exec.Cmd, procs int, do func(pids map[int]int)) (stderr string, err error) {
	t.Helper()
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	var all strings.Builder
	pids := map[int]int{}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		m := holding.FindStringSubmatch(lines.Text())
		if m == nil || len(pids) == procs {
			continue
		}
		r, _ := strconv.Atoi(m[1])
		if pids[r], _ = strconv.Atoi(m[2]); len(pids) == procs {
			do(pids)
		}
	}
	return all.String(), cmd.Wait()
}
