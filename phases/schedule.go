package phases

import (
	"math"
	"slices"
	"time"

	"rankstorm/rank"
)

// Schedule is the list of lockstep slots of a job. It is computed from the
// slot number, so that a million rounds cost nothing. It never changes and is
// safe for concurrent use.
type Schedule struct {
	first, later     []Token // phases of round 0 and of every later round, Connect once
	firstAt, laterAt int     // index of the staged phase in first and later, -1 if not wired
	stages           int32
	length           int32
	endless          bool
	holds            []Hold
}

// NewSchedule makes the schedule of spec for a topology of the given number of
// stages (≥ 1). wired says which lockstep phases the job really has: Empty
// ones are left out, and probe where nothing is sent. Rounds
// repeat everything but the phases that are Once. More than 2^31-1 slots are
// refused with KindUsage.
func NewSchedule(spec Spec, stages int, wired func(Token) bool) (*Schedule, error) {
	if stages < 1 || stages > math.MaxInt32 {
		return nil, rank.Errorf(rank.KindInternal, "a topology has 1 to %d stages, not %d", math.MaxInt32, stages)
	}
	s := &Schedule{firstAt: -1, laterAt: -1, stages: int32(stages), holds: slices.Clone(spec.Holds)}
	for _, e := range Catalogue() {
		if !e.Lockstep || !wired(e.Token) {
			continue
		}
		if e.Staged {
			s.firstAt, s.laterAt = len(s.first), len(s.later)
		}
		s.first = append(s.first, e.Token)
		if !e.Once {
			s.later = append(s.later, e.Token)
		}
	}
	s.endless = spec.Rounds == 0
	// Both lengths are below 2^31 + 20, so the product is safe in 64 bits up
	// to 2^31 rounds.
	rounds := int64(max(spec.Rounds, 1))
	per := int64(s.roundLen(s.later, s.laterAt))
	total := int64(s.roundLen(s.first, s.firstAt))
	if rounds-1 > math.MaxInt32 || total+(rounds-1)*per > math.MaxInt32 {
		return nil, rank.Errorf(rank.KindUsage,
			"--rounds %d, stages %d: more than %d phases in all: use fewer rounds", rounds, stages, math.MaxInt32)
	}
	if s.endless { // as many whole rounds as can be numbered: centuries
		rounds = 1 + (math.MaxInt32-total)/max(per, 1)
	}
	s.length = int32(total + (rounds-1)*per)
	return s, nil
}

// Endless says that rounds go on until the root ends them.
func (s *Schedule) Endless() bool { return s.endless }

// Last says whether no slot follows seq. Of a job without end that is the last slot of a round when its time is over.
func (s *Schedule) Last(seq int32, over bool) bool {
	return seq == s.length-1 || s.endless && over && s.At(seq+1).Round > s.At(seq).Round
}

func (s *Schedule) roundLen(tokens []Token, staged int) int {
	if staged < 0 {
		return len(tokens)
	}
	return len(tokens) - 1 + int(s.stages)
}

// Len is the number of slots.
func (s *Schedule) Len() int32 { return s.length }

// At is slot seq, 0 ≤ seq < Len; outside it is a Slot without phase.
func (s *Schedule) At(seq int32) Slot {
	if seq < 0 || seq >= s.length {
		return Slot{Seq: seq}
	}
	tokens, staged, round, at := s.first, s.firstAt, int32(0), int(seq)
	if n := s.roundLen(s.first, s.firstAt); at >= n {
		per := s.roundLen(s.later, s.laterAt)
		tokens, staged = s.later, s.laterAt
		round, at = int32(1+(at-n)/per), (at-n)%per
	}
	slot := Slot{Seq: seq, Round: round}
	switch {
	case staged < 0 || at < staged:
		slot.Phase = tokens[at]
	case at < staged+int(s.stages):
		slot.Phase, slot.Stage = tokens[staged], int32(at-staged)
	default:
		slot.Phase = tokens[at-int(s.stages)+1]
	}
	slot.Hold = s.hold(slot.Phase)
	if seq == 0 {
		slot.Ahead = s.hold(Seal) + s.hold(ClockSync)
	}
	return slot
}

func (s *Schedule) hold(t Token) time.Duration {
	for _, h := range s.holds {
		if h.Phase == t {
			return h.For
		}
	}
	return 0
}
