package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/rank"
	"rankstorm/rendezvous"
)

// TestSignals sends this process the real thing: the first signal cancels with
// the signal's exit code, the second ends the process at once.
func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		exited := make(chan int, 1)
		defer func(before func(int)) { exitNow = before }(exitNow)
		exitNow = func(code int) { exited <- code }

		var said strings.Builder
		ctx, stop := withSignals(t.Context(), nil, &said)
		send(t, sig)
		<-ctx.Done()
		cause := context.Cause(ctx)
		if got := rank.ExitCode(cause); got != 128+int(sig) {
			t.Errorf("%v: exit code %d (%v)", sig, got, cause)
		}
		time.Sleep(2 * rendezvous.OneSignal) // what comes sooner is the same request
		send(t, sig)
		if got := <-exited; got != 128+int(sig) {
			t.Errorf("second %v: exit code %d", sig, got)
		}
		stop()
		if strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), "second time") {
			t.Errorf("second %v: said %q", sig, said.String())
		}
	}
}

// One interrupt may reach a spawned process twice, directly and through its
// parent; it must still report.
func TestSignalsOfASpawnedProcess(t *testing.T) {
	defer func(before func(int)) { exitNow = before }(exitNow)
	exitNow = func(code int) { t.Errorf("left with %d", code) }
	ctx, stop := withSignals(t.Context(), &rendezvous.Inheritance{Parent: make(chan struct{})}, io.Discard)
	send(t, syscall.SIGINT)
	<-ctx.Done()
	// The signal package delivers in order: once the own channel has the last one, the other has them all.
	seen := make(chan os.Signal, 4)
	signal.Notify(seen, syscall.SIGINT)
	defer signal.Stop(seen)
	for range 3 {
		send(t, syscall.SIGINT)
		<-seen
	}
	stop()
}

func send(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

func TestWithParent(t *testing.T) {
	type parts struct {
		lost   chan *rank.Error
		parent chan struct{}
	}
	inherited := func() (*rendezvous.Inheritance, parts) {
		p := parts{make(chan *rank.Error, 1), make(chan struct{})}
		return &rendezvous.Inheritance{Lost: p.lost, Parent: p.parent}, p
	}
	t.Run("a sister is lost while gathering", func(t *testing.T) {
		in, p := inherited()
		ctx, _, release := withParent(t.Context(), in)
		defer release()
		want := rank.Errorf(rank.KindLost, "gone")
		p.lost <- want
		<-ctx.Done()
		if got := context.Cause(ctx); !errors.Is(got, want) || !alreadyTold(got) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("the parent is gone after the seal", func(t *testing.T) {
		in, p := inherited()
		ctx, joined, release := withParent(t.Context(), in)
		defer release()
		joined()
		close(p.parent)
		<-ctx.Done()
		if got := context.Cause(ctx); rank.ExitCode(got) != 1 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("released", func(t *testing.T) {
		in, _ := inherited()
		ctx, _, release := withParent(t.Context(), in)
		release()
		if ctx.Err() == nil {
			t.Error("the context lives on")
		}
	})
	t.Run("no parent", func(t *testing.T) {
		ctx, joined, release := withParent(t.Context(), nil)
		release()
		if joined != nil || ctx.Err() != nil {
			t.Error("without a parent nothing changes")
		}
	})
}

// The kernel's SIGTERM at the death of the parent is no request of the user: which of the two is seen first is chance.
func TestDeathOfTheParentIsNoSignal(t *testing.T) {
	for _, c := range []struct {
		proc int
		told bool
	}{{0, false}, {3, true}} {
		gone := make(chan struct{})
		ctx, stop := withSignals(t.Context(), &rendezvous.Inheritance{Parent: gone, Launch: rendezvous.Launch{Proc: c.proc}}, io.Discard)
		send(t, syscall.SIGTERM)
		close(gone)
		<-ctx.Done()
		if got := context.Cause(ctx); rank.ExitCode(got) != 1 || rendezvous.Told(got) != c.told || !strings.Contains(got.Error(), "the process that spawned this job (pid ") {
			t.Errorf("process %d: %v, told elsewhere %v", c.proc, got, rendezvous.Told(got))
		}
		stop()
		send(t, syscall.SIGTERM) // after the end: ignored
	}
}
