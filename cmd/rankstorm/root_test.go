package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// brokenOutput takes nothing.
type brokenOutput struct{ err error }

func (b brokenOutput) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: b.err}
}

// What a command prints either comes out, or the command says that it did not; but a reader that has seen enough is no
// failure.
func TestOutputThatGoesNowhere(t *testing.T) {
	for _, line := range []string{"", "--help", "--version", "version", "help topologies", "help run", "run --help", "cmtime --help", "plan --ranks 4", "plan --ranks 4 --json", "devices", "devices --json"} {
		for _, c := range []struct {
			err  error
			code int
			says string
		}{
			{syscall.EPIPE, 0, ""},
			{syscall.ENOSPC, 1, "rankstorm: write /dev/stdout: no space left on device\n"},
			{os.ErrClosed, 1, "rankstorm: write /dev/stdout: file already closed\n"},
		} {
			var stderr strings.Builder
			code := run(t.Context(), strings.Fields(line), nil, brokenOutput{c.err}, &stderr)
			if code != c.code || stderr.String() != c.says {
				t.Errorf("rankstorm %s, %v: exit %d, %q; want %d, %q", line, c.err, code, stderr.String(), c.code, c.says)
			}
		}
	}
}

// The first error is the one that is told, also of text that is printed in passing.
func TestTextOutputKeepsItsFirstError(t *testing.T) {
	first := errors.New("first")
	out := &textOutput{w: &failing{errs: []error{nil, first, nil}}}
	for range 3 {
		fmt.Fprintln(out, "text")
	}
	if err := out.lost(); !errors.Is(err, first) {
		t.Errorf("%v, want %v", err, first)
	}
}

// failing gives one error after the other.
type failing struct{ errs []error }

func (f *failing) Write(b []byte) (int, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return len(b), err
}
