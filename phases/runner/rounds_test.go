package runner

import (
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// leaky is a provider whose workers lose something every time they reserve, which is once in a round.
func leaky(p transport.Provider, lose func()) transport.Provider {
	return tampered{Provider: p, wrap: func(w transport.Worker) transport.Worker { return hooked{Worker: w, reserve: lose} }}
}

// Thousands of rounds leave nothing behind, and the slopes show what does.
func TestRoundsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of rounds take seconds; not with -short")
	}
	const bytes = 16 << 10
	var heap [][]byte
	var files []*os.File
	var both sync.Mutex // of the two workers
	stop := make(chan struct{})
	for _, c := range []struct {
		name                  string
		lose                  func()
		rounds                int
		fds, goroutines, heap bool // expected to grow
	}{
		{"nothing", func() {}, 1000, false, false, false},
		{"memory", func() { heap = append(heap, make([]byte, bytes)) }, 1000, false, false, true},
		{"a file", func() {
			if f, err := os.Open(os.DevNull); err == nil {
				files = append(files, f)
			}
		}, 300, true, false, false},
		{"a goroutine", func() { go func() { <-stop }() }, 300, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d *collect.Document
			synctest.Test(t, func(t *testing.T) {
				stop = make(chan struct{})
				b := start(t, 1, spec(1, func(s *phases.Spec) { s.RanksPerProc, s.Rounds = 2, c.rounds }), sim.FabricConfig{}, func(_ int, cfg *Config) {
					cfg.Shared, cfg.Provider = false, leaky(cfg.Provider, func() {
						both.Lock()
						defer both.Unlock()
						c.lose()
					})
				})
				b.wg.Wait()
				close(stop)
				time.Sleep(time.Minute)
				d = b.document(0)
			})
			for _, f := range files {
				f.Close()
			}
			heap, files = nil, nil
			g := d.Growth
			if g == nil {
				t.Fatalf("no slopes from %d rounds", d.RoundsRun)
			}
			t.Logf("%+v", *g)
			// Two workers lose one thing each in every round.
			for _, f := range []struct {
				what        string
				slope, lost int64
				grows       bool
			}{
				{"fds", g.FDs, 2000, c.fds},
				{"goroutines", g.Goroutines, 2000, c.goroutines},
				{"heap", g.HeapBytes, 2000 * bytes, c.heap},
			} {
				if f.what == "heap" && c.rounds < 1000 {
					continue // the process is still finding its size
				}
				if f.grows && (f.slope < f.lost*3/4 || f.slope > f.lost*3/2) {
					t.Errorf("%s grow by %d per 1,000 rounds, lost are %d", f.what, f.slope, f.lost)
				}
				if !f.grows && (f.slope > f.lost/4 || f.slope < -f.lost/4) {
					t.Errorf("%s grow by %d per 1,000 rounds, none are lost", f.what, f.slope)
				}
			}
			if leaks := d.Exit.Code != 0; leaks != (c.fds || c.goroutines) {
				t.Errorf("exit %d: %s", d.Exit.Code, d.Exit.Text)
			}
			if n := len(d.RoundsHeld); n > collect.MaxRoundsHeld+1 || int64(n)+d.HeldMore != int64(c.rounds) {
				t.Errorf("%d rounds listed, %d left out", n, d.HeldMore)
			}
		})
	}
}

// Rounds without end end when the time is over, with the round that runs then, at every process and clean.
func TestRoundsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, 2, spec(4, func(s *phases.Spec) { s.Rounds, s.MaxTime = 0, 20*time.Second }), sim.FabricConfig{}).clean()
		if d.RoundsRun < 20 || d.RoundsAsked != 0 {
			t.Errorf("%d rounds of %d", d.RoundsRun, d.RoundsAsked)
		}
		whole(t, d, 12*d.RoundsRun)
		if r := d.Rounds[len(d.Rounds)-1]; r.Phase != string(phases.Destroy) || int64(r.Round) != d.RoundsRun-1 || *r.BeganNS < int64(19*time.Second) {
			t.Errorf("the last slot: %+v", r)
		}
	})
}
