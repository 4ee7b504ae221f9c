package collect

import (
	"math"

	"rankstorm/transport"
)

// unset marks a stamp that was never taken; 0 is a legal moment of a fake clock.
const unset = math.MinInt64

// stamp is the begin and end of one step on one connection, ns.
type stamp struct{ begin, end int64 }

// Stamps holds raw stamps per step and connection index, and why a step failed.
// It belongs to one worker: no method may run concurrently with another. Set,
// Fail, Get and Failed neither allocate nor lock; an index outside 0 … n-1 or a
// step that was not named to NewStamps is a defect of the caller and panics.
type Stamps struct {
	n      int
	times  [transport.StepCount][]stamp
	causes [transport.StepCount][]transport.Cause
}

// NewStamps preallocates for n connections: 17 bytes per step and connection,
// touched now so that no timed phase faults pages in.
func NewStamps(steps []transport.Step, n int) *Stamps {
	s := &Stamps{n: n}
	for _, st := range steps {
		if s.times[st] != nil {
			continue
		}
		s.times[st] = make([]stamp, n)
		s.causes[st] = make([]transport.Cause, n)
	}
	s.Reset()
	return s
}

// Has says whether the step was named to NewStamps.
func (s *Stamps) Has(step transport.Step) bool { return s.times[step] != nil }

// Set records that step took from begin to end (ns) on connection i.
func (s *Stamps) Set(step transport.Step, i int, begin, end int64) {
	s.times[step][i] = stamp{begin, end}
}

// Fail records that step failed on connection i. A failed step is no sample:
// it counts in the failures, whatever Set says about it.
func (s *Stamps) Fail(i int, step transport.Step, cause transport.Cause) {
	s.causes[step][i] = cause
}

// Get returns the stamps of a step that succeeded on connection i; ok is false
// if it was not recorded or failed.
func (s *Stamps) Get(step transport.Step, i int) (begin, end int64, ok bool) {
	t := s.times[step][i]
	return t.begin, t.end, t.end != unset && s.causes[step][i] == transport.CauseNone
}

// Failed is why step failed on connection i, CauseNone if it did not.
func (s *Stamps) Failed(step transport.Step, i int) transport.Cause { return s.causes[step][i] }

// Reset forgets everything recorded and keeps the memory.
func (s *Stamps) Reset() {
	for st := range s.times {
		times := s.times[st]
		for i := range times {
			times[i] = stamp{unset, unset}
		}
		clear(s.causes[st])
	}
}
