package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// document is what the judge reads of a result document.
type document struct {
	Path string `json:"-"`
	By   *proc  `json:"-"`
	Exit struct {
		Code    int    `json:"code"`
		Text    string `json:"text"`
		Partial bool   `json:"partial"`
		Error   *struct {
			Ranks []int  `json:"ranks"`
			Proc  *int   `json:"proc"`
			Host  string `json:"host"`
			Phase string `json:"phase"`
		} `json:"error"`
	} `json:"exit"`
	Causes []struct {
		Kind     string `json:"kind"`
		Rank     *int   `json:"rank"`
		Phase    string `json:"phase"`
		Evidence string `json:"evidence"`
	} `json:"causes"`
	Errors []struct {
		Ranks []int `json:"ranks"`
		Peer  *int  `json:"peer"`
	} `json:"errors"`
	Losses []struct {
		Proc int    `json:"proc"`
		Host string `json:"host"`
		Link *int64 `json:"link_ns"`
	} `json:"losses"`
	Ranks []struct {
		Rank int    `json:"rank"`
		Proc int    `json:"proc"`
		Host string `json:"host"`
		PID  int    `json:"pid"`
	} `json:"ranks"`
	Phases []struct {
		Phase string `json:"phase"`
		Ranks []struct {
			Rank int `json:"rank"`
		} `json:"ranks"`
		Steps []struct {
			Step     string         `json:"step"`
			Failures map[string]int `json:"failures"`
			PerRank  []struct {
				Rank   int `json:"rank"`
				Failed int `json:"failed"`
			} `json:"per_rank"`
		} `json:"steps"`
	} `json:"phases"`
}

func (d *document) kind() string {
	if d.Exit.Partial {
		return docPartial
	}
	return docWhole
}

// documentsOf a process, in its folder and, should the folder not take them, in its TMPDIR.
func documentsOf(p *proc) (list []*document, err error) {
	for _, pattern := range []string{"*.json", "tmp/*.json"} {
		found, _ := filepath.Glob(filepath.Join(p.dir, pattern)) // the pattern is well formed
		for _, path := range found {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			d := &document{Path: path, By: p}
			if err := json.Unmarshal(b, d); err != nil {
				return nil, fmt.Errorf("%s left a broken document: %w", p.name, err)
			}
			list = append(list, d)
		}
	}
	return list, nil
}

// strays are files that are neither output nor document.
func strays(p *proc) (names []string) {
	_ = filepath.WalkDir(p.dir, func(path string, e os.DirEntry, err error) error { // what cannot be read is no file of a job
		name := filepath.Base(path)
		if err == nil && !e.IsDir() && name != "stdout" && name != "stderr" && !strings.HasSuffix(name, ".json") {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// rowless are the ranks of processes that have no row in a phase of the
// storm up to and with the last, as "phase: ranks".
func (d *document) rowless(survivors []int, last string) (list []string) {
	first := slices.Index(phaseTokens, "create")
	for _, token := range phaseTokens[first : max(slices.Index(phaseTokens, last), first-1)+1] {
		has := map[int]bool{}
		for _, p := range d.Phases {
			if p.Phase != token {
				continue
			}
			for _, r := range p.Ranks {
				has[r.Rank] = true
			}
		}
		var without []string
		for _, r := range d.Ranks {
			if slices.Contains(survivors, r.Proc) && !has[r.Rank] {
				without = append(without, fmt.Sprint(r.Rank))
			}
		}
		if len(without) > 0 {
			list = append(list, fmt.Sprintf("%s: no row of rank %s", token, strings.Join(without, ",")))
		}
	}
	return list
}

// outOfFiles are the failures for want of descriptors at the ranks of a
// process, and those elsewhere.
func (d *document) outOfFiles(proc int) (there, elsewhere int) {
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			if s.Failures["no fds"] == 0 {
				continue
			}
			for _, r := range s.PerRank {
				if d.procOf(r.Rank) == proc {
					there += r.Failed
				} else {
					elsewhere += r.Failed
				}
			}
		}
	}
	return there, elsewhere
}

func (d *document) procOf(rank int) int {
	for _, r := range d.Ranks {
		if r.Rank == rank {
			return r.Proc
		}
	}
	return -1
}

// lost are the processes whose link was lost.
func (d *document) lost() (procs []int) {
	for _, l := range d.Losses {
		if l.Link != nil {
			procs = append(procs, l.Proc)
		}
	}
	slices.Sort(procs)
	return procs
}
