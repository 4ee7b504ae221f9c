package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// line of the record.
type line struct {
	Cell      string   `json:"cell"`
	Mode      string   `json:"mode"`
	Fault     string   `json:"fault"`
	Victim    string   `json:"victim"`
	Phase     string   `json:"phase"`
	Seed      uint64   `json:"seed,omitempty"`
	Promise   string   `json:"promise"`
	Kept      bool     `json:"kept"`
	Faults    []string `json:"faults"`
	TookNS    int64    `json:"took_ns"` // from the fault to the end of the last survivor
	Trace     string   `json:"trace"`   // what shows that the fault was there
	Attempts  int      `json:"attempts"`
	Sides     []sideIn `json:"sides"`
	Leftovers []string `json:"leftovers"`
}

type sideIn struct {
	Apart     bool     `json:"apart"`
	Codes     []int    `json:"codes"`
	Culprit   culprit  `json:"culprit"`
	Documents []string `json:"documents"` // process:kind
}

func (s *side) documents() (list []string) {
	for _, d := range s.docs {
		list = append(list, d.By.name+":"+d.kind())
	}
	return list
}

func (o *outcome) line() line {
	l := line{
		Cell: o.c.String(), Mode: o.c.mode, Fault: o.c.fault, Victim: o.c.victim, Phase: o.c.phase, Seed: o.c.seed,
		Promise: o.promise.String(), Kept: len(o.faults) == 0, Faults: o.faults, TookNS: o.took.Nanoseconds(), Trace: o.traces,
		Attempts: o.attempts, Leftovers: o.leftovers,
	}
	for _, s := range o.sides {
		l.Sides = append(l.Sides, sideIn{s.apart, s.codes, s.culprit, s.documents()})
	}
	return l
}

// report prints a cell, all sides of it.
func (m *matrix) report(o *outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = append(m.done, o)
	word := "ok"
	if len(o.faults) > 0 {
		word = "FAILED"
	}
	var codes, culprits, docs []string
	for _, s := range o.sides {
		codes = append(codes, strings.Trim(fmt.Sprint(s.codes), "[]"))
		culprits = append(culprits, s.culprit.String())
		docs = append(docs, strings.Join(s.documents(), " "))
	}
	column := func(list []string) string {
		if text := strings.Join(list, " | "); strings.Trim(text, " |") != "" {
			return text
		}
		return "none"
	}
	fmt.Printf("%-7s %-36s %6.2fs %-5s %-34s %-22s %s\n", word, o.c, o.took.Seconds(), column(codes), column(culprits), column(docs), o.traces)
	if len(o.faults) > 0 {
		fmt.Printf("        promised: %s\n", &o.promise)
		for _, f := range o.faults {
			fmt.Printf("        %s\n", f)
		}
		if o.c.phase == anyMoment {
			fmt.Printf("        again: -random 1 -seed %d\n", o.c.seed)
		}
		fmt.Printf("        files in %s\n", o.dir)
	} else {
		_ = os.RemoveAll(o.dir) // a temporary folder
	}
	if m.record != nil {
		if err := json.NewEncoder(m.record).Encode(o.line()); err != nil {
			m.residue = append(m.residue, err.Error())
		}
	}
}

// summary prints fault × victim, kept of all, and is the exit code.
func (m *matrix) summary() int {
	kept, slowest := 0, time.Duration(0)
	good, all := map[string]int{}, map[string]int{}
	var rows, columns []string
	for _, o := range m.done {
		row, column := o.c.mode+" "+o.c.fault, o.c.victim
		for list, name := range map[*[]string]string{&rows: row, &columns: column} {
			if !slices.Contains(*list, name) {
				*list = append(*list, name)
			}
		}
		all[row+column]++
		if len(o.faults) == 0 {
			good[row+column]++
			kept++
		}
		slowest = max(slowest, o.took)
	}
	slices.Sort(rows)
	slices.SortFunc(columns, func(a, b string) int { return slices.Index(victims, a) - slices.Index(victims, b) })
	fmt.Printf("\nas promised of all, over all phases\n%-12s", "")
	for _, c := range columns {
		fmt.Printf(" %11s", c)
	}
	for _, r := range rows {
		fmt.Printf("\n%-12s", r)
		for _, c := range columns {
			text := "–"
			if n := all[r+c]; n > 0 {
				text = fmt.Sprintf("%d/%d", good[r+c], n)
			}
			fmt.Printf(" %11s", text)
		}
	}
	left := "nothing left: no process, listener, abstract socket, /dev/shm entry, temporary file, namespace"
	if len(m.residue) > 0 {
		left = "LEFT: " + strings.Join(m.residue, "; ")
	}
	fmt.Printf("\n\n%s\n%d of %d cells as promised, %d left out, longest end %.2f s after the fault, %v in all\n",
		left, kept, len(m.done), len(m.left), slowest.Seconds(), time.Since(m.begun).Round(time.Second))
	if m.record != nil {
		if err := m.record.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "killmatrix: %v\n", err)
			return 1
		}
	}
	if kept < len(m.done) || len(m.residue) > 0 {
		return 1
	}
	return 0
}
