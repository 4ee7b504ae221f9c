package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// culprit is who an error line and the document name. Numbers are -1 if they are not told.
type culprit struct {
	Rank  int    `json:"rank"`
	Proc  int    `json:"proc"`
	Host  string `json:"host"`
	Phase string `json:"phase"`
	Line  string `json:"line"` // the first error line that names the victim
}

func (c culprit) String() string {
	var parts []string
	if c.Rank >= 0 {
		parts = append(parts, fmt.Sprintf("rank %d", c.Rank))
	}
	if c.Proc >= 0 && c.Proc != c.Rank {
		parts = append(parts, fmt.Sprintf("process %d", c.Proc))
	}
	if c.Host != "" {
		parts = append(parts, "("+c.Host+")")
	}
	if c.Phase != "" {
		parts = append(parts, "in "+c.Phase)
	}
	if len(parts) == 0 && c.Line != "" {
		return "in the error line"
	}
	return strings.Join(parts, " ")
}

// judgeCulprit wants the victim named by an error line of a survivor, and by
// the document if there is one.
func (j *job) judgeCulprit(o *outcome, s *side) {
	s.culprit = culprit{Rank: -1, Proc: -1}
	clean := slices.Equal(s.codes, []int{0})
	for _, p := range s.procs {
		if line := j.naming(p, s); line != "" && s.culprit.Line == "" && !clean {
			s.culprit.Line = line
		}
	}
	if len(s.docs) > 0 {
		if e := s.docs[0].Exit.Error; e != nil {
			s.culprit.Host, s.culprit.Phase = e.Host, e.Phase
			if len(e.Ranks) > 0 {
				s.culprit.Rank = e.Ranks[0]
			}
			if e.Proc != nil {
				s.culprit.Proc = *e.Proc
			}
		}
	}
	if clean || !o.promise.named && j.victim.host == "" {
		return
	}
	if j.c.fault == "fds" && len(s.docs) > 0 {
		j.judgeStarved(o, s)
		return
	}
	if mild := o.promise.counted && len(s.docs) > 0; s.culprit.Line == "" && !mild {
		o.fault("no error line%s names the victim (%s)", sideText(s), j.victimText())
	}
	if len(s.docs) == 0 || j.c.victim == "parent" {
		return
	}
	if why := j.disagrees(s); why != "" {
		o.fault("the document%s %s; the victim is %s", sideText(s), why, j.victimText())
	}
}

func sideText(s *side) string {
	if s.apart {
		return " of the victim's side"
	}
	return ""
}

func (j *job) victimText() string {
	switch {
	case j.victim.host != "":
		return "host " + j.victim.host
	case j.victim.proc < 0:
		return fmt.Sprintf("the parent, pid %d", j.victim.pid)
	}
	return fmt.Sprintf("process %d, pid %d", j.victim.proc, j.victim.pid)
}

// disagrees says what is wrong in the document's first cause.
func (j *job) disagrees(s *side) string {
	d, c := s.docs[0], s.culprit
	switch {
	case j.c.fault == "loss" || j.c.fault == "rate":
		on := func(n int) bool { return slices.Contains(j.victim.onHost, n) }
		switch {
		case j.c.victim == "root", c.Host == j.victim.host, on(c.Proc), on(d.procOf(c.Rank)), d.onlyWith(j.victim.onHost):
			return "" // whom the root hears badly is late, whichever end loses
		case regexp.MustCompile(`\(` + j.victim.host + `\)`).MatchString(d.Exit.Text):
			return "" // the other end of the link that was lost
		}
		return fmt.Sprintf("names %s", c)
	case j.victim.host != "" && s.apart:
		if c.Host == "" || c.Host == j.victim.host {
			return fmt.Sprintf("names %s", c)
		}
	case j.victim.host != "":
		if c.Host != j.victim.host {
			return fmt.Sprintf("names %s", c)
		}
		for _, p := range d.lost() {
			if !slices.Contains(j.victim.onHost, p) {
				return fmt.Sprintf("counts process %d among the lost", p)
			}
		}
	case c.Proc != j.victim.proc && c.Rank != j.victim.proc: // a rank per process: same number
		return fmt.Sprintf("names %s", c)
	}
	before := j.c.phase == "seal" || j.c.phase == "clock"
	switch {
	case j.c.phase == "gather" || j.c.phase == anyMoment || c.Phase == j.c.phase:
		return ""
	case before && c.Phase == "create": // what happened before the lockstep is told when it begins
		return ""
	}
	return fmt.Sprintf("says it was in %q", c.Phase)
}

// onlyWith says that connections failed, and each of them had an end at one of these processes.
func (d *document) onlyWith(procs []int) bool {
	for _, e := range d.Errors {
		ends := slices.Clone(e.Ranks)
		if e.Peer != nil {
			ends = append(ends, *e.Peer)
		}
		if !slices.ContainsFunc(ends, func(rank int) bool { return slices.Contains(procs, d.procOf(rank)) }) {
			return false
		}
	}
	return len(d.Errors) > 0
}

// judgeStarved wants the document to say that the victim, and nobody else, had
// no descriptors left: as the first cause, or as a cause line of its rank.
func (j *job) judgeStarved(o *outcome, s *side) {
	d := s.docs[0]
	told := s.culprit.Proc == j.victim.proc && strings.Contains(d.Exit.Text, "too many open files")
	for _, cause := range d.Causes {
		if cause.Kind == "fds" && cause.Rank != nil && d.procOf(*cause.Rank) == j.victim.proc {
			told = true
			s.culprit.Rank, s.culprit.Proc, s.culprit.Phase, s.culprit.Line = *cause.Rank, j.victim.proc, cause.Phase, cause.Evidence
		}
	}
	there, elsewhere := d.outOfFiles(j.victim.proc)
	j.traces += fmt.Sprintf(", %d failures", there)
	if !told {
		o.fault("the document does not say that process %d had no descriptors left: %s", j.victim.proc, d.Exit.Text)
	}
	if elsewhere > 0 {
		o.fault("%d failures for want of descriptors at others", elsewhere)
	}
}

var missingNumbers = regexp.MustCompile(`missing process numbers? ([0-9,-]+)`)

// naming is the first line of a survivor that names the victim.
func (j *job) naming(p *proc, s *side) string {
	number := j.victim.proc
	var names []string
	switch {
	case j.victim.host != "" && s.apart: // it names who is not on its host
		for i := range hostCount {
			if h := j.lab.host(i); h != j.victim.host {
				names = append(names, h)
			}
		}
	case j.victim.host != "":
		names = []string{j.victim.host}
	case j.c.victim == "parent" && j.c.fault == "fds":
		names = []string{"too many open files", "file descriptors"}
	case j.c.victim == "parent":
		names = []string{fmt.Sprintf(`the process that spawned this job \(pid %d\) is gone`, j.victim.pid)}
	default:
		names = []string{fmt.Sprintf("pid %d", j.victim.pid), fmt.Sprintf("process %d", number), fmt.Sprintf("rank %d", number)}
	}
	word := regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)
	for line := range strings.Lines(p.text("stderr")) {
		if slices.ContainsFunc([]string{"holding ", "result document", "this job is open", "rankstorm: waiting for"}, func(s string) bool { return strings.Contains(line, s) }) {
			continue // it names somebody for another reason, or those who were only not there yet
		}
		if word.MatchString(line) {
			return strings.TrimSpace(line)
		}
		if j.c.phase != "gather" && j.c.phase != anyMoment {
			continue
		}
		m := missingNumbers.FindStringSubmatch(line)
		if m != nil && slices.ContainsFunc(append(j.victim.onHost, number), func(n int) bool { return inList(m[1], n) }) {
			return strings.TrimSpace(line)
		}
		if strings.Contains(line, "no controller at") && (j.c.victim == "controller" || number == control || j.c.phase == anyMoment && j.c.mode == "hosts" && j.victimHost() == controllerHost) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// inList looks for a number in a list like 2,5-7.
func inList(list string, n int) bool {
	for part := range strings.SplitSeq(strings.Trim(list, ",-"), ",") {
		low, high, ranged := strings.Cut(part, "-")
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
