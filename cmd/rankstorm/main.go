// Command rankstorm measures what it costs when N processes connect to each
// other at once. This package turns flags and environment into settings and
// hands them to phases/runner; nothing else here decides anything about a job.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// version is the release; a build may set it with -ldflags "-X main.version=…".
var version = "0.1.0-dev"

// exitNow ends the process at once, for the impatient: a second signal.
var exitNow = os.Exit

func main() {
	// A reader that has seen enough (| head) must not kill a process of the job:
	// to the others that would be a loss.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), standardOutput(), os.Stderr))
}

// standardOutput is where results go. If it was closed by whoever started the program, the runtime has put /dev/null in
// its place, for reading and writing; a result must not vanish there.
func standardOutput() io.Writer {
	var at, null unix.Stat_t
	flags, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR || unix.Fstat(unix.Stdout, &at) != nil || unix.Stat(os.DevNull, &null) != nil {
		return os.Stdout
	}
	if at.Mode&unix.S_IFMT != unix.S_IFCHR || at.Rdev != null.Rdev {
		return os.Stdout
	}
	return closedOutput{}
}

// closedOutput takes nothing.
type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "standard output", Err: os.ErrClosed}
}
