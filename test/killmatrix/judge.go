package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// outcome is how a cell went.
type outcome struct {
	c         cell
	promise   promise
	attempts  int
	dir       string
	took      time.Duration
	sides     []*side
	traces    string // of the fault
	leftovers []string
	faults    []string
}

// side is what still hears of one another after the fault.
type side struct {
	apart   bool // the victim's, after a cut
	procs   []*proc
	codes   []int // different ones
	docs    []*document
	culprit culprit
}

func (o *outcome) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

func (o *outcome) left(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	o.leftovers = append(o.leftovers, text)
	o.fault("left: %s", text)
}

// judge waits for the end and holds it against the promise.
func (j *job) judge(o *outcome) {
	o.promise = promised(j.c)
	defer func() { o.traces = j.traces }()
	limit := o.promise.within + j.joins() - joinLimit
	if j.hold < longHold {
		limit += 2 * j.hold // nothing may end it before its time; twice with two rounds
	}
	running := func(p *proc) bool { return !p.victim && !p.over() }
	orphans := map[int]int{} // code of children without parent
	if !j.until(limit, func() bool {
		j.reap(orphans)
		return !slices.ContainsFunc(j.procs, running) && !slices.ContainsFunc(j.ranksOfSpawn(), alive)
	}) {
		var still []string
		for _, p := range j.procs {
			if running(p) {
				still = append(still, p.name)
			}
		}
		if len(still) > 0 {
			o.fault("%s: still running %v after the fault: %s", strings.Join(still, " "), limit, j.said())
		}
		for _, pid := range j.ranksOfSpawn() {
			if alive(pid) {
				o.fault("child %d still runs %v after the fault", pid, limit)
			}
		}
		o.took = time.Since(j.struck)
		return
	}
	j.reap(orphans) // who ended between the last two looks
	o.took = time.Since(j.struck)
	if j.c.victim != "parent" {
		o.took = 0
		for _, p := range j.procs {
			if !p.victim {
				o.took = max(o.took, p.ended.Sub(j.struck))
			}
		}
	}
	j.resume(o)
	if o.promise.counted {
		n, err := j.hits()
		j.traces = fmt.Sprintf("%d frames hit", n)
		if err != nil {
			o.fault("%v", err)
		} else if late := j.c.phase == "disconnect" || j.c.phase == "destroy"; n == 0 && j.c.fault == "rate" && late {
			j.traces += ": too few were left to wait"
		} else if n == 0 {
			o.fault("no frame was lost or delayed: the fault did nothing")
		}
	}
	for _, apart := range []bool{false, true} {
		s := &side{apart: apart}
		for _, p := range j.procs {
			if p.apart == apart && (!p.victim || j.c.mode == "spawn") { // a spawned job has one folder
				s.procs = append(s.procs, p)
			}
		}
		if len(s.procs) == 0 {
			continue
		}
		o.sides = append(o.sides, s)
		j.judgeCodes(o, s, orphans)
		j.judgeDocuments(o, s)
		j.judgeCulprit(o, s)
	}
	j.judgeLeftovers(o)
}

// ranksOfSpawn are the processes of a spawned job that need not wait for anybody to go on.
func (j *job) ranksOfSpawn() []int {
	if j.c.victim == "parent" {
		return j.children
	}
	return nil // the parent waits for them
}

// reap takes the exit codes of children whose parent was killed: they became ours.
func (j *job) reap(codes map[int]int) {
	if j.c.victim != "parent" || j.c.fault != "kill" {
		return
	}
	for _, pid := range j.children {
		var status syscall.WaitStatus
		if got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); err == nil && got == pid {
			codes[pid] = status.ExitStatus()
			if status.Signaled() {
				codes[pid] = -int(status.Signal())
			}
		}
	}
}

// resume lets a stopped victim go on: it has to leave within 5 s, with a code
// that is not 0, and write nothing. A spawn parent hosts no rank: its job went
// on without it, and it ends with the job's code.
func (j *job) resume(o *outcome) {
	if j.c.fault != "stop" {
		return
	}
	if alive(j.victim.pid) {
		_ = syscall.Kill(j.victim.pid, syscall.SIGCONT) // a spawn parent kills who stands still at the end
	}
	for _, p := range j.procs {
		if !p.victim {
			continue
		}
		if !j.until(5*time.Second, p.over) {
			o.fault("%s was stopped, goes on, and has not left 5 s later", p.name)
			continue
		}
		if j.c.victim == "parent" {
			continue // its code is judged as the job's
		}
		if p.code == 0 {
			o.fault("%s was stopped for too long and exits 0", p.name)
		}
		if docs, _ := documentsOf(p); len(docs) > 0 || p.text("stdout") != "" {
			o.fault("%s was stopped for too long and writes results", p.name)
		}
	}
}

func (j *job) judgeCodes(o *outcome, s *side, orphans map[int]int) {
	type end struct {
		name string
		code int
		said string
	}
	var ends []end
	for _, p := range s.procs {
		if j.c.victim != "parent" || j.c.fault != "kill" {
			ends = append(ends, end{p.name, p.code, p.lastWords()})
		}
	}
	for pid, code := range orphans {
		ends = append(ends, end{fmt.Sprintf("child %d", pid), code, j.procs[0].lastWords()})
	}
	if len(ends) == 0 {
		o.fault("no survivor's exit code was seen")
	}
	for _, e := range ends {
		if !slices.Contains(s.codes, e.code) {
			s.codes = append(s.codes, e.code)
			if !o.promise.allows(e.code) {
				o.fault("%s exits %d, promised %v: %s", e.name, e.code, o.promise.codes, e.said)
			}
		}
	}
	if len(s.codes) > 1 {
		slices.Sort(s.codes)
		o.fault("survivors disagree: exit codes %v", s.codes)
	}
}

// judgeDocuments wants the promised kind on each side, no two, what it says of
// the end to be true, and the rows of all that survived.
func (j *job) judgeDocuments(o *outcome, s *side) {
	for _, p := range s.procs {
		docs, err := documentsOf(p)
		if err != nil {
			o.fault("%v", err)
		}
		s.docs = append(s.docs, docs...)
	}
	kind := docNone
	if len(s.docs) > 0 {
		kind = s.docs[0].kind()
	}
	if len(s.docs) > 1 {
		o.fault("%d documents, want one", len(s.docs))
	}
	if !slices.Contains(o.promise.docs, kind) {
		o.fault("document: %s, promised %s", kind, strings.Join(o.promise.docs, " or "))
	}
	clean := slices.Equal(s.codes, []int{0})
	if clean && kind != docWhole {
		o.fault("exit 0 and the document is %s", kind)
	}
	if len(s.docs) == 0 {
		return
	}
	d := s.docs[0]
	if !slices.Contains(s.codes, d.Exit.Code) {
		o.fault("the document says exit %d, the survivors %v", d.Exit.Code, s.codes)
	}
	if !clean && d.Exit.Error == nil {
		o.fault("the document names no first cause")
	}
	if o.promise.rows {
		survivors := j.survivors(s)
		missing := d.rowless(survivors, j.c.phase)
		for _, text := range missing {
			o.fault("document: %s", text)
		}
		if len(missing) == 0 {
			j.traces += fmt.Sprintf(", rows of all %d survivors", len(survivors))
		}
	}
}

// survivors are the numbers of the processes that live on a side.
func (j *job) survivors(s *side) (procs []int) {
	for n := range j.procCount() {
		lost := n == j.victim.proc
		if j.victim.host != "" {
			lost = slices.Contains(j.victim.onHost, n) != s.apart
		}
		if !lost {
			procs = append(procs, n)
		}
	}
	return procs
}

// judgeLeftovers looks for what the job must not leave.
func (j *job) judgeLeftovers(o *outcome) {
	for _, p := range j.procs {
		for _, name := range strays(p) {
			o.left("file %s of %s", name, p.name)
		}
	}
	for _, pid := range j.children {
		if isOurs(pid, j.m.binary) && alive(pid) {
			o.left("process %d", pid)
		}
	}
	if j.c.mode == "hand" && listens(j.port) {
		o.left("a listener at port %d", j.port)
	}
	for _, name := range abstractSockets(strconv.Itoa(os.Getpid())) {
		if j.c.mode != "hosts" && slices.Contains(j.sockets, name) { // those on hosts are looked for when nothing runs there
			o.left("abstract socket %s", name)
		}
	}
	for _, s := range o.sides {
		for _, d := range s.docs {
			for _, cause := range d.Causes {
				if cause.Kind == "leak" {
					o.left("%s", cause.Evidence)
				}
			}
		}
	}
}
