package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	tries      = 3  // to strike a job in its phase; what it then does is judged once
	handProcs  = 18 // more than 16: there is an agent
	spawnProcs = 7
	hostCount  = 4
	perHost    = 2
	agentHost  = 5 // processes per host where agents are wanted: 20 in all
	control    = 9 // the process that is the controller, by hand on one host

	liveness  = 1500 * time.Millisecond
	phase     = 5 * time.Second
	longHold  = 12 * time.Second // a loss ends it
	joinLimit = 5 * time.Second  // of jobs that stand in gather
	drawnEnd  = 12 * time.Second // of random jobs in which nobody is lost
)

// proc is one process of a job, each in a folder of its own.
type proc struct {
	name   string
	rank   int // -1: the parent of a spawned job
	host   string
	dir    string
	cmd    *exec.Cmd
	pid    int
	done   chan struct{}
	code   int
	ended  time.Time
	victim bool
	apart  bool // on the other side of a cut
}

func (p *proc) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *proc) text(file string) string {
	b, _ := os.ReadFile(filepath.Join(p.dir, file)) // not there: nothing was said
	return string(b)
}

func (p *proc) lastWords() string { return lastLine(strings.TrimSpace(p.text("stderr"))) }

func lastLine(t string) string { return t[strings.LastIndexByte(t, '\n')+1:] }

// job is one running job.
type job struct {
	m        *matrix
	c        cell
	lab      *laboratory // nil: on this machine itself
	dir      string
	port     int
	mu       sync.Mutex // guards procs while the job starts: an interrupt ends what there is
	procs    []*proc
	hold     time.Duration
	again    int // tries before this one
	begun    time.Time
	held     time.Time    // when the first one was seen to hold
	late     func() error // lets the process come that keeps the others gathering
	budget   map[int]int  // pid → descriptors that its control plane has open
	victim   who
	struck   time.Time
	sockets  []string // abstract sockets of the job when it was struck
	children []int    // of the spawn parent, then
	traces   string   // the fault's own evidence
}

// who is the victim: a process, or a host and all on it.
type who struct {
	pid    int
	proc   int // -1: hosts no rank, or not known
	host   string
	onHost []int // processes there
}

func (j *job) procCount() int {
	switch {
	case j.c.mode == "hosts":
		return hostCount * j.onEachHost()
	case j.c.mode == "spawn" && j.c.victim != "agent" && j.c.phase != anyMoment:
		return spawnProcs
	}
	return handProcs
}

func (j *job) onEachHost() int {
	if j.c.victim == "agent" {
		return agentHost
	}
	return perHost
}

// joins is the join timeout of a job that stands in gather; each try gives a
// busy machine more time to start all.
func (j *job) joins() time.Duration { return joinLimit * time.Duration(1+j.again) }

// one runs a cell on this machine.
func (m *matrix) one(c cell, number int) *outcome {
	o := &outcome{c: c}
	for o.attempts = 1; ; o.attempts++ {
		dir, err := os.MkdirTemp("", "killmatrix-")
		j := &job{m: m, c: c, dir: dir, port: 21000 + number%4000, again: o.attempts - 1}
		o.dir, o.faults = dir, nil
		if err == nil {
			err = j.enter()
		}
		if err == nil {
			err = j.strike()
		}
		if err == nil && j.late != nil && (c.fault != "kill" || c.mode == "spawn") {
			err = j.late() // who is dead is missing; who lives in a bad way shows only when the job can go on
		}
		if err == nil {
			j.judge(o)
		} else {
			o.fault("%v", err)
		}
		j.end()
		if err == nil || o.attempts == tries {
			return o
		}
		_ = os.RemoveAll(dir) // the fault never happened: once more
	}
}

// enter brings the job into the phase.
func (j *job) enter() error {
	j.m.track(j)
	j.begun = time.Now()
	j.hold = longHold
	switch {
	case j.c.victim == "parent" && j.c.fault == "kill":
	case j.c.fault == "fds", j.c.victim == "parent":
		j.hold = 1500 * time.Millisecond // nothing ends it before its time
	case j.c.fault == "loss", j.c.fault == "rate":
		j.hold = 5 * time.Second
	}
	if j.c.mode == "hosts" && j.hold < 5*time.Second {
		j.hold = 5 * time.Second // several jobs are struck together
	}
	switch j.c.mode {
	case "spawn":
		return j.startSpawn()
	case "hosts":
		return j.startHosts()
	}
	return j.startHand()
}

func (j *job) args(more ...string) []string {
	join, silence := 30*time.Second, liveness
	if j.c.phase == "gather" || j.c.phase == anyMoment {
		join = j.joins()
	}
	if j.c.fault == "loss" || j.c.fault == "rate" {
		join, silence = 30*time.Second, 6*liveness // a third of the frames lost makes TCP wait for seconds
	}
	args := []string{
		"run", "-c", "2", "--topology", "hypercube", "--tree-arity", "2", "--phase-timeout", phase.String(),
		"--liveness-timeout", silence.String(), "--join-timeout", join.String(),
	}
	if j.c.victim == "agent" && j.c.mode != "hosts" {
		args = append(args, "--procs-per-agent", "6") // so that one is neither controller nor root
	}
	switch {
	case j.c.phase == anyMoment:
		args = append(args, "--rounds", "100000")
		if j.c.fault == "fds" { // failed connections alone end no job
			args = append(args, "--max-time", drawnEnd.String())
		}
		return append(args, more...)
	case j.c.fault == "fds" && j.c.victim != "parent":
		args = append(args, "--rounds", "2") // the first has what it needs open, the second opens it anew
		if j.samples() {
			args = append(args, "--hold", "clock=300ms")
		}
	}
	if j.c.phase != "gather" {
		args = append(args, "--hold", j.c.phase+"="+j.hold.String())
	} else if j.c.mode == "spawn" {
		args = append(args, "--hold", "gather=300ms")
	}
	return append(args, more...)
}

// samples says that the job holds once before the storm, so that it is seen
// what its control plane has open.
func (j *job) samples() bool {
	return j.c.fault == "fds" && j.c.victim != "parent" && slices.Index(phaseTokens, j.c.phase) > slices.Index(phaseTokens, "clock")
}

func (j *job) launch(p *proc, args []string) error {
	p.dir = filepath.Join(j.dir, p.name)
	tmp := filepath.Join(p.dir, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	line := append([]string{j.m.binary}, args...)
	switch {
	case p.host != "":
		line = append([]string{j.m.lab, "exec", p.host}, line...)
	case j.c.victim == "parent" && j.c.fault == "fds" && j.c.phase == "gather":
		line = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, parentFiles)}, line...)
	}
	p.cmd = exec.Command(line[0], line[1:]...)
	p.cmd.Dir = p.dir
	p.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	if j.lab != nil {
		p.cmd.Env = append(p.cmd.Env, j.lab.env...)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := os.Create(filepath.Join(p.dir, "stdout"))
	if err != nil {
		return err
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(p.dir, "stderr"))
	if err != nil {
		return err
	}
	defer stderr.Close()
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.pid, p.done = p.cmd.Process.Pid, make(chan struct{})
	j.mu.Lock()
	j.procs = append(j.procs, p)
	j.mu.Unlock()
	go func() {
		_ = p.cmd.Wait() // what it says is in ProcessState
		p.code, p.ended = p.cmd.ProcessState.ExitCode(), time.Now()
		close(p.done)
	}()
	return nil
}

// startHand starts the processes; number 9 comes first and is the controller.
// To stand in gather, one does not come.
func (j *job) startHand() error {
	waiting := handProcs - 2
	order := []int{control}
	for r := range handProcs {
		if r != control && (j.c.phase != "gather" || r != waiting) {
			order = append(order, r)
		}
	}
	begin := func(r int) error {
		p := &proc{name: fmt.Sprintf("p%02d", r), rank: r}
		return j.launch(p, j.args("-C", fmt.Sprintf("127.0.0.1:%d", j.port), "-P", strconv.Itoa(handProcs), "--rank", strconv.Itoa(r), "--job", filepath.Base(j.dir)))
	}
	if j.c.phase == "gather" {
		j.late = func() error { return begin(waiting) }
	}
	for i, r := range order {
		if err := begin(r); err != nil {
			return err
		}
		if i == 0 && !j.until(5*time.Second, func() bool { return listens(j.port) }) {
			return fmt.Errorf("the controller does not listen at %d after 5 s: %s", j.port, j.said())
		}
	}
	return j.inPhase()
}

func (j *job) startSpawn() error {
	p := &proc{name: "parent", rank: -1}
	if err := j.launch(p, j.args("--spawn", strconv.Itoa(j.procCount()))); err != nil {
		return err
	}
	if j.c.phase != "gather" || j.c.victim == "parent" && j.c.fault == "fds" {
		return j.inPhase()
	}
	// All wait before they knock. One is kept from it for longer: the others gather.
	if !j.until(20*time.Second, func() bool { return len(j.holding("gather")) == j.procCount() }) {
		return fmt.Errorf("%d of %d processes hold in gather: %s", len(j.holding("gather")), j.procCount(), j.said())
	}
	sister := j.child(j.procCount() - 2)
	if err := syscall.Kill(sister, syscall.SIGSTOP); err != nil {
		return err
	}
	j.late = func() error { return syscall.Kill(sister, syscall.SIGCONT) }
	time.Sleep(800 * time.Millisecond) // the hold, and time to gather; less than the liveness timeout
	return nil
}

// child is the pid of process n of a spawned job: they are started in order,
// and pids begin anew after the largest one.
func (j *job) child(n int) int {
	parent := j.procs[0].pid
	pids := childrenOf(parent)
	slices.SortFunc(pids, func(a, b int) int {
		if (a < parent) != (b < parent) {
			return cmp.Compare(b, a)
		}
		return cmp.Compare(a, b)
	})
	if n >= len(pids) {
		return 0
	}
	return pids[n]
}

// inPhase waits until everybody says that it holds, or has had time to gather.
func (j *job) inPhase() error {
	switch {
	case j.c.phase == anyMoment:
		time.Sleep(j.c.moment)
		return nil
	case j.c.phase == "gather":
		time.Sleep(800 * time.Millisecond)
		return nil
	}
	if j.samples() {
		if err := j.allHold("clock"); err != nil {
			return err
		}
		j.budget = map[int]int{}
		for _, h := range j.holding("clock") {
			open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.pid))
			if err != nil {
				return err
			}
			j.budget[h.pid] = len(open)
		}
	}
	return j.allHold(j.c.phase)
}

func (j *job) allHold(phase string) error {
	j.held = time.Time{}
	if j.until(30*time.Second, func() bool {
		n := len(j.holding(phase))
		if n > 0 && j.held.IsZero() {
			j.held = time.Now()
		}
		return n >= j.procCount()
	}) {
		return nil
	}
	return fmt.Errorf("%d of %d processes hold in %s after 30 s: %s", len(j.holding(phase)), j.procCount(), phase, j.said())
}

// stillHolds fails if the phase may be over before the fault comes.
func (j *job) stillHolds() error {
	if j.c.phase == "gather" && time.Since(j.begun) > j.joins()-time.Second {
		return fmt.Errorf("not struck: the processes came over %v, and the first gives up after %v", time.Since(j.begun).Round(time.Millisecond), j.joins())
	}
	if j.c.phase != anyMoment && j.c.phase != "gather" && time.Since(j.held) > j.hold-200*time.Millisecond {
		return fmt.Errorf("not struck: the hold of %v in %s was nearly over", j.hold, j.c.phase)
	}
	return nil
}

var holdingLine = regexp.MustCompile(`holding (?:ranks? ([0-9,-]+) )?pid (\d+) phase (\w+) `)

type holder struct{ rank, pid int } // rank -1: not yet known

// holding are those who say so.
func (j *job) holding(phase string) (list []holder) {
	for _, p := range j.procs {
		for _, m := range holdingLine.FindAllStringSubmatch(p.text("stderr"), -1) {
			h := holder{rank: -1}
			if n, err := strconv.Atoi(m[1]); err == nil {
				h.rank = n
			}
			h.pid, _ = strconv.Atoi(m[2]) // the pattern has digits
			if m[3] == phase && !slices.Contains(list, h) {
				list = append(list, h)
			}
		}
	}
	return list
}

func (j *job) said() string {
	for _, p := range j.procs {
		if t := p.lastWords(); t != "" {
			return p.name + ": " + t
		}
	}
	return "nobody said anything"
}

func (j *job) until(most time.Duration, done func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(15 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}

// end leaves nothing behind, whatever happened.
func (j *job) end() {
	j.kill()
	for _, p := range j.started() {
		<-p.done
	}
	j.m.untrack(j)
}

func (j *job) started() []*proc {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.procs)
}

func (j *job) kill() {
	for _, p := range j.started() {
		for _, child := range append(childrenOf(p.pid), j.children...) {
			if isOurs(child, j.m.binary) {
				_ = syscall.Kill(child, syscall.SIGKILL) // most are gone already
			}
		}
		if !p.over() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended just now
		}
	}
}
