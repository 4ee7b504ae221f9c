package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"rankstorm/phases/runner"
	"rankstorm/rank"
	"rankstorm/rendezvous"
)

// withSignals ends the context when SIGINT, SIGTERM or SIGHUP arrives, with a cause
// that has its exit code; the job then keeps what it has and reports. A second
// signal ends the process at once, after a last word to stderr. A spawned
// process (in is not nil) takes no second one: the same interrupt may reach it
// directly and through its parent, and the parent kills it if the user insists.
// It catches signals as long as it lives: the SIGTERM that the kernel sends when
// the parent dies may come last of all, and is no request to end.
func withSignals(parent context.Context, in *rendezvous.Inheritance, stderr io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, rendezvous.EndSignals()...)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for first := (time.Time{}); ; {
			select {
			case s := <-signals:
				number, _ := s.(syscall.Signal)
				if !first.IsZero() {
					if in != nil || time.Since(first) < rendezvous.OneSignal {
						continue
					}
					fmt.Fprintln(stderr, "rankstorm: interrupted a second time: this process ends before it could report")
					exitNow(128 + int(number))
				}
				first = time.Now()
				if in != nil && number == syscall.SIGTERM {
					select {
					case <-in.Parent:
						cancel(parentGone(in))
						continue
					case <-time.After(deathKnell):
					}
				}
				cancel(cancelledBy(number))
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		if in == nil {
			signal.Stop(signals)
		}
		close(done)
		<-ended
		cancel(nil)
	}
}

// deathKnell is how long after the kernel's SIGTERM the end of the parent shows at the pipe, at most.
const deathKnell = 100 * time.Millisecond

// parentGone is the cause of an end because the parent of --spawn is gone. Process 0 tells the user.
func parentGone(in *rendezvous.Inheritance) error {
	e := in.Gone()
	if in.Launch.Proc > 0 {
		return rendezvous.ToldElsewhere(e)
	}
	return e
}

func cancelledBy(s syscall.Signal) *rank.Error {
	name := "SIGTERM"
	switch s {
	case syscall.SIGINT:
		name = "SIGINT"
	case syscall.SIGHUP:
		name = "SIGHUP"
	}
	err := rank.Errorf(rank.KindCancelled, "interrupted by %s", name)
	err.Signal = int(s)
	return err
}

// withParent ends the context when the parent of a spawned process is gone,
// and, until joined is called, when a sister process ended before its time:
// afterwards the control links judge that. Without a parent it adds nothing.
func withParent(parent context.Context, in *rendezvous.Inheritance) (ctx context.Context, joined, release func()) {
	if in == nil {
		return parent, nil, func() {}
	}
	ctx, cancel := context.WithCancelCause(parent)
	isJoined := make(chan struct{})
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lost := in.Lost
		for sealed := isJoined; ; {
			select {
			case err := <-lost:
				cancel(rendezvous.ToldElsewhere(err)) // by the parent, or by the process that ended itself
			case <-in.Parent:
				cancel(parentGone(in))
				return
			case <-sealed:
				lost, sealed = nil, nil
			case <-done:
				return
			}
		}
	}()
	return ctx, func() { close(isJoined) }, func() {
		close(done)
		<-ended
		cancel(nil)
	}
}

// leftToParent is how a spawned process ends that was interrupted: the parent
// says so, once for all. Other ends are the process's own to tell.
func leftToParent(err error) error {
	if code := runner.ExitCode(err); code == 128+int(syscall.SIGINT) || code == 128+int(syscall.SIGTERM) {
		return childrenTold(code)
	}
	return err
}

// alreadyTold says that the user reads about err from another process: the
// root tells of the job, the offender of itself.
func alreadyTold(err error) bool {
	_, children := errors.AsType[childrenTold](err)
	_, said := errors.AsType[told](err)
	return children || said || runner.Silent(err) || rendezvous.Told(err)
}

// exitCode of what a command returned.
func exitCode(err error) int {
	if children, ok := errors.AsType[childrenTold](err); ok {
		return int(children)
	}
	if said, ok := errors.AsType[told](err); ok {
		return said.code
	}
	if other, ok := errors.AsType[withCode](err); ok {
		return other.code
	}
	return runner.ExitCode(err)
}
