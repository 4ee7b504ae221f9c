// Package errno names system errors as transport counts them.
package errno

import (
	"errors"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

// Cause is the name under which a system error is counted.
func Cause(err error) transport.Cause {
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
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EAFNOSUPPORT, unix.ENONET, unix.ENODEV, unix.EXDEV:
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
