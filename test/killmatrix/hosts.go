package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	labPrefix      = "k" // of the names of our hosts: ka0, kb3 …
	controllerHost = 2   // unless the controller is the victim
	mostAtOnce     = 104 // processes of jobs that share a fault
)

// laboratory is one group of hosts.
type laboratory struct {
	script string
	letter string
	env    []string
}

func newLaboratory(script string, i int) *laboratory {
	l := &laboratory{script: script, letter: string(rune('a' + i))}
	l.env = []string{
		"RANKSTORM_LAB_DIR=" + filepath.Join(os.TempDir(), "rankstorm-killmatrix-"+l.letter),
		"RANKSTORM_LAB_PREFIX=" + labPrefix + l.letter,
		fmt.Sprintf("RANKSTORM_LAB_NET=10.98.%d", i),
	}
	return l
}

func (l *laboratory) host(i int) string { return labPrefix + l.letter + strconv.Itoa(i) }

func (l *laboratory) do(args ...string) (string, error) {
	cmd := exec.Command(l.script, args...)
	cmd.Env = append(os.Environ(), l.env...)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("hosts %s: %w: %s", strings.Join(args, " "), err, lastLine(text))
	}
	return text, nil
}

// overHosts runs the cells that need hosts, those with the same fault and victim together.
func (m *matrix) overHosts(chosen []cell) {
	var list []cell
	for _, c := range chosen {
		if c.mode == "hosts" {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return
	}
	leave := func(cells []cell, why string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.left = append(m.left, cells...)
		fmt.Printf("%d cells with hosts left out: %s\n", len(cells), why)
	}
	if _, err := os.Stat(m.lab); err != nil || os.Geteuid() != 0 {
		leave(list, "they need root and "+m.lab)
		return
	}
	var batches [][]cell
	for len(list) > 0 {
		most := mostAtOnce / (&job{c: list[0]}).procCount()
		n := 1
		for n < min(len(list), most) && !list[0].alone() && !list[n].alone() && list[n].fault == list[0].fault && list[n].victim == list[0].victim {
			n++
		}
		batches = append(batches, list[:n])
		list = list[n:]
	}
	queue := make(chan []cell, len(batches))
	for _, b := range batches {
		queue <- b
	}
	close(queue)
	var wg sync.WaitGroup
	for i := range min(m.labs, len(batches)) {
		wg.Go(func() {
			l := newLaboratory(m.lab, i)
			m.mu.Lock()
			m.up = append(m.up, l)
			m.mu.Unlock()
			if _, err := l.do("up", strconv.Itoa(hostCount)); err != nil {
				for b := range queue {
					leave(b, err.Error())
				}
				return
			}
			for b := range queue {
				for _, c := range m.together(l, b, 0) {
					m.untilStruck(l, c)
				}
			}
			m.leftOnHosts(l)
			if _, err := l.do("down"); err != nil {
				m.mu.Lock()
				m.residue = append(m.residue, err.Error())
				m.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// untilStruck tries again a cell whose job was not in its phase when the fault came.
func (m *matrix) untilStruck(l *laboratory, c cell) {
	for try := 1; try < tries; try++ {
		if len(m.together(l, []cell{c}, try)) == 0 {
			return
		}
	}
}

// alone says that the moment of the fault cannot be shared with other jobs.
func (c cell) alone() bool { return c.phase == anyMoment || c.phase == "gather" }

// together runs cells that share their fault: their jobs stand in their phases
// when it comes. Those that did not are given back, unless it is their last try.
func (m *matrix) together(l *laboratory, list []cell, try int) (again []cell) {
	jobs, outcomes := make([]*job, len(list)), make([]*outcome, len(list))
	ready := make([]error, len(list))
	var wg sync.WaitGroup
	for i, c := range list {
		outcomes[i] = &outcome{c: c, attempts: try + 1}
		jobs[i] = &job{m: m, c: c, lab: l, port: 26000 + i, again: try}
		wg.Go(func() {
			jobs[i].dir, ready[i] = os.MkdirTemp("", "killmatrix-")
			outcomes[i].dir = jobs[i].dir
			if ready[i] == nil {
				ready[i] = jobs[i].enter()
			}
		})
	}
	wg.Wait()
	for i, j := range jobs {
		if ready[i] == nil {
			ready[i] = j.findHost()
		}
		if ready[i] == nil {
			ready[i] = j.stillHolds()
		}
		if ready[i] != nil { // it must not be counted among those that were struck
			j.end()
		}
	}
	var err error
	if slices.Contains(ready, nil) {
		err = jobs[0].strikeHost()
	}
	struck := time.Now()
	for i, j := range jobs {
		j.struck, j.traces = struck, "host "+j.victim.host+" struck"
		wg.Go(func() {
			if ready[i] == nil {
				ready[i] = err
			}
			if ready[i] == nil && j.late != nil && j.c.fault != "crash" {
				ready[i] = j.late()
			}
			if ready[i] == nil {
				j.judge(outcomes[i])
			}
		})
	}
	wg.Wait()
	if _, err := l.do("heal"); err != nil {
		outcomes[0].fault("%v", err)
	}
	for i, j := range jobs {
		j.end()
		switch {
		case ready[i] != nil && try+1 < tries:
			_ = os.RemoveAll(j.dir) // the fault never happened: once more
			again = append(again, list[i])
			continue
		case ready[i] != nil:
			outcomes[i].fault("%v", ready[i])
		}
		m.report(outcomes[i])
	}
	return again
}

// startHosts starts the processes of a job on four hosts. With two on each the
// tree is 0 (host 0) → 2 (host 1), 4 (host 2), and 2 → 6 (host 3); the
// controller is on host 2 unless it is the victim.
func (j *job) startHosts() error {
	per, where, waiting := j.onEachHost(), controllerHost, 5
	switch j.c.victim {
	case "controller":
		where, waiting = 3, 3
	case "agent":
		waiting = 11 // on the controller's host
	}
	begin := func(r int) error {
		host := j.lab.host(r / per)
		p := &proc{name: fmt.Sprintf("p%02d", r), rank: r, host: host}
		ours := r/per == j.victimHost()
		p.apart, p.victim = ours && j.separates(), ours && j.c.fault == "crash"
		return j.launch(p, j.args("-C", fmt.Sprintf("%s:%d", j.lab.host(where), j.port), "-P", strconv.Itoa(j.procCount()), "--rank", strconv.Itoa(r)))
	}
	for r := range j.procCount() {
		if j.c.phase == "gather" && r == waiting {
			j.late = func() error { return begin(r) }
			continue
		}
		if err := begin(r); err != nil {
			return err
		}
	}
	return j.inPhase()
}

// separates says that the victim's processes go on, by themselves.
func (j *job) separates() bool { return j.c.fault == "cut" || j.c.fault == "drop" }

func (j *job) victimHost() int {
	if j.c.phase == anyMoment {
		return j.c.number / perHost
	}
	return map[string]int{"root": 0, "interior": 1, "leaf": 3, "controller": 3, "agent": 3}[j.c.victim]
}

func (j *job) findHost() error {
	j.victim = who{proc: -1, host: j.lab.host(j.victimHost())}
	agents := 0
	for _, p := range j.procs {
		if p.host == j.victim.host {
			j.victim.onHost = append(j.victim.onHost, p.rank)
			agents += len(hostSocketsOf(p.pid))
		}
	}
	if j.c.victim == "agent" && agents == 0 {
		return fmt.Errorf("no process on %s is an agent", j.victim.host)
	}
	return nil
}

func (j *job) strikeHost() error {
	host := j.victim.host
	_, err := j.lab.do(map[string][]string{
		"cut": {"cut", host}, "drop": {"drop", host}, "loss": {"loss", host, "30"}, "rate": {"rate", host, "200kbit", "1600"}, "crash": {"kill", host},
	}[j.c.fault]...)
	return err
}

// hits are the frames that the loss or rate of the victim's host has lost or delayed.
func (j *job) hits() (int, error) {
	text, err := j.lab.do("hits", j.victim.host)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// leftOnHosts looks for what the jobs left on hosts on which nothing runs any more.
func (m *matrix) leftOnHosts(l *laboratory) {
	for i := range hostCount {
		host := l.host(i)
		pids, err := l.do("pids", host)
		if err != nil {
			pids = err.Error()
		}
		var left []string
		for pid := range strings.FieldsSeq(pids) {
			left = append(left, "process "+pid+" on "+host)
		}
		keeper, err := os.ReadFile(filepath.Join(strings.TrimPrefix(l.env[0], "RANKSTORM_LAB_DIR="), "hosts", host, "keeper"))
		if err != nil {
			left = append(left, err.Error())
		}
		pid := strings.TrimSpace(string(keeper))
		for _, name := range abstractSockets(pid) {
			left = append(left, "abstract socket "+name+" on "+host)
		}
		shm, _ := filepath.Glob("/proc/" + pid + "/root/dev/shm/*") // the pattern is well formed
		for _, file := range shm {
			left = append(left, "/dev/shm/"+filepath.Base(file)+" on "+host)
		}
		m.mu.Lock()
		m.residue = append(m.residue, left...)
		m.mu.Unlock()
	}
}
