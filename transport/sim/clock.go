package sim

import (
	"time"

	"rankstorm/transport"
)

type clock struct {
	base   time.Time
	offset int64
}

// origin keeps stamps away from 0, by which the contract marks a step that had
// nothing to do.
const origin = int64(time.Minute)

// NewClock makes a clock over Go's time, which a bubble fakes. It reads one
// minute plus offset when made, so that hosts whose clocks disagree can be rehearsed. In a bubble
// it must be made inside.
func NewClock(offset time.Duration) transport.Clock {
	return clock{base: time.Now(), offset: origin + int64(offset)}
}

func (c clock) Now() int64 { return int64(time.Since(c.base)) + c.offset }

// SleepUntil never spins: a fake clock stands still meanwhile.
func (c clock) SleepUntil(t int64, _ time.Duration) {
	for d := t - c.Now(); d > 0; d = t - c.Now() {
		time.Sleep(time.Duration(d))
	}
}
