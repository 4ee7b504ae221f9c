package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	handProcs  = 18 // more than 16: there is an agent
	spawnProcs = 7
	hostCount  = 4
	perHost    = 2

	liveness  = 1500 * time.Millisecond
	joinLimit = 5 * time.Second // of jobs that stand in gather on one host; others may take their time
	phase     = 5 * time.Second
	// What a job may take after the fault: to miss the lost, the running phase, to find the root, orphans, summaries,
	// margin, and the grace that --spawn gives stopped children.
	bound = liveness + time.Second + phase + 8*time.Second + 3*time.Second + 2*time.Second + 2*time.Second + 6*time.Second
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

// job is one running job.
type job struct {
	m     *matrix
	c     cell
	dir   string
	port  int
	procs []*proc
	hold  time.Duration
	late  func() error // starts the process that keeps the others gathering
}

// outcome is how a cell went.
type outcome struct {
	dir     string
	took    time.Duration
	procs   []*proc
	culprit string
	faults  []string
}

func (o *outcome) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

// codes are the exit codes of the survivors.
func (o *outcome) codes() string {
	var list []string
	for _, p := range o.procs {
		if s := strconv.Itoa(p.code); !p.victim && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return strings.Join(list, ",")
}

// documents that were written, by whom.
func (o *outcome) documents() string {
	var list []string
	for _, p := range o.procs {
		for _, d := range documentsIn(p.dir) {
			kind := "whole"
			if strings.HasSuffix(d, ".partial.json") {
				kind = "partial"
			}
			list = append(list, p.name+":"+kind)
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}

func documentsIn(dir string) []string {
	list, _ := filepath.Glob(filepath.Join(dir, "*.json")) // the pattern is well formed
	return list
}

// one runs a cell on this machine.
func (m *matrix) one(c cell, number int) *outcome {
	dir, err := os.MkdirTemp("", "killmatrix-")
	o := &outcome{dir: dir}
	if err != nil {
		o.fault("%v", err)
		return o
	}
	j := &job{m: m, c: c, dir: dir, port: 21000 + number%4000}
	defer j.end()
	if err = j.enter(); err == nil {
		err = j.strike()
	}
	if err == nil {
		err = j.goOn()
	}
	if err != nil {
		o.fault("%v", err)
		o.procs = j.procs
		return o
	}
	j.judge(o)
	return o
}

// enter brings the job into the phase.
func (j *job) enter() error {
	j.hold = 12 * time.Second // a loss ends it
	if j.c.fault == "fds" || j.c.fault == "loss" || j.c.fault == "rate" || j.c.phase == "seal" || j.c.phase == "clock" {
		j.hold = 1500 * time.Millisecond
	}
	switch j.c.mode {
	case "spawn":
		return j.startSpawn()
	case "hosts":
		return j.startHosts()
	}
	return j.startHand()
}

// goOn lets a job gather after the fault. Who is dead is missing; who lives in
// a bad way shows only when the job could go on.
func (j *job) goOn() error {
	if j.late == nil || j.c.fault == "kill" || j.c.fault == "crash" {
		return nil
	}
	return j.late()
}

func (j *job) args(more ...string) []string {
	join, silence := 6*joinLimit, liveness
	if j.c.phase == "gather" && j.c.mode != "hosts" {
		join = joinLimit
	}
	if j.c.fault == "loss" || j.c.fault == "rate" {
		silence *= 6 // a third of the packets lost makes TCP wait for seconds
	}
	args := []string{
		"run", "-c", "2", "--topology", "hypercube", "--tree-arity", "2", "--phase-timeout", phase.String(),
		"--liveness-timeout", silence.String(), "--join-timeout", join.String(),
	}
	if j.c.phase != "gather" {
		args = append(args, "--hold", j.c.phase+"="+j.hold.String())
	}
	return append(args, more...)
}

func (j *job) launch(p *proc, args []string) error {
	p.dir = filepath.Join(j.dir, p.name)
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		return err
	}
	line := append([]string{j.m.binary}, args...)
	if p.host != "" {
		line = append([]string{j.m.lab, "exec", p.host}, line...)
	}
	p.cmd = exec.Command(line[0], line[1:]...)
	p.cmd.Dir = p.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, f := range []struct {
		name string
		to   func(*os.File)
	}{{"stdout", func(f *os.File) { p.cmd.Stdout = f }}, {"stderr", func(f *os.File) { p.cmd.Stderr = f }}} {
		file, err := os.Create(filepath.Join(p.dir, f.name))
		if err != nil {
			return err
		}
		defer file.Close()
		f.to(file)
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.pid, p.done = p.cmd.Process.Pid, make(chan struct{})
	j.procs = append(j.procs, p)
	go func() {
		_ = p.cmd.Wait() // what it says is in ProcessState
		p.code, p.ended = p.cmd.ProcessState.ExitCode(), time.Now()
		close(p.done)
	}()
	return nil
}

// startHand starts 18 processes; number 9 comes first and is the controller.
// To stand in gather, the last one does not come.
func (j *job) startHand() error {
	order := []int{9}
	for r := range handProcs {
		if r != 9 && (j.c.phase != "gather" || r != 10) {
			order = append(order, r)
		}
	}
	begin := func(r int) error {
		p := &proc{name: fmt.Sprintf("p%02d", r), rank: r}
		return j.launch(p, j.args("-C", fmt.Sprintf("127.0.0.1:%d", j.port), "-P", strconv.Itoa(handProcs), "--rank", strconv.Itoa(r), "--job", filepath.Base(j.dir)))
	}
	if j.c.phase == "gather" {
		j.late = func() error { return begin(10) }
	}
	for i, r := range order {
		if err := begin(r); err != nil {
			return err
		}
		if i == 0 {
			j.until(3*time.Second, func() bool { return listens(j.port) })
		}
	}
	return j.inPhase()
}

func (j *job) startSpawn() error {
	p := &proc{name: "parent", rank: -1}
	if err := j.launch(p, j.args("--spawn", strconv.Itoa(spawnProcs))); err != nil {
		return err
	}
	if j.c.phase == "gather" {
		j.until(2*time.Second, func() bool { return len(childrenOf(p.pid)) == spawnProcs })
		return nil
	}
	return j.inPhase()
}

// inPhase waits until everybody says that it holds, or has had time to gather.
func (j *job) inPhase() error {
	if j.c.phase == "gather" {
		time.Sleep(800 * time.Millisecond)
		return nil
	}
	want := len(j.procs)
	if j.c.mode == "spawn" {
		want = spawnProcs
	}
	if !j.until(30*time.Second, func() bool { return len(j.holding()) >= want }) {
		return fmt.Errorf("%d of %d processes hold in %s after 30 s: %s", len(j.holding()), want, j.c.phase, j.said())
	}
	return nil
}

var holdingLine = regexp.MustCompile(`holding (?:ranks? ([0-9,-]+) )?pid (\d+) `)

// holding is rank → pid of those who say so.
func (j *job) holding() map[int]int {
	found := map[int]int{}
	for _, p := range j.procs {
		for _, m := range holdingLine.FindAllStringSubmatch(p.text("stderr"), -1) {
			r, err1 := strconv.Atoi(m[1])
			pid, err2 := strconv.Atoi(m[2])
			if err1 == nil && err2 == nil {
				found[r] = pid
			}
		}
	}
	return found
}

func (j *job) said() string {
	for _, p := range j.procs {
		if t := strings.TrimSpace(p.text("stderr")); t != "" {
			return p.name + ": " + lastLine(t)
		}
	}
	return "nobody said anything"
}

func lastLine(t string) string { return t[strings.LastIndexByte(t, '\n')+1:] }

func (j *job) until(most time.Duration, done func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}

// number of the process that a name of the matrix means, where it is not found out.
var number = map[string]int{"root": 0, "interior": 1, "leaf": spawnProcs - 1, "controller": 9}

// victimPID finds whom the cell means.
func (j *job) victimPID() (int, error) {
	switch {
	case j.c.victim == "parent":
		return j.procs[0].pid, nil
	case j.c.victim == "agent":
		for _, p := range j.procs {
			if ownsHostSocket(p.pid) {
				return p.pid, nil
			}
		}
		return 0, fmt.Errorf("no process of the job is the agent")
	case j.c.mode == "spawn" && j.c.phase == "gather":
		pids := childrenOf(j.procs[0].pid)
		slices.Sort(pids)
		if n := number[j.c.victim]; n < len(pids) {
			return pids[n], nil
		}
		return 0, fmt.Errorf("only %d children", len(pids))
	case j.c.mode == "spawn":
		return j.holding()[number[j.c.victim]], nil
	}
	n := number[j.c.victim]
	if j.c.victim == "leaf" {
		n = handProcs - 1
	}
	for _, p := range j.procs {
		if p.rank == n {
			return p.pid, nil
		}
	}
	return 0, fmt.Errorf("process %d was not started", n)
}

// strike does it.
func (j *job) strike() error {
	pid, err := j.victimPID()
	if err == nil && pid <= 0 {
		err = fmt.Errorf("the victim has no pid")
	}
	if err != nil {
		return err
	}
	for _, p := range j.procs {
		p.victim = p.pid == pid && j.c.fault != "fds"
	}
	j.c.victim += fmt.Sprintf(" %d", pid)
	switch j.c.fault {
	case "kill":
		return syscall.Kill(pid, syscall.SIGKILL)
	case "stop":
		return syscall.Kill(pid, syscall.SIGSTOP)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		return err
	}
	old.Cur = uint64(len(open))
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil)
}

// struck is the pid of the victim, 0 if it is a host.
func (j *job) struck() int {
	_, text, _ := strings.Cut(j.c.victim, " ")
	pid, _ := strconv.Atoi(text) // 0 if there is none
	return pid
}

// end leaves nothing behind, whatever happened.
func (j *job) end() {
	for _, p := range j.procs {
		for _, child := range append(childrenOf(p.pid), p.pid) {
			_ = syscall.Kill(child, syscall.SIGKILL) // most are gone already
		}
	}
	for _, p := range j.procs {
		<-p.done
	}
}

func listens(port int) bool {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err == nil && bytes.Contains(b, fmt.Appendf(nil, ":%04X ", port)) {
			return true
		}
	}
	return false
}

// ownsHostSocket says whether a process listens at the job's abstract socket.
func ownsHostSocket(pid int) bool {
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false
	}
	inodes := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) >= 8 && strings.HasPrefix(f[7], "@rankstorm") && f[3] == "00010000" { // it accepts connections
			inodes["socket:["+f[6]+"]"] = true
		}
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); err == nil && inodes[to] {
			return true
		}
	}
	return false
}

func childrenOf(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well formed
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
