package runner

import (
	"slices"
	"sync"
	"time"

	"rankstorm/collect"
	"rankstorm/transport"
)

const (
	beat        = 50 * time.Millisecond // longer where more than beatShare workers share a CPU: all their beats take 1 % of it
	beatShare   = 8
	longestBeat = time.Second
	stallFloor  = 5 * time.Millisecond // a beat that is no later says nothing
	mostStalls  = 256                  // kept of a slot, the longest
	mostBeats   = 2048                 // kept of a slot, the latest
)

// SchedStat tells what the kernel's scheduler counts of every thread of this process: how long it ran and how long it
// waited in the run queue of a CPU since it began, ns. false: the kernel does not count, or cannot be asked now.
type SchedStat func(thread func(id int, runNS, waitNS int64)) bool

// stall is a beat that came late: nobody ran this process.
type stall struct {
	begin, end int64 // own clock: due, and when it came
	wait, run  int64 // ns, of the thread with most, at most end - begin; -1: the kernel does not say
}

func (s stall) gap() int64 { return s.end - s.begin }

// pulse beats for as long as a process is part of a job, in its phases and between them, and notes when nobody ran it.
// Whether it waited for a CPU then, or was not to run at all (stopped, frozen, suspended with its machine), is what the
// scheduler counted meanwhile. A nil pulse notes nothing.
type pulse struct {
	clock transport.Clock
	every time.Duration
	stat  SchedStat
	quit  chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	stalls []stall
	beats  []stall             // from each beat to the next, late or not
	asking sync.Mutex          // while descriptors of it are open
	before map[int]threadTimes // at the last beat
	now    map[int]threadTimes
	known  bool // before is
}

// threadTimes of a thread since it began, ns.
type threadTimes struct{ run, wait int64 }

// newPulse begins to beat. sharing is the number of workers per CPU of the host.
func newPulse(clock transport.Clock, stat SchedStat, sharing int) *pulse {
	p := &pulse{
		clock: clock, every: min(beat*time.Duration(max(1, sharing/beatShare)), longestBeat), stat: stat,
		quit: make(chan struct{}), done: make(chan struct{}), before: map[int]threadTimes{}, now: map[int]threadTimes{},
	}
	go p.loop()
	return p
}

func (p *pulse) loop() {
	defer close(p.done)
	p.ask()
	timer := time.NewTimer(p.every)
	defer timer.Stop()
	last := p.clock.Now()
	for due := last + int64(p.every); ; {
		select {
		case <-p.quit:
			return
		case <-timer.C:
		}
		now := p.clock.Now()
		run, wait := p.ask()
		p.beat(stall{begin: last, end: now, run: run, wait: wait})
		if now-due >= int64(stallFloor) {
			p.note(stall{begin: due, end: now, run: min(run, now-due), wait: min(wait, now-due)})
		}
		last = p.clock.Now()
		due = last + int64(p.every)
		timer.Reset(p.every)
	}
}

// ask how long the thread with most ran, and how long the one with most waited, since the last time; -1: not known. A
// thread that is new has done so since it began.
func (p *pulse) ask() (run, wait int64) {
	p.asking.Lock()
	defer p.asking.Unlock()
	clear(p.now)
	counted := false
	ok := p.stat(func(id int, runNS, waitNS int64) {
		p.now[id] = threadTimes{runNS, waitNS}
		counted = counted || runNS > 0
		old := p.before[id]
		run, wait = max(run, runNS-old.run), max(wait, waitNS-old.wait)
	})
	ok = ok && counted // of a kernel that does not count all is 0
	known := p.known && ok
	p.before, p.now, p.known = p.now, p.before, ok
	if !known {
		return -1, -1
	}
	return run, wait
}

// quietly does something while no descriptor of the pulse is open. p may be nil.
func (p *pulse) quietly(do func()) {
	if p != nil {
		p.asking.Lock()
		defer p.asking.Unlock()
	}
	do()
}

// beat keeps the time since the beat before.
func (p *pulse) beat(s stall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.beats) == mostBeats {
		p.beats = slices.Delete(p.beats, 0, mostBeats/2)
	}
	p.beats = append(p.beats, s)
}

// note keeps a stall, if there are too many the longer ones.
func (p *pulse) note(s stall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stalls) < mostStalls {
		p.stalls = append(p.stalls, s)
		return
	}
	i := 0
	for k, o := range p.stalls {
		if o.gap() < p.stalls[i].gap() {
			i = k
		}
	}
	if p.stalls[i].gap() < s.gap() {
		p.stalls = append(slices.Delete(p.stalls, i, i+1), s)
	}
}

// record is what a pulse has noted in a slot.
type record struct{ stalls, beats []stall }

// take what was noted since the last time, in order. p may be nil.
func (p *pulse) take() (r record) {
	if p == nil {
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.stalls, r.beats = p.stalls, slices.Clone(p.beats)
	p.stalls, p.beats = nil, p.beats[:0]
	return r
}

// period of the beat. p may be nil.
func (p *pulse) period() time.Duration {
	if p == nil {
		return beat
	}
	return p.every
}

// stop ends the beat and waits until it has. p may be nil; once only.
func (p *pulse) stop() {
	if p != nil {
		close(p.quit)
		<-p.done
	}
}

// spent is how the process spent the gap of a worker that ended then: as in the stalls that half of the gap or more
// stands in. Of a gap that is longer than a beat also as between the beats around it, if these cover it: then others of
// its threads ran meanwhile. -1: neither is known.
func (r record) spent(gap, end int64, every time.Duration) (wait, run int64) {
	covered, wait, run := during(r.stalls, gap, end)
	if covered > 0 && 2*covered >= gap {
		return min(wait, gap), min(run, gap)
	}
	if covered, wait, run = during(r.beats, gap, end); gap >= int64(every) && 10*covered >= 9*gap {
		return min(wait, gap), min(run, gap)
	}
	return -1, -1
}

// during adds up what was counted in the times that a gap has something in common with, and how much that is; 0 if it was not
// counted in one of them.
func during(list []stall, gap, end int64) (covered, wait, run int64) {
	for _, s := range list {
		common := min(s.end, end) - max(s.begin, end-gap)
		if common <= 0 {
			continue
		}
		if s.wait < 0 {
			return 0, 0, 0
		}
		covered, wait, run = covered+common, wait+s.wait, run+s.run
	}
	return covered, wait, run
}

// pauses adds the stalls that are worth telling, and where they were in the phase.
func (p *process) pauses(s *collect.Summary, offset int64, stalls []stall) {
	for _, st := range stalls {
		if st.gap() < collect.PauseFloorNS {
			continue
		}
		one := collect.Pause{Proc: p.self, AtNS: st.begin + offset, GapNS: st.gap(), WaitNS: st.wait, RunNS: st.run, When: p.when(st)}
		s.Pauses = append(s.Pauses, one)
	}
}

// when a stall was: before the workers were to begin, after the last was done and served nobody, or else in their work.
func (p *process) when(st stall) string {
	began, ended := int64(0), int64(0)
	for _, rk := range p.ranks {
		for _, w := range rk.workers {
			if w.released != 0 && (began == 0 || w.at < began) {
				began = w.at
			}
			ended = max(ended, w.ended)
		}
	}
	middle := st.begin + st.gap()/2
	switch {
	case began == 0 || middle < began:
		return collect.PauseBefore
	case ended != 0 && middle > ended && !serves(p.slot.Phase):
		return collect.PauseAfter
	}
	return collect.PauseIn
}
