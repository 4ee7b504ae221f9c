package rdma

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/internal/errno"
)

const name = "rdma"

// causeOf gives the name under which a system error is counted. EAGAIN is no socket that would block
// here, but memory that was not to be had or locked.
func causeOf(err error) transport.Cause {
	if errors.Is(err, unix.EAGAIN) {
		return transport.CauseNoMemory
	}
	return errno.Cause(err)
}

// completionError is a work completion that failed.
type completionError int32

// Statuses of work completions (enum ibv_wc_status).
const (
	wcFlushed       = 5
	wcRemoteInvalid = 9
	wcRemoteAccess  = 10
	wcRemoteOp      = 11
	wcRetries       = 12
	wcRNRRetries    = 13
	wcRemoteAborted = 16
)

var completionTexts = map[completionError]string{
	1: "local length error", 2: "local queue pair operation error", 4: "local protection error", wcFlushed: "flushed: the queue pair is in error",
	7: "bad response", 8: "local access error", wcRemoteInvalid: "remote invalid request", wcRemoteAccess: "remote access error",
	wcRemoteOp: "remote operation error", wcRetries: "transport retries used up: the peer does not answer",
	wcRNRRetries: "receiver-not-ready retries used up: the peer posts no receive", wcRemoteAborted: "remote aborted", 19: "fatal error", 21: "general error",
}

func (e completionError) Error() string {
	text := completionTexts[e]
	if text == "" {
		text = "see enum ibv_wc_status"
	}
	return fmt.Sprintf("completion with status %d: %s", int32(e), text)
}

func (e completionError) cause() transport.Cause {
	switch e {
	case wcRetries, wcRNRRetries:
		return transport.CauseTimeout
	case wcFlushed:
		return transport.CauseClosed
	case wcRemoteInvalid, wcRemoteAccess, wcRemoteOp, wcRemoteAborted:
		return transport.CauseReset
	}
	return transport.CauseOther
}

// misuse is a call that the contract does not allow, or cannot carry out.
func misuse(op, format string, args ...any) error {
	return &transport.OpError{Op: op, Provider: name, Cause: transport.CauseOther, Err: fmt.Errorf(format, args...)}
}
