package tcp

import (
	"fmt"

	"rankstorm/transport"
	"rankstorm/transport/internal/errno"
)

// causeOf gives the name under which a system error is counted.
func causeOf(err error) transport.Cause { return errno.Cause(err) }

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
