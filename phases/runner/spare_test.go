package runner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"rankstorm/phases"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// hungry is a provider that leaves the process no descriptor from the probe on.
func hungry(p transport.Provider, starve func()) transport.Provider {
	return tampered{Provider: p, wrap: func(w transport.Worker) transport.Worker {
		return hooked{Worker: w, start: func(s transport.Step) {
			if s == transport.StepProbe {
				starve()
			}
		}}
	}}
}

// starve takes every descriptor that this process may still open, until free is called.
func starve(t *testing.T) (free func()) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	low := lim
	low.Cur = uint64(f.Fd()) + 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	return func() {
		f.Close()
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
			t.Error(err)
		}
	}
}

// A process without a free descriptor still writes its document.
func TestDocumentWithoutDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := func() {}
		b := start(t, 1, spec(1, func(s *phases.Spec) { s.RanksPerProc, s.Threads = 2, 1 }), sim.FabricConfig{}, func(_ int, cfg *Config) {
			begun := make(chan struct{}, 1)
			cfg.Shared, cfg.Provider = false, hungry(cfg.Provider, func() {
				select {
				case begun <- struct{}{}: // the first of the two ranks
					free = starve(t)
				default:
				}
			})
		})
		b.wg.Wait()
		free()
		if _, err := os.Stat(b.procs[0].out); err != nil {
			t.Fatalf("%v\nended with %v, stderr: %s", err, b.procs[0].err, b.procs[0].stderr.String())
		}
		if d := b.document(0); d.Exit.Partial || d.Connections.Established != 2 {
			t.Errorf("%d connections came up, exit %+v", d.Connections.Established, d.Exit)
		}
	})
}

// Of a document that could not be written anywhere the user hears, whatever else went wrong.
func TestLostDocumentIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nowhere := filepath.Join(t.TempDir(), "none")
		t.Setenv("TMPDIR", nowhere)
		b := start(t, 1, spec(2, nil), sim.FabricConfig{}, func(i int, cfg *Config) {
			cfg.Out = filepath.Join(nowhere, "out.json")
			if i == 1 {
				cfg.Provider = failing{cfg.Provider}
			}
		})
		b.wg.Wait()
		text := b.procs[0].stderr.String()
		if !strings.Contains(text, "the result document is lost: write "+filepath.Join(nowhere, "out.json")) {
			t.Errorf("ended with %v, stderr: %s", b.procs[0].err, text)
		}
	})
}

// failing is a provider that cannot be opened.
type failing struct{ transport.Provider }

func (f failing) Open(transport.Config) (transport.Endpoint, error) {
	return nil, &transport.OpError{Op: "open", Provider: f.Name(), Cause: transport.CauseNoFDs, Err: syscall.EMFILE}
}
