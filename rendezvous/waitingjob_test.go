package rendezvous

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/rendezvous/memnet"
)

// TestCauseIsNamedInTime: 10 s after the start the controller has said why
// somebody is missing, and the others repeat it when they give up.
func TestCauseIsNamedInTime(t *testing.T) {
	for _, c := range []struct {
		name        string
		hosts, come int
		procs       int
		spread      time.Duration // between two starts
		change      func(i int, cfg *Config)
		want        string
	}{
		{name: "pdsh", hosts: 32, come: 32, procs: 40, spread: 60 * time.Millisecond, want: "pdsh -f 40"},
		{name: "clush", hosts: 16, come: 64, procs: 80, spread: 30 * time.Millisecond, want: "use -f 80"},
		{name: "alone", hosts: 1, come: 1, procs: 2, want: "nobody but this process has come to n0:7471"},
		{
			name: "host", hosts: 3, come: 3, procs: 8, want: "all of the missing belong to n3",
			change: func(_ int, cfg *Config) {
				cfg.Launch = Launch{Family: "Slurm", Launched: 8, Hosts: []LaunchHost{{"n0", 1}, {"n1", 1}, {"n2", 1}, {"n3", 5}}}
			},
		},
		{
			name: "other P", hosts: 3, come: 3, procs: 3, want: "n2 pid 1002 was refused: number of processes (-P) is 4 there, 3 here",
			change: func(i int, cfg *Config) {
				if i == 2 {
					cfg.Procs = 4
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newJoinLab(t, c.hosts, memnet.Config{Latency: time.Millisecond})
				var cfgs []Config
				var delays []time.Duration
				for i := range c.come {
					cfg := l.config(i, c.procs)
					cfg.JoinTimeout = 15 * time.Second
					if c.change != nil {
						c.change(i, &cfg)
					}
					cfgs, delays = append(cfgs, cfg), append(delays, time.Duration(i)*c.spread)
				}
				results := l.start(t.Context(), cfgs, delays)
				time.Sleep(10 * time.Second)
				if !l.noticed(c.want) {
					t.Errorf("after 10 s: %q, want %q", l.said(), c.want)
				}
				repeated := 0
				for range cfgs {
					r := <-results
					switch {
					case r.err == nil:
						t.Errorf("process %d has a job", r.i)
						r.group.Close()
					case strings.Contains(r.err.Error(), c.want):
						repeated++
					}
				}
				if repeated == 0 {
					t.Errorf("nobody ends with %q", c.want)
				}
				l.clean(cfgs)
			})
		})
	}
}

// TestTwoJobsOnTheSameHosts: jobs that have another key and port form at the
// same time on the same hosts, agents and all.
func TestTwoJobsOnTheSameHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 4, memnet.Config{Latency: time.Millisecond})
		const procs = 24 // more than 16: one agent per host and job
		var red, blue []Config
		for i := range procs {
			r, b := l.config(i, procs), l.config(i, procs)
			r.Controller, r.JobKey = "n0:8001", "red"
			b.Controller, b.JobKey, b.Record.PID = "n0:8002", "blue", 5000+i
			red, blue = append(red, r), append(blue, b)
		}
		redResults, blueResults := l.start(t.Context(), red, nil), l.start(t.Context(), blue, nil)
		reds, blues := l.formed(redResults, procs), l.formed(blueResults, procs)
		if len(reds) == procs && len(blues) == procs {
			for p := range reds[0].Table().Procs {
				if pid := reds[0].Table().Procs[p].PID; pid >= 5000 {
					t.Errorf("pid %d of blue is in red's table", pid)
				}
			}
			if reds[0].Table().RunID == blues[0].Table().RunID {
				t.Error("one run")
			}
		}
		closeTogether(append(reds, blues...))
		l.clean(append(red, blue...))
	})
}
