package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// judge waits for the end and holds it against the promises.
func (j *job) judge(o *outcome) {
	struck := time.Now()
	o.procs = j.procs
	survivors := func(p *proc) bool { return !p.victim }
	children := j.children()
	limit := bound
	if j.c.phase == "gather" {
		limit = bound + joinLimit
		if j.c.mode == "hosts" {
			limit = bound + 6*joinLimit
		}
	}
	if j.c.fault == "loss" || j.c.fault == "rate" {
		limit += 5 * liveness
	}
	if j.hold < 2*time.Second {
		limit += j.hold
	}
	if !j.until(limit, func() bool { return j.over(survivors) }) {
		for _, p := range j.procs {
			if !p.victim && !p.over() {
				o.fault("%s still runs %v after the fault: %s", p.name, limit, lastLine(strings.TrimSpace(p.text("stderr"))))
			}
		}
		o.took = time.Since(struck)
		return
	}
	for _, p := range j.procs {
		if !p.victim {
			o.took = max(o.took, p.ended.Sub(struck))
		}
	}
	// Children end by themselves, also without their parent.
	if !j.until(limit, func() bool { return !slices.ContainsFunc(children, alive) }) && o.took == 0 {
		o.fault("the children outlive their parent")
	}
	o.took = max(o.took, j.lastEnd(struck))
	j.resume(o)
	j.judgeCodes(o)
	j.judgeCulprit(o)
	j.judgeDocuments(o)
	for _, pid := range children {
		if alive(pid) {
			o.fault("pid %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
		}
	}
}

// lastEnd is now, if the end of the children was waited for.
func (j *job) lastEnd(struck time.Time) time.Duration {
	if strings.HasPrefix(j.c.victim, "parent") {
		return time.Since(struck)
	}
	return 0
}

// children of the spawn parents, so that those that outlive it are seen.
func (j *job) children() (pids []int) {
	if j.c.mode != "spawn" {
		return nil
	}
	return append(childrenOf(j.procs[0].pid), slices.Collect(mapValues(j.holding()))...)
}

func mapValues(m map[int]int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

func (j *job) over(who func(*proc) bool) bool {
	return !slices.ContainsFunc(j.procs, func(p *proc) bool { return who(p) && !p.over() })
}

// resume lets a stopped victim go on: it has to leave within 5 s, with a code
// that is not 0, and write nothing.
func (j *job) resume(o *outcome) {
	if j.c.fault != "stop" {
		return
	}
	for _, p := range j.procs {
		if !p.victim {
			continue
		}
		if err := syscall.Kill(p.pid, syscall.SIGCONT); err != nil {
			o.fault("%s: %v", p.name, err)
		}
		if !j.until(5*time.Second, p.over) {
			o.fault("%s was stopped, goes on, and has not left 5 s later", p.name)
			continue
		}
		if strings.HasPrefix(j.c.victim, "parent") {
			continue // it hosts no rank: the job went on without it
		}
		if p.code == 0 {
			o.fault("%s was stopped for too long and exits 0", p.name)
		}
		if len(documentsIn(p.dir)) > 0 || p.text("stdout") != "" {
			o.fault("%s was stopped for too long and writes results", p.name)
		}
	}
}

// wanted exit codes of the cell.
func (j *job) wanted() []int {
	switch {
	case j.c.fault == "loss" || j.c.fault == "rate" || j.c.fault == "fds":
		if j.c.phase == "gather" {
			return []int{0, 1, 2, 3}
		}
		return []int{0, 1, 2}
	case strings.HasPrefix(j.c.victim, "parent"):
		return []int{0, 1, 143} // no survivor but the children, whose code nobody takes
	case j.c.phase == "gather":
		return []int{3, 1}
	}
	return []int{1}
}

func (j *job) judgeCodes(o *outcome) {
	first := map[bool]*proc{}
	for _, p := range j.procs {
		if p.victim {
			continue
		}
		if first[p.apart] == nil {
			first[p.apart] = p
		}
		if f := first[p.apart]; p.code != f.code {
			o.fault("%s exits %d, %s %d: %s", f.name, f.code, p.name, p.code, lastLine(strings.TrimSpace(p.text("stderr"))))
		}
		if !slices.Contains(j.wanted(), p.code) {
			o.fault("%s exits %d, wanted %v: %s", p.name, p.code, j.wanted(), lastLine(strings.TrimSpace(p.text("stderr"))))
		}
	}
}

// judgeCulprit wants the victim named by a survivor: pid, rank or host.
func (j *job) judgeCulprit(o *outcome) {
	pid := j.struck()
	rank := -1
	for r, p := range j.holding() {
		if p == pid {
			rank = r
		}
	}
	for _, p := range j.procs {
		if p.pid == pid && p.rank >= 0 {
			rank = p.rank
		}
	}
	if rank < 0 && j.c.mode == "spawn" && !strings.HasPrefix(j.c.victim, "parent") {
		rank = number[strings.Fields(j.c.victim)[0]] // children are started in order
	}
	names := []string{fmt.Sprintf("pid %d", pid), fmt.Sprintf("rank %d ", rank), fmt.Sprintf("process %d ", rank)}
	if j.c.mode == "hosts" {
		names = []string{"(" + j.victimHost() + ")"}
		rank = perHost * int(j.victimHost()[1]-'0') // its first
	}
	clean := true
	for _, p := range j.procs {
		if p.victim || p.apart {
			continue
		}
		clean = clean && p.code == 0
		for line := range strings.Lines(p.text("stderr") + p.text("stdout")) {
			if strings.Contains(line, "holding") || strings.Contains(line, "→") { // rows of the table name whoever is slowest
				continue
			}
			for _, name := range names {
				if strings.Contains(line, name) && o.culprit == "" {
					o.culprit = strings.TrimSpace(name)
				}
			}
			if j.c.phase == "gather" && rank >= 0 && strings.Contains(line, "missing process number") && missing(line, rank) {
				o.culprit = fmt.Sprintf("missing %d", rank)
			}
			if j.c.phase == "gather" && strings.Contains(line, "no controller at") {
				o.culprit = "no controller"
			}
		}
	}
	if o.culprit == "" && !clean && j.c.fault != "loss" && j.c.fault != "rate" && !strings.HasPrefix(j.c.victim, "parent") {
		o.fault("nobody names the victim (%s)", strings.Join(names, ", "))
	}
}

// missing looks for a number in "missing process numbers 2,5-7".
func missing(line string, n int) bool {
	_, rest, _ := strings.Cut(line, "missing process number")
	rest = strings.TrimLeft(rest, "s ")
	for part := range strings.SplitSeq(strings.TrimRight(strings.SplitN(rest, ";", 2)[0], " \n."), ",") {
		low, high, ranged := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(low)
		b := a
		if ranged && err == nil {
			b, err = strconv.Atoi(high)
		}
		if err == nil && n >= a && n <= b {
			return true
		}
	}
	return false
}

// judgeDocuments wants one document on each side once the job had formed, none
// of a job that never did, and no half-written file anywhere.
func (j *job) judgeDocuments(o *outcome) {
	count := map[bool]int{}
	alone := map[bool]bool{}
	for _, p := range j.procs {
		if !p.victim {
			alone[p.apart] = true
			count[p.apart] += len(documentsIn(p.dir))
		}
		if half, _ := filepath.Glob(filepath.Join(p.dir, ".rankstorm-*")); len(half) > 0 {
			o.fault("%s left %s", p.name, filepath.Base(half[0]))
		}
	}
	for side := range alone {
		want := 1
		switch {
		case j.c.phase == "gather" && (j.c.fault == "kill" || j.c.fault == "crash") && j.c.mode != "spawn":
			want = 0
		case j.c.phase == "gather", j.c.fault == "fds", strings.HasPrefix(j.c.victim, "parent"):
			continue // it may have formed, or failed before it could
		}
		if count[side] != want {
			o.fault("%d documents, want %d", count[side], want)
		}
	}
}

// alive says whether a process exists and is not a zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := strings.LastIndexByte(string(b), ')')
	return i >= 0 && i+2 < len(b) && b[i+2] != 'Z' && b[i+2] != 'X'
}
