package runner

import (
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/test/need"
	"rankstorm/transport/sim"
)

func TestSchedTimes(t *testing.T) {
	for _, c := range []struct {
		line      string
		run, wait int64
		ok        bool
	}{
		{"95812283 146719234 658\n", 95812283, 146719234, true},
		{"0 0 1\n", 0, 0, true},
		{"9223372036854775807 1 2", 0, 0, false}, // 292 years
		{"7 8", 0, 0, false},
		{"7", 0, 0, false},
		{"", 0, 0, false},
		{" 7 8 9", 0, 0, false},
		{"-7 8 9", 0, 0, false},
		{"7 8x 9", 0, 0, false},
	} {
		run, wait, ok := schedTimes([]byte(c.line))
		if run != c.run || wait != c.wait || ok != c.ok {
			t.Errorf("%q: ran %d, waited %d, %v", c.line, run, wait, ok)
		}
	}
}

func TestNextName(t *testing.T) {
	entry := func(size byte, name string) []byte {
		b := make([]byte, 24)
		b[16], b[18] = size, 4
		copy(b[19:], name)
		return b
	}
	list := append(entry(24, "12\x00\x00\x00"), entry(24, "12345")...)
	name, rest, ok := nextName(list)
	if string(name) != "12" || len(rest) != 24 || !ok {
		t.Errorf("%q, %d bytes more, %v", name, len(rest), ok)
	}
	if name, rest, ok = nextName(rest); string(name) != "12345" || len(rest) != 0 || !ok {
		t.Errorf("%q, %d bytes more, %v", name, len(rest), ok)
	}
	for _, bad := range [][]byte{nil, make([]byte, 18), entry(0, "1"), entry(25, "1"), entry(18, "1")} {
		if _, _, ok := nextName(bad); ok {
			t.Errorf("%d is an entry", bad)
		}
	}
}

// The kernel's own figures: of a thread that works, and of all of them.
func TestSchedStatOfThisProcess(t *testing.T) {
	b, err := os.ReadFile("/proc/thread-self/schedstat")
	if err != nil || string(b) == "0 0 0\n" {
		need.Absent(t, "schedstat", "this kernel does not count: %v %s", err, b)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stat := newSchedStat()
	most := func() (threads int, run int64) {
		ok := stat(func(id int, runNS, waitNS int64) {
			if id <= 0 || runNS < 0 || waitNS < 0 {
				t.Errorf("thread %d ran %d, waited %d", id, runNS, waitNS)
			}
			threads++
			run = max(run, runNS)
		})
		if !ok {
			t.Fatal("it cannot be read")
		}
		return threads, run
	}
	if n, _ := most(); n < 2 {
		t.Errorf("%d threads", n)
	}
	for end := time.Now().Add(patience); ; { // until a thread has run for 50 ms
		if _, run := most(); run >= 50e6 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no thread runs")
		}
	}
}

// patience bounds waits for what comes; nothing is measured against it.
const patience = time.Minute

// A late beat is a stall, with what the scheduler counted since the beat before.
func TestPulse(t *testing.T) {
	const lasts = 350 * time.Millisecond
	for _, c := range []struct {
		name    string
		waits   bool
		counts  bool
		sharing int
		every   time.Duration
	}{
		{"stopped", false, true, 1, beat},
		{"starved", true, true, 1, beat},
		{"eight workers on a CPU", false, true, 8, beat},
		{"32 workers on a CPU", true, true, 32, 4 * beat},
		{"a thousand", true, true, 1000, longestBeat}, // the stop hides between two beats
		{"a kernel that does not count", true, false, 1, beat},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := &haltClock{Clock: sim.NewClock(0)}
				stat := clock.threads(c.waits)
				if !c.counts {
					stat = func(thread func(int, int64, int64)) bool { thread(1, 0, 0); return true }
				}
				time.Sleep(time.Second)
				p := newPulse(clock, stat, c.sharing)
				defer p.stop()
				if p.every != c.every {
					t.Fatalf("it beats every %v", p.every)
				}
				time.Sleep(3*beat + beat/2)
				if got := p.take().stalls; len(got) != 0 {
					t.Errorf("%v while nothing stood still", got)
				}
				clock.stop()
				time.Sleep(lasts)
				clock.goOn()
				synctest.Wait()
				now := clock.Clock.Now()
				got := p.take().stalls
				if c.every > lasts {
					if len(got) != 0 {
						t.Errorf("%v", got)
					}
					return
				}
				if len(got) != 1 {
					t.Fatalf("%v", got)
				}
				s := got[0]
				if s.end != now || s.gap() < int64(lasts-c.every) || s.gap() > int64(lasts) {
					t.Errorf("%+v lasts %v and ends %d before now", s, time.Duration(s.gap()), now-s.end)
				}
				switch {
				case !c.counts && (s.wait != -1 || s.run != -1):
					t.Errorf("%+v: nobody counted", s)
				case c.counts && c.waits && s.wait != s.gap() || c.counts && !c.waits && s.wait != 0:
					t.Errorf("%+v: waited %v of %v", s, time.Duration(s.wait), time.Duration(s.gap()))
				case c.counts && (s.run < 0 || s.run > int64(c.every)/100): // the 1 % of the clock's threads, between two beats
					t.Errorf("%+v: ran %v", s, time.Duration(s.run))
				}
				time.Sleep(time.Second)
				if got := p.take().stalls; len(got) != 0 {
					t.Errorf("%v after it", got)
				}
			})
		})
	}
}

func TestPulseKeepsTheLongest(t *testing.T) {
	p := &pulse{}
	for i := range int64(3 * mostStalls) {
		p.note(stall{begin: 1000 * i, end: 1000*i + (i*7919)%(3*mostStalls)})
	}
	got := p.take().stalls
	if len(got) != mostStalls {
		t.Fatalf("%d stalls are kept", len(got))
	}
	for i, s := range got {
		if s.gap() < 2*mostStalls {
			t.Errorf("one of %d is kept, there are as many longer ones", s.gap())
		}
		if i > 0 && s.begin <= got[i-1].begin {
			t.Errorf("%v after %v", s, got[i-1])
		}
	}
	if len(p.take().stalls) != 0 {
		t.Error("they are told twice")
	}
}

func TestSpent(t *testing.T) {
	r := record{stalls: []stall{{100, 110, 3, 1}, {200, 500, 40, 7}, {600, 900, -1, -1}, {1000, 1040, 39, 2}, {1050, 1090, 38, 1}}}
	for _, c := range []struct{ gap, end, wait, run int64 }{
		{300, 500, 40, 7},
		{280, 490, 40, 7},
		{30, 400, 30, 7},   // no more than it lasted
		{400, 500, 43, 8},  // both
		{700, 500, -1, -1}, // less than half of it
		{10, 112, 3, 1},
		{300, 900, -1, -1}, // not counted
		{300, 610, -1, -1}, // in part
		{95, 1095, 77, 3},
		{120, 1095, 77, 3},
		{180, 1095, -1, -1},
		{50, 80, -1, -1},
		{0, 0, -1, -1},
	} {
		if wait, run := r.spent(c.gap, c.end, beat); wait != c.wait || run != c.run {
			t.Errorf("a gap of %d up to %d waited %d and ran %d, want %d and %d", c.gap, c.end, wait, run, c.wait, c.run)
		}
	}
}

// Without a stall a long gap was spent as the beats around it say: the worker stood still, other threads did not.
func TestSpentBetweenBeats(t *testing.T) {
	r := record{beats: []stall{{0, 50, 40, 5}, {50, 101, 45, 6}, {101, 160, 50, 9}, {160, 210, -1, -1}, {210, 260, 1, 2}, {260, 310, 3, 4}}}
	for _, c := range []struct{ gap, end, wait, run int64 }{
		{95, 148, 95, 15},
		{150, 155, 135, 20},
		{60, 300, 4, 6},
		{49, 90, -1, -1},   // shorter than a beat
		{90, 200, -1, -1},  // not counted in part
		{100, 330, -1, -1}, // not over yet
		{100, 320, 4, 6},
	} {
		if wait, run := r.spent(c.gap, c.end, 50); wait != c.wait || run != c.run {
			t.Errorf("a gap of %d up to %d waited %d and ran %d, want %d and %d", c.gap, c.end, wait, run, c.wait, c.run)
		}
	}
	r.stalls = []stall{{60, 140, 7, 8}}
	if wait, run := r.spent(95, 148, 50); wait != 7 || run != 8 {
		t.Errorf("waited %d and ran %d, not as in the stall", wait, run)
	}
	p := &pulse{}
	for i := range int64(3 * mostBeats) {
		p.beat(stall{begin: i, end: i + 1})
	}
	if got := p.take().beats; len(got) > mostBeats || len(got) < mostBeats/2 || got[len(got)-1].end != 3*mostBeats {
		t.Errorf("%d beats are kept, the last ends at %d", len(got), got[len(got)-1].end)
	}
}
