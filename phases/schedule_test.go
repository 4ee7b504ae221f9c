package phases

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankstorm/rank"
)

// listed is the obvious way to make a schedule.
func listed(spec Spec, stages int, wired func(Token) bool) []Slot {
	var all []Slot
	for round := range spec.Rounds {
		for _, e := range Catalogue() {
			if !e.Lockstep || !wired(e.Token) || e.Once && round > 0 {
				continue
			}
			n := 1
			if e.Staged {
				n = stages
			}
			for stage := range n {
				slot := Slot{Seq: int32(len(all)), Phase: e.Token, Round: int32(round), Stage: int32(stage)}
				for _, h := range spec.Holds {
					if h.Phase == e.Token {
						slot.Hold = h.For
					}
				}
				all = append(all, slot)
			}
		}
	}
	return all
}

func TestScheduleAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := DefaultSpec()
		spec.Rounds = rapid.IntRange(1, 5).Draw(t, "rounds")
		stages := rapid.IntRange(1, 5).Draw(t, "stages")
		spec.Holds = []Hold{{Connect, time.Second}, {Destroy, time.Minute}}
		mask := rapid.Uint32().Draw(t, "wired")
		wired := func(tok Token) bool {
			i := slices.IndexFunc(Catalogue(), func(e Entry) bool { return e.Token == tok })
			return mask&(1<<i) != 0
		}
		s, err := NewSchedule(spec, stages, wired)
		if err != nil {
			t.Fatal(err)
		}
		want := listed(spec, stages, wired)
		if got := allSlots(s); !slices.Equal(got, want) {
			t.Fatalf("schedule\n%v, want\n%v", got, want)
		}
		for _, seq := range []int32{-1, s.Len(), math.MaxInt32} {
			if got := s.At(seq); got != (Slot{Seq: seq}) {
				t.Fatalf("slot outside: %v", got)
			}
		}
	})
}

func storm(tok Token) bool { return tok != Register && tok != Transfer }

func TestScheduleOfAStorm(t *testing.T) {
	spec := DefaultSpec()
	spec.Rounds = 2
	s, err := NewSchedule(spec, 2, storm)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, slot := range allSlots(s) {
		fmt.Fprintf(&b, "%s/%d/%d ", slot.Phase, slot.Round, slot.Stage)
	}
	want := "create/0/0 bind/0/0 listen/0/0 publish/0/0 resolve/0/0 qp/0/0 connect/0/0 connect/0/1 probe/0/0 disconnect/0/0 destroy/0/0 " +
		"create/1/0 bind/1/0 resolve/1/0 qp/1/0 connect/1/0 connect/1/1 probe/1/0 disconnect/1/0 destroy/1/0 "
	if b.String() != want {
		t.Errorf("schedule\n%s, want\n%s", b.String(), want)
	}
}

func TestScheduleOfManyRounds(t *testing.T) {
	spec := DefaultSpec()
	spec.Rounds = 1_000_000
	s, err := NewSchedule(spec, 3, storm)
	if err != nil {
		t.Fatal(err)
	}
	if want := int32(12 + 999_999*10); s.Len() != want {
		t.Errorf("%d slots, want %d", s.Len(), want)
	}
	if got, want := s.At(s.Len()-1), (Slot{Seq: s.Len() - 1, Phase: Destroy, Round: 999_999}); got != want {
		t.Errorf("last slot %v, want %v", got, want)
	}
	if n := testing.AllocsPerRun(10, func() { s.At(1 << 20) }); n != 0 {
		t.Errorf("At allocates %v times", n)
	}
}

func TestScheduleRefusesTooMuch(t *testing.T) {
	spec := DefaultSpec()
	spec.Rounds = math.MaxInt32
	if _, err := NewSchedule(spec, 1, storm); rank.ExitCode(err) != 2 {
		t.Errorf("2^31-1 rounds: %v, want a usage error", err)
	}
	if _, err := NewSchedule(DefaultSpec(), 0, storm); err == nil {
		t.Error("0 stages were accepted")
	}
}

func allSlots(s *Schedule) []Slot {
	var list []Slot
	for seq := range s.Len() {
		list = append(list, s.At(seq))
	}
	return list
}

// Rounds without end are numbered as far as numbers go, and any round can be the last.
func TestScheduleWithoutEnd(t *testing.T) {
	spec := DefaultSpec()
	spec.Rounds = 0
	s, err := NewSchedule(spec, 3, storm)
	if err != nil {
		t.Fatal(err)
	}
	if end := s.At(s.Len() - 1); !s.Endless() || s.Len() < math.MaxInt32-20 || end.Phase != Destroy || !s.Last(end.Seq, false) {
		t.Errorf("%d slots, the last one is %v", s.Len(), end)
	}
	for seq := range int32(200) {
		slot := s.At(seq)
		if s.Last(seq, false) || s.Last(seq, true) != (slot.Phase == Destroy) {
			t.Errorf("slot %v: the last: %t, when the time is over %t", slot, s.Last(seq, false), s.Last(seq, true))
		}
	}
	if s, err = NewSchedule(DefaultSpec(), 1, storm); err != nil || s.Endless() || s.Last(0, true) || !s.Last(s.Len()-1, false) {
		t.Errorf("one round: %+v, %v", s, err)
	}
}
