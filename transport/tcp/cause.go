package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

// causeOf gives the name under which a system error is counted.
func causeOf(err error) transport.Cause {
	var no unix.Errno
	if !errors.As(err, &no) {
		if err == nil {
			return transport.CauseNone
		}
		return transport.CauseOther
	}
	switch no {
	case 0:
		return transport.CauseNone
	case unix.ECONNREFUSED:
		return transport.CauseRefused
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EAFNOSUPPORT, unix.ENONET:
		return transport.CauseUnreachable
	case unix.ETIMEDOUT:
		return transport.CauseTimeout
	case unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED, unix.ENOTCONN:
		return transport.CauseReset
	case unix.EADDRNOTAVAIL, unix.EADDRINUSE:
		return transport.CauseNoPorts
	case unix.EMFILE, unix.ENFILE:
		return transport.CauseNoFDs
	case unix.ENOMEM, unix.ENOBUFS, unix.ENOSPC:
		return transport.CauseNoMemory
	case unix.EACCES, unix.EPERM:
		return transport.CausePermission
	}
	return transport.CauseOther
}

// opError is built only once something failed; local and remote may be nil.
func opError(op string, local, remote *addr, err error) *transport.OpError {
	e := &transport.OpError{Op: op, Provider: name, Cause: causeOf(err), Err: err}
	if local != nil {
		e.Local = local.String()
	}
	if remote != nil {
		e.Remote = remote.String()
	}
	return e
}

// misuse is a call that the contract does not allow, or cannot carry out.
func misuse(op, format string, args ...any) error {
	return &transport.OpError{Op: op, Provider: name, Cause: transport.CauseOther, Err: fmt.Errorf(format, args...)}
}
