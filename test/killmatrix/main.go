// Command killmatrix does to running jobs what happens to jobs: it kills, stops
// and starves one process, or cuts, drops, degrades or slows one host, in every
// phase, and holds how each job ends against what DESIGN promises: in bounded
// time, the same exit code at all survivors, the culprit named, one document per
// side and none elsewhere, nothing left behind.
//
//	go run ./test/killmatrix [-bin FILE] [-quick] [-run REGEXP] [-j N] [-labs N] [-json FILE] [-list]
//	go run ./test/killmatrix -random N -seed S
//
// A fault that left no trace fails its cell: every cell shows that it bit, or
// its promise says why the job may not notice. Cells with hosts need root and
// test/lab; without they are left out, which is said.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	m := &matrix{begun: time.Now(), running: map[*job]bool{}}
	flag.StringVar(&m.binary, "bin", "bin/rankstorm", "the program")
	flag.StringVar(&m.lab, "lab", "test/lab/hosts", "the script that makes hosts")
	flag.IntVar(&m.width, "j", 6, "jobs at a time on this machine itself")
	flag.IntVar(&m.labs, "labs", 2, "groups of hosts side by side")
	isQuick := flag.Bool("quick", false, "a dozen cells only")
	pattern := flag.String("run", "", "only cells that match")
	record := flag.String("json", "", "write one JSON line per cell to this file")
	list := flag.Bool("list", false, "print the names of the cells and end")
	random := flag.Int("random", 0, "instead of the matrix N jobs whose victim, fault and moment are drawn")
	seed := flag.Uint64("seed", 1, "of the first of them; the next has the next number")
	flag.Parse()
	match, err := regexp.Compile(*pattern)
	if err == nil {
		err = m.prepare(*record, *list)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "killmatrix: %v\n", err)
		os.Exit(2)
	}
	chosen := slices.DeleteFunc(cells(), func(c cell) bool {
		return *isQuick && !slices.Contains(quick, c.String()) || !match.MatchString(c.String())
	})
	if *random > 0 {
		chosen = randomCells(*random, *seed)
	}
	if *list {
		for _, c := range chosen {
			fmt.Println(c)
		}
		return
	}
	go m.interrupted()
	os.Exit(m.run(chosen, *random == 0))
}

// matrix runs cells, counts and prints.
type matrix struct {
	binary, lab string
	width, labs int
	begun       time.Time
	record      *os.File // nil: none wanted
	mu          sync.Mutex
	done        []*outcome
	running     map[*job]bool
	up          []*laboratory
	left        []cell // out, with the reason printed
	residue     []string
}

func (m *matrix) prepare(record string, list bool) (err error) {
	if m.width < 1 || m.labs < 1 {
		return errors.New("-j and -labs: at least 1")
	}
	if m.binary, err = filepath.Abs(m.binary); err != nil {
		return err
	}
	if m.lab, err = filepath.Abs(m.lab); err != nil || list {
		return err
	}
	if _, err = os.Stat(m.binary); err != nil {
		return err
	}
	// Children of a killed spawn parent become ours, so that their exit codes are seen.
	if err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if record != "" {
		m.record, err = os.Create(record)
	}
	return err
}

// interrupted ends all jobs and hosts, so that nothing stopped stays behind.
func (m *matrix) interrupted() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	<-signals
	m.mu.Lock() // for good: nobody reports any more
	for j := range m.running {
		j.kill()
	}
	for _, l := range m.up {
		_, _ = l.do("down") // what is left is seen by the next up
	}
	fmt.Println("interrupted: all jobs and hosts ended")
	os.Exit(130)
}

// track a job while it may have processes.
func (m *matrix) track(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[j] = true
}

func (m *matrix) untrack(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, j)
}

// run is the exit code: 1 if a cell is not as promised, or something is left.
func (m *matrix) run(chosen []cell, isMatrix bool) int {
	if isMatrix {
		printLegend(len(chosen))
	}
	before := sharedThings()
	fmt.Printf("%-7s %-36s %7s %-5s %-34s %-22s %s\n", "result", "cell", "end", "exit", "culprit named", "documents", "the fault")
	var wg sync.WaitGroup
	wg.Go(func() { m.overHosts(chosen) })
	slots := make(chan struct{}, m.width)
	for i, c := range chosen {
		if c.mode == "hosts" {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			m.report(m.one(c, i))
		})
	}
	wg.Wait()
	for _, thing := range sharedThings() {
		if !slices.Contains(before, thing) {
			m.residue = append(m.residue, thing)
		}
	}
	return m.summary()
}
