// Package monotime reads CLOCK_MONOTONIC in absolute nanoseconds without a
// system call and sleeps until a moment on it.
//
// Absolute values of one boot are comparable between processes of one host,
// which is why the stamps are not counted from the start of the process.
package monotime

import (
	"time"

	"golang.org/x/sys/unix"
)

// coarse is how long before the moment SleepUntil hands over from the Go
// timer, which is late by up to a millisecond, to clock_nanosleep, which holds
// a thread but is late only by the kernel's timer slack (about 50 µs).
const coarse = 2 * time.Millisecond

// Clock is one process's view of CLOCK_MONOTONIC. Inside a synctest bubble it
// follows the bubble's fake time instead. Safe for concurrent use.
type Clock struct {
	base time.Time // carries Go's monotonic reading, the same kernel clock
	abs  int64     // CLOCK_MONOTONIC at base, ns
	fake bool      // package time does not follow the system's clock here
}

// New captures the offset between Go's monotonic reading and CLOCK_MONOTONIC.
func New() *Clock {
	c := &Clock{}
	best := int64(1<<63 - 1)
	// The tightest of a few brackets: a preemption between the two reads
	// would shift every stamp of this process against its neighbours.
	for range 16 {
		before := time.Now()
		abs := gettime(unix.CLOCK_MONOTONIC)
		after := time.Now()
		if gap := int64(after.Sub(before)); gap < best {
			best = gap
			c.base, c.abs = before, abs-gap/2
		}
	}
	// A bubble starts its time on 1 January 2000, the kernel does not.
	d := time.Now().UnixNano() - gettime(unix.CLOCK_REALTIME)
	c.fake = d > int64(time.Minute) || d < -int64(time.Minute)
	return c
}

func gettime(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // both clocks exist on every Linux
	}
	return ts.Nano()
}

// Now is the time in ns.
func (c *Clock) Now() int64 { return c.abs + int64(time.Since(c.base)) }

// SleepUntil returns at or after t; it spins for the last spin of the wait.
// In a bubble it never spins, because fake time stands still meanwhile.
func (c *Clock) SleepUntil(t int64, spin time.Duration) {
	if c.fake {
		time.Sleep(time.Duration(t - c.Now()))
		return
	}
	wake := t - int64(max(spin, 0))
	if d := time.Duration(wake-c.Now()) - coarse; d > 0 {
		time.Sleep(d)
	}
	ts := unix.NsecToTimespec(wake)
	for c.Now() < wake {
		// Absolute, so an interruption loses nothing.
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil); err != nil && err != unix.EINTR {
			time.Sleep(time.Duration(wake - c.Now()))
		}
	}
	for c.Now() < t {
	}
}
