package runner

import (
	"fmt"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
)

const (
	plainEvery  = 2 * time.Second        // between two plain lines of one phase
	againEvery  = 10 * time.Second       // between two that say the same
	roundsEvery = 10 * time.Second       // between two about rounds
	drawEvery   = 250 * time.Millisecond // the same on a terminal
	nameLate    = 3                      // ranks named in a progress line
)

// display tells the user what happens while the job runs: one moving line on
// a terminal, a plain line now and then elsewhere. Short phases show nothing.
type display struct {
	p     *process
	on    bool
	tty   bool
	slot  phases.Slot
	begun int64  // root's clock: T of the running slot
	last  int64  // root's clock: last line
	done  int64  // at the last progress, for the rate
	told  string // last line of a phase
	drawn bool

	rounds   int64 // root's clock: last line about rounds, first the start of the first round
	roundsIn int32 // rounds that were over then
	since    int64 // root's clock: start of the first round
}

func newDisplay(p *process) *display {
	return &display{p: p, on: !p.cfg.Quiet, tty: p.cfg.StderrTTY}
}

func (d *display) begin(s phases.Slot, t int64) {
	d.slot, d.begun, d.last, d.done = s, t, t, 0
	d.roundsOver(t)
}

// roundsOver tells now and then how many rounds are over: their phases may all be too short to be told.
func (d *display) roundsOver(now int64) {
	if d.since == 0 {
		d.since, d.rounds = now, now
	}
	every := int64(roundsEvery)
	if d.tty {
		every = int64(drawEvery)
	}
	if !d.on || d.p.spec.Rounds == 1 || now-d.rounds < every || d.slot.Round == d.roundsIn {
		return
	}
	what := "rounds"
	if len(d.p.spec.Passes) > 0 {
		what = "passes"
	}
	d.draw(collect.Progress{
		Phase: what, Done: int64(d.slot.Round), Total: int64(d.p.spec.Rounds),
		PerSecond: float64(d.slot.Round-d.roundsIn) / time.Duration(now-d.rounds).Seconds(), Elapsed: time.Duration(now - d.since),
	})
	d.rounds, d.roundsIn = now, d.slot.Round
}

// draw shows a line in the way of its place.
func (d *display) draw(line collect.Progress) {
	if d.tty {
		fmt.Fprintf(d.p.stderr(), "\r\x1b[K%s", line.TTYLine(d.p.cfg.StderrColumns))
		d.drawn = true
		return
	}
	fmt.Fprintf(d.p.stderr(), "rankstorm: %s\n", line.Line())
}

// progress shows how far the running slot is.
func (d *display) progress(m phases.Message) {
	now := d.p.now()
	if !d.on || m.Seq != d.slot.Seq || now-d.begun < int64(drawEvery) || now <= d.last || !d.tty && now-d.last < int64(plainEvery) {
		return
	}
	line := collect.Progress{
		Phase: string(d.slot.Phase), Done: m.Done, Total: m.Total,
		PerSecond: max(0, float64(m.Done-d.done)/time.Duration(now-d.last).Seconds()),
		Elapsed:   time.Duration(now - d.begun),
	}
	switch {
	case d.p.sched.Endless():
		line.Phase = fmt.Sprintf("round %d %s", d.slot.Round+1, d.slot.Phase)
	case d.p.spec.Rounds > 1:
		line.Phase = fmt.Sprintf("round %d/%d %s", d.slot.Round+1, d.p.spec.Rounds, d.slot.Phase)
	}
	for proc := range d.p.root.m.Waiting().All() {
		host, ranks := d.p.describe(proc)
		for _, r := range ranks {
			if len(line.Late) < nameLate {
				line.Late = append(line.Late, collect.LateRank{Rank: r, Host: host})
			} else {
				line.LateMore++
			}
		}
	}
	if int(line.LateMore)+len(line.Late) > d.p.table.Size()/2 {
		line.Late, line.LateMore = nil, 0 // most are still at work: naming some says nothing
	}
	text := line.Line()
	if !d.tty && text == d.told && now-d.last < int64(againEvery) {
		return
	}
	d.told = text
	d.last, d.done = now, m.Done
	d.draw(line)
}

// clear removes the moving line before something else is printed.
func (d *display) clear() {
	if d.drawn {
		fmt.Fprint(d.p.stderr(), "\r\x1b[K")
		d.drawn = false
	}
}
