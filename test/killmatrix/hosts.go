package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hosts runs the cells that need hosts.
func (m *matrix) hosts(chosen []cell, width int) {
	var list []cell
	for _, c := range chosen {
		if c.mode == "hosts" {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return
	}
	if _, err := os.Stat(m.lab); err != nil || os.Geteuid() != 0 {
		m.left = len(list)
		fmt.Printf("%d cells with hosts left out: they need root and %s\n", len(list), m.lab)
		return
	}
	if out, err := exec.Command(m.lab, "up", strconv.Itoa(hostCount)).CombinedOutput(); err != nil {
		m.left = len(list)
		fmt.Printf("%d cells with hosts left out: %v: %s\n", len(list), err, lastLine(strings.TrimSpace(string(out))))
		return
	}
	defer func() { _ = exec.Command(m.lab, "down").Run() }() // what is left is seen by the next up
	// Jobs to which the same happens stand in their phases at the same time.
	for len(list) > 0 {
		n := 1
		for n < min(len(list), width) && list[n].fault == list[0].fault && list[n].victim == list[0].victim {
			n++
		}
		m.together(list[:n])
		list = list[n:]
	}
}

// together runs cells that share their fault.
func (m *matrix) together(list []cell) {
	jobs, outcomes := make([]*job, len(list)), make([]*outcome, len(list))
	each := func(do func(j *job, o *outcome) error) {
		var wg sync.WaitGroup
		for i, j := range jobs {
			wg.Go(func() {
				if len(outcomes[i].faults) > 0 {
					return
				}
				if err := do(j, outcomes[i]); err != nil {
					outcomes[i].fault("%v", err)
					outcomes[i].procs = j.procs
				}
			})
		}
		wg.Wait()
	}
	for i, c := range list {
		dir, err := os.MkdirTemp("", "killmatrix-")
		jobs[i], outcomes[i] = &job{m: m, c: c, dir: dir, port: 26000 + i}, &outcome{dir: dir}
		if err != nil {
			outcomes[i].fault("%v", err)
		}
	}
	each(func(j *job, _ *outcome) error { return j.enter() })
	err := jobs[0].strikeHost()
	each(func(j *job, o *outcome) error {
		if err != nil {
			return err
		}
		if err := j.goOn(); err != nil {
			return err
		}
		j.judge(o)
		return nil
	})
	for _, j := range jobs {
		j.end()
	}
	out, err := exec.Command(m.lab, "heal").CombinedOutput()
	for i, c := range list {
		if err != nil {
			outcomes[i].fault("heal: %v: %s", err, lastLine(strings.TrimSpace(string(out))))
		}
		m.report(c, outcomes[i])
	}
}

// startHosts starts two processes on each of four hosts. The tree is 0 (n0) →
// 2 (n1), 4 (n2), and 2 → 6 (n3); the controller is on n2, which is never cut.
func (j *job) startHosts() error {
	begin := func(r int) error {
		host := fmt.Sprintf("n%d", r/perHost)
		p := &proc{name: fmt.Sprintf("p%02d", r), rank: r, host: host, apart: host == j.victimHost() && j.separates()}
		p.victim = host == j.victimHost() && j.c.fault == "crash"
		return j.launch(p, j.args("-C", fmt.Sprintf("n2:%d", j.port), "-P", strconv.Itoa(hostCount*perHost), "--rank", strconv.Itoa(r)))
	}
	for r := range hostCount * perHost {
		if j.c.phase == "gather" && r == 5 { // on n2
			j.late = func() error { return begin(5) }
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

func (j *job) victimHost() string {
	return map[string]string{"root": "n0", "interior": "n1", "leaf": "n3"}[strings.Fields(j.c.victim)[0]]
}

func (j *job) strikeHost() error {
	args := map[string][]string{
		"cut": {"cut", j.victimHost()}, "drop": {"drop", j.victimHost()}, "loss": {"loss", j.victimHost(), "30"},
		"rate": {"rate", j.victimHost(), "1mbit"}, "crash": {"kill", j.victimHost()},
	}[j.c.fault]
	begun := time.Now()
	if out, err := exec.Command(j.m.lab, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s after %v: %w: %s", strings.Join(args, " "), time.Since(begun), err, lastLine(strings.TrimSpace(string(out))))
	}
	return nil
}
