package errno

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

// Every provider counts a system error under the same name, however it is wrapped.
func TestCause(t *testing.T) {
	for _, c := range []struct {
		err  error
		want transport.Cause
	}{
		{nil, transport.CauseNone},
		{unix.Errno(0), transport.CauseNone},
		{errors.New("no number"), transport.CauseOther},
		{unix.EINVAL, transport.CauseOther},
		{unix.ECONNREFUSED, transport.CauseRefused},
		{unix.EHOSTUNREACH, transport.CauseUnreachable},
		{unix.EXDEV, transport.CauseUnreachable},
		{unix.ETIMEDOUT, transport.CauseTimeout},
		{unix.EPIPE, transport.CauseReset},
		{unix.EADDRNOTAVAIL, transport.CauseNoPorts},
		{unix.EMFILE, transport.CauseNoFDs},
		{unix.ENOBUFS, transport.CauseNoMemory},
		{unix.EPERM, transport.CausePermission},
		{&fs.PathError{Op: "open", Path: "x", Err: unix.ENFILE}, transport.CauseNoFDs},
		{fmt.Errorf("listen: %w", os.NewSyscallError("bind", unix.EADDRINUSE)), transport.CauseNoPorts},
	} {
		if got := Cause(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
