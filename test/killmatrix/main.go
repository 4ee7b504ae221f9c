// Command killmatrix does to running jobs what happens to jobs: it kills, stops
// and starves one process, or cuts, drops, degrades or slows one host, in every
// phase, and holds how each job ends against what DESIGN promises: in bounded
// time, the same exit code at all survivors, the culprit named, one document per
// side and none elsewhere, nothing left behind.
//
//	go run ./test/killmatrix [-bin FILE] [-quick] [-run REGEXP] [-j N] [-list]
//
// Cells with hosts need root and test/lab; without they are left out, which is
// said. One line is printed per cell.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

// cell is one job to which one thing happens.
type cell struct {
	mode   string // hand, spawn or hosts
	fault  string
	victim string
	phase  string
}

func (c cell) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", c.mode, c.fault, c.victim, c.phase)
}

var phaseTokens = []string{
	"gather", "seal", "clock", "create", "bind", "listen", "publish", "resolve", "qp", "connect", "probe", "disconnect", "destroy",
}

// cells is the whole matrix.
func cells() (all []cell) {
	add := func(mode string, faults, victims []string) {
		for _, f := range faults {
			for _, v := range victims {
				for _, p := range phaseTokens {
					if v == "agent" && p == "gather" && f == "fds" {
						continue // an agent without descriptors is a controller's matter: hand/fds/controller
					}
					all = append(all, cell{mode, f, v, p})
				}
			}
		}
	}
	add("hand", []string{"kill", "stop", "fds"}, []string{"controller", "root", "interior", "leaf", "agent"})
	add("spawn", []string{"kill", "stop", "fds"}, []string{"root", "interior", "leaf", "parent"})
	add("hosts", []string{"cut", "drop", "loss", "rate", "crash"}, []string{"root", "interior", "leaf"})
	return all
}

// quick is one cell of each kind that a change is likely to break.
var quick = []string{
	"hand/kill/controller/gather", "hand/kill/root/connect", "hand/kill/interior/probe", "hand/stop/root/connect", "hand/stop/leaf/publish",
	"hand/fds/interior/connect", "hand/kill/agent/seal", "spawn/kill/root/create", "spawn/kill/parent/connect", "spawn/stop/interior/disconnect",
	"spawn/kill/leaf/clock", "hosts/drop/root/connect", "hosts/cut/interior/probe",
}

func main() {
	binary := flag.String("bin", "bin/rankstorm", "the program")
	isQuick := flag.Bool("quick", false, "a dozen cells only")
	pattern := flag.String("run", "", "only cells that match")
	width := flag.Int("j", 4, "jobs at a time (of those with hosts only such that share their fault)")
	list := flag.Bool("list", false, "print the names of the cells and end")
	lab := flag.String("lab", "test/lab/hosts", "the script that makes hosts")
	flag.Parse()
	os.Exit(run(*binary, *lab, *pattern, *isQuick, *list, *width))
}

func run(binary, lab, pattern string, isQuick, list bool, width int) int {
	match, err := regexp.Compile(pattern)
	if err == nil {
		binary, err = filepath.Abs(binary)
	}
	if err == nil {
		lab, err = filepath.Abs(lab)
	}
	if err == nil && !list {
		_, err = os.Stat(binary)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "killmatrix: %v\n", err)
		return 2
	}
	chosen := slices.DeleteFunc(cells(), func(c cell) bool {
		return isQuick && !slices.Contains(quick, c.String()) || !match.MatchString(c.String())
	})
	if list {
		for _, c := range chosen {
			fmt.Println(c)
		}
		return 0
	}
	m := &matrix{binary: binary, lab: lab, begun: time.Now()}
	fmt.Println("result  cell                                      end     exit  culprit                        documents")
	slots := make(chan struct{}, max(width, 1))
	var wg sync.WaitGroup
	for i, c := range chosen {
		if c.mode == "hosts" {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			m.report(c, m.one(c, i))
		})
	}
	wg.Wait()
	m.hosts(chosen, max(width, 1))
	fmt.Printf("%d of %d cells as promised, %d left out, %v\n", m.good, m.good+m.bad, m.left, time.Since(m.begun).Round(time.Second))
	if m.bad > 0 {
		return 1
	}
	return 0
}

// matrix counts and prints.
type matrix struct {
	binary, lab string
	begun       time.Time
	mu          sync.Mutex
	good, bad   int
	left        int
}

func (m *matrix) report(c cell, o *outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	word := "ok"
	if len(o.faults) > 0 {
		word = "FAILED"
		m.bad++
	} else {
		m.good++
	}
	fmt.Printf("%-7s %-40s %6.2fs  %-5s %-30s %s\n", word, c, o.took.Seconds(), o.codes(), o.culprit, o.documents())
	for _, f := range o.faults {
		fmt.Printf("        %s\n", f)
	}
	if len(o.faults) > 0 {
		fmt.Printf("        files in %s\n", o.dir)
	} else {
		_ = os.RemoveAll(o.dir) // a temporary folder
	}
}
