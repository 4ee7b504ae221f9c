package transport

import "rankstorm/transport/internal/monotime"

// NewClock is the process's CLOCK_MONOTONIC, read without a system call. One
// per job is enough; inside a synctest bubble make it inside, and it follows
// the bubble's time.
func NewClock() Clock { return monotime.New() }
