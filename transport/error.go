package transport

import (
	"errors"
	"fmt"
)

// Cause is the short, stable name under which failures are counted.
type Cause uint8

// The causes. CauseNone means success.
const (
	CauseNone        Cause = iota
	CauseRefused           // nobody listens there
	CauseUnreachable       // no route, host or network down
	CauseTimeout           // the path or the peer did not answer in time
	CauseReset             // reset by the peer
	CauseClosed            // the peer closed before it answered
	CauseRejected          // the peer's rank said no
	CauseNoPorts           // no local port left (EADDRNOTAVAIL on connect or bind)
	CauseNoFDs             // EMFILE, ENFILE
	CauseNoMemory          // ENOMEM, ENOBUFS
	CausePermission        // EACCES, EPERM
	CauseBadHello          // hello or answer malformed, foreign or replayed
	CauseAborted           // given up because the phase or the job ended
	CauseOther
	CauseCount
)

var causeNames = [CauseCount]string{"", "refused", "unreachable", "timeout", "reset", "closed", "rejected", "no ports", "no fds", "no memory", "permission", "bad hello", "aborted", "other"}

func (c Cause) String() string {
	if c < CauseCount {
		return causeNames[c]
	}
	return "unknown cause"
}

// OpError is a provider's failure. It knows no ranks; the runner adds rank,
// host, phase, step and peer.
type OpError struct {
	Op       string // the call, for instance "connect"
	Provider string // "tcp"
	Local    string // local address, may be empty
	Remote   string // remote address, may be empty
	Cause    Cause
	Err      error // the system's error
}

func (e *OpError) Error() string {
	where := ""
	switch {
	case e.Local != "" && e.Remote != "":
		where = " " + e.Local + "->" + e.Remote
	case e.Local != "":
		where = " " + e.Local
	case e.Remote != "":
		where = " " + e.Remote
	}
	if e.Err == nil {
		return fmt.Sprintf("%s %s%s: %s", e.Provider, e.Op, where, e.Cause)
	}
	return fmt.Sprintf("%s %s%s: %v", e.Provider, e.Op, where, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// ErrAgain says that a queue is full now: poll, then go on with the rest.
var ErrAgain = errors.New("again")
