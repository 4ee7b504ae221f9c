// Command rankstorm measures what it costs when N processes connect to each
// other at once. This package turns flags and environment into settings and
// hands them to phases/runner; nothing else here decides anything about a job.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is the release; a build may set it with -ldflags "-X main.version=…".
var version = "0.1.0-dev"

// exitNow ends the process at once, for the impatient: a second signal.
var exitNow = os.Exit

func main() {
	// A reader that has seen enough (| head) must not kill a process of the job:
	// to the others that would be a loss.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
