package runner

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/test/freeport"
	"rankstorm/transport"
	"rankstorm/transport/tcp"
)

// tardyWorker takes no requests in the first round until it destroys its connections, as a process does whose descriptors
// ran out in the storm and come back when the round is over.
type tardyWorker struct {
	transport.Worker
	rounds int
	late   int // requests that came while the round was taken down
	ending bool
}

func (w *tardyWorker) Reserve(out, in int) error {
	w.rounds++
	w.ending = false
	w.Accepting(w.rounds > 1)
	return w.Worker.Reserve(out, in)
}

func (w *tardyWorker) Start(s transport.Step, first transport.Conn, n int, due []int64) (int, error) {
	if s == transport.StepDestroyID {
		w.ending = true
		w.Accepting(true)
	}
	return w.Worker.Start(s, first, n, due)
}

func (w *tardyWorker) Poll(ev []transport.Event) int {
	n := w.Worker.Poll(ev)
	for _, e := range ev[:n] {
		if w.ending && e.Kind == transport.EventRequest {
			w.late++
		}
	}
	return n
}

// Requests that wait in the backlog until the round is taken down are of nobody any more: the next round begins as if
// they had never come.
func TestRequestsOfTheRoundBefore(t *testing.T) {
	port := freeport.At(t, "127.0.0.1")
	const procs, conns = 3, 4
	s := spec(procs, func(s *phases.Spec) {
		s.Transport, s.Connections, s.Rounds, s.PhaseTimeout = "tcp", conns, 2, 2*time.Second
	})
	out := filepath.Join(t.TempDir(), "out.json")
	errs := make(chan error, procs)
	var target *tardyWorker
	for i := range procs {
		var provider transport.Provider = tcp.New()
		if i == 1 {
			provider = tampered{provider, func(w transport.Worker) transport.Worker {
				target = &tardyWorker{Worker: w}
				return target
			}, func(c *transport.Counters) { c.Starved += 7 }}
		}
		go func() {
			errs <- Run(context.Background(), Config{
				Spec: s, Provider: provider, Clock: transport.NewClock(),
				Rendezvous: rendezvous.Config{
					Controller: "127.0.0.1", Port: port, JobKey: "late",
					BindAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
					Record:    rank.Record{Host: "here", HostID: [16]byte{1}, PID: 100 + i, LauncherProc: i, LocalIndex: -1},
				},
				Bind: []string{"127.0.0.1"}, Out: out, Columns: 160, CPUs: 1, Shared: true,
			})
		}()
	}
	for range procs {
		if err := <-errs; rank.ExitCode(err) != 1 {
			t.Errorf("ended with %d: %v", rank.ExitCode(err), err)
		}
	}
	if target.late == 0 {
		t.Fatal("no request came while the round was taken down")
	}
	d := (&bubble{t: t, procs: []*bubbleProc{{out: out}}}).document(0)
	if c := d.Connections; d.RoundsRun != 2 || c.Failed+c.Dead != 2*conns || c.Established != 2*procs*(procs-1)*conns-2*conns {
		t.Errorf("%d rounds, %d connections failed or are dead and %d came up; exit %q", d.RoundsRun, c.Failed+c.Dead, c.Established, d.Exit.Text)
	}
	if e := d.Exit.Error; e == nil || e.Phase != "" {
		t.Fatalf("exit %+v", e)
	}
	if !slices.ContainsFunc(d.Causes, func(c collect.Cause) bool {
		return c.Kind == "fds" && c.Rank != nil && *c.Rank == 1 && *c.Count == 7
	}) {
		t.Errorf("no cause says that rank 1 had no descriptors: %+v", d.Causes)
	}
	for _, p := range d.Resources {
		if p.After.Foreign != 0 || p.After.Repeated != 0 {
			t.Errorf("process %d took its peers' late requests for strangers: %d foreign, %d repeated", p.Proc, p.After.Foreign, p.After.Repeated)
		}
	}
}
