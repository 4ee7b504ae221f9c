package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	parentFiles = 14 // descriptors of a spawn parent that has too few for its children
	fewFiles    = 12 // fewer than any process has open: nothing new can be opened
)

// find says who the victim is.
func (j *job) find() error {
	j.victim = who{proc: -1}
	number := map[string]int{"controller": control, "root": 0, "interior": 1, "leaf": j.procCount() - 1}[j.c.victim]
	switch {
	case j.c.victim == "parent":
		j.victim.pid = j.procs[0].pid
		return nil
	case j.c.victim == "agent":
		return j.findAgent()
	case j.c.phase == anyMoment:
		number = j.c.number
	}
	j.victim.proc, j.victim.pid = number, j.pidOf(number)
	if j.victim.pid <= 0 {
		return fmt.Errorf("process %d was not found", number)
	}
	return nil
}

func (j *job) pidOf(number int) int {
	if j.c.mode == "spawn" {
		return j.child(number)
	}
	for _, p := range j.procs {
		if p.rank == number {
			return p.pid
		}
	}
	return 0
}

// findAgent looks for an agent that is neither controller nor root.
func (j *job) findAgent() error {
	for number := range j.procCount() {
		pid := j.pidOf(number)
		if number == 0 || number == control && j.c.mode == "hand" || pid == 0 {
			continue
		}
		if len(hostSocketsOf(pid)) > 0 {
			j.victim.proc, j.victim.pid = number, pid
			return nil
		}
	}
	return fmt.Errorf("no process of the job but controller and root is an agent")
}

// strike does it, and sees that it is done.
func (j *job) strike() error {
	if err := j.find(); err != nil {
		return err
	}
	if err := j.stillHolds(); err != nil {
		return err
	}
	for _, p := range j.procs {
		p.victim = p.pid == j.victim.pid && j.c.fault != "fds"
		j.sockets = append(j.sockets, hostSocketsOf(p.pid)...)
		if j.c.mode == "spawn" {
			j.children = childrenOf(p.pid)
		}
	}
	for _, pid := range j.children {
		j.sockets = append(j.sockets, hostSocketsOf(pid)...)
	}
	slices.Sort(j.sockets)
	j.sockets = slices.Compact(j.sockets)
	j.struck = time.Now()
	switch pid := j.victim.pid; j.c.fault {
	case "kill":
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		if !j.until(5*time.Second, func() bool { return !alive(pid) }) {
			return fmt.Errorf("pid %d lives 5 s after kill -9", pid)
		}
		j.traces = fmt.Sprintf("pid %d is gone", pid)
	case "stop":
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		if !j.until(5*time.Second, func() bool { return stateOf(pid) == 'T' }) {
			return fmt.Errorf("pid %d is not stopped 5 s after SIGSTOP", pid)
		}
		j.traces = fmt.Sprintf("pid %d stands still", pid)
	case "fds":
		return j.starve()
	}
	return nil
}

// starve takes the descriptors away that are not open: nothing new can be
// opened now, and once data connections are closed only as much as the control
// plane had before there were any.
func (j *job) starve() error {
	if j.c.victim == "parent" && j.c.phase == "gather" {
		j.traces = fmt.Sprintf("started with %d descriptors", parentFiles)
		return nil
	}
	pid := j.victim.pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	limit := len(open)
	if n, known := j.budget[pid]; known {
		limit = min(limit, n)
	}
	if j.c.phase == anyMoment {
		limit = fewFiles
	}
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		return err
	}
	old.Cur = uint64(limit)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
		return err
	}
	j.traces = fmt.Sprintf("%d open, limit %d", len(open), limit)
	return nil
}
