package main

import (
	"fmt"
	"slices"
	"time"
)

// promise is what DESIGN §9 says about a cell.
type promise struct {
	text    string
	codes   []int // the same one at every survivor of a side
	named   bool  // an error line and the document name the victim; if not, only when the code is not 0
	docs    []string
	rows    bool // of every survivor, in every phase up to the one that was struck
	within  time.Duration
	counted bool // frames were lost or delayed, as the hosts count them
}

// What a job may take after the fault: to miss the lost, the running phase, to
// find the root, orphans, summaries, margin, the grace that --spawn gives
// stopped children.
const bound = liveness + time.Second + phase + 8*time.Second + 3*time.Second + 2*time.Second + 2*time.Second + 6*time.Second

const (
	docNone    = "none"
	docWhole   = "whole"   // figures of all
	docPartial = "partial" // figures of some are missing, and it says so
)

// promised of a cell.
func promised(c cell) promise {
	p := promise{within: bound}
	forming := c.phase == "gather"
	if forming || c.phase == anyMoment {
		p.within += 6 * time.Second // to the join timeout
	}
	if c.mode == "hosts" && forming {
		p.within += 4 * time.Second // a host that is cut off cannot be reached to be told
	}
	switch {
	case c.victim == "parent":
		p.parent(c)
	case c.phase == anyMoment:
		p.codes, p.named, p.docs = []int{1, 3}, true, []string{docNone, docPartial}
		p.text = "1, or 3 before the seal, the victim named"
		if c.fault == "fds" {
			p.codes, p.docs = []int{1, 2, 3}, []string{docNone, docPartial, docWhole}
			p.within += drawnEnd
			p.text = "1, 2 or 3, the victim named"
		}
	case c.fault == "fds" && forming:
		p.codes, p.named, p.docs = []int{1, 2, 3}, true, []string{docNone, docPartial}
		p.text = "1, 2 or 3, who has none left named"
	case c.fault == "fds":
		p.codes, p.named, p.docs = []int{1, 2}, true, []string{docPartial, docWhole}
		p.within += 2 * phase // connects to who cannot accept wait for the phase timeout
		p.text = "1 or 2, the document says who had none left"
	case c.fault == "loss" || c.fault == "rate":
		p.codes, p.docs, p.counted = []int{0, 1}, []string{docPartial, docWhole}, true
		p.within += 45 * time.Second // the host is there, only slow: every barrier takes retries
		p.text = "0 and a whole document, or 1 and who is named, or each failed connection, has an end on that host; frames were hit"
		if forming {
			p.codes, p.docs = []int{0, 1, 3}, []string{docNone, docPartial, docWhole}
			p.text = "0 and a whole document, or 1 or 3 and who is named, or each failed connection, has an end on that host; frames were hit"
		}
	case forming && c.mode == "spawn":
		p.codes, p.named, p.docs = []int{1, 3}, true, []string{docNone, docPartial}
		p.text = "1 or 3, the victim named"
	case forming && (c.fault == "kill" || c.fault == "crash"):
		p.codes, p.named, p.docs = []int{3}, true, []string{docNone}
		p.text = "3 at the join timeout, the missing named, no document"
	case forming:
		p.codes, p.named, p.docs = []int{1, 3}, true, []string{docNone, docPartial}
		p.text = "3, or 1 if it was sealed, the victim named"
	default:
		p.codes, p.named, p.docs, p.rows = []int{1}, true, []string{docPartial}, true
		p.text = "1, the victim named, one partial document with the rows of all survivors"
		if c.phase == "seal" || c.phase == "clock" {
			p.text += "; the phase may be create, in which the lockstep begins"
		}
		if c.fault == "cut" || c.fault == "drop" {
			p.text = "1 on either side, each names what it lost in its own document with the rows of its own"
		}
	}
	return p
}

// parent of a spawned job: it hosts no rank.
func (p *promise) parent(c cell) {
	p.docs = []string{docNone, docWhole, docPartial}
	switch {
	case c.fault == "kill":
		p.codes = []int{1}
		p.text = "its children end by themselves with 1 and say why"
		p.named = true
	case c.fault == "fds" && c.phase == "gather":
		p.codes, p.docs, p.named = []int{2}, []string{docNone}, true
		p.text = "it cannot start all children: 2 and why, no document"
	default:
		p.codes, p.docs = []int{0}, []string{docWhole}
		p.text = "nothing: ranks need no parent and it needs no new descriptor; 0 and a whole document"
		p.within += longHold
	}
}

func (p *promise) allows(code int) bool { return slices.Contains(p.codes, code) }

func (p *promise) String() string { return fmt.Sprintf("%s, within %v", p.text, p.within) }
