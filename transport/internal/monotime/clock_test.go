package monotime

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestNowIsMonotonicClock(t *testing.T) {
	c := New()
	for range 1000 {
		before := gettime(unix.CLOCK_MONOTONIC)
		now := c.Now()
		after := gettime(unix.CLOCK_MONOTONIC)
		// Both sides come from one kernel clock; the capture may be off by half its bracket.
		const slack = int64(time.Millisecond)
		if now < before-slack || now > after+slack {
			t.Fatalf("Now %d is outside of [%d, %d]", now, before, after)
		}
	}
}

func TestSleepUntilIsNeverEarly(t *testing.T) {
	c := New()
	for _, d := range []time.Duration{-time.Second, 0, 300 * time.Microsecond, 5 * time.Millisecond} {
		for _, spin := range []time.Duration{0, 200 * time.Microsecond} {
			end := c.Now() + int64(d)
			c.SleepUntil(end, spin)
			if now := c.Now(); now < end {
				t.Errorf("sleep of %v with spin %v ended %d ns early", d, spin, end-now)
			}
		}
	}
}

func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		start := c.Now()
		c.SleepUntil(start+int64(time.Hour), time.Second)
		if got := c.Now() - start; got != int64(time.Hour) {
			t.Errorf("an hour of fake time passed as %v", time.Duration(got))
		}
	})
}

func TestNowDoesNotAllocate(t *testing.T) {
	c := New()
	var sink int64
	if n := testing.AllocsPerRun(100, func() { sink += c.Now() }); n != 0 {
		t.Errorf("Now allocates %v times (%d)", n, sink)
	}
}

func BenchmarkNow(b *testing.B) {
	c := New()
	b.ReportAllocs()
	for b.Loop() {
		c.Now()
	}
}
