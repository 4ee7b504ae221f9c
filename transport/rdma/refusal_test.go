package rdma

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

func TestHelloCrosses(t *testing.T) {
	var h, got transport.Hello
	for i := range h {
		h[i] = byte(i + 1)
	}
	var b [verbs.PrivateSize]byte
	putHello(&b, &h)
	// A receiver may see more than what was said, with zeros behind.
	for _, data := range [][]byte{b[:], append(b[:], 0, 0, 0)} {
		if !parseHello(data, &got) || got != h {
			t.Errorf("%x became %x", h, got)
		}
	}
	for what, data := range map[string][]byte{"too short": b[:55], "nothing": nil, "another word": append([]byte("GET "), b[4:]...)} {
		if parseHello(data, &got) {
			t.Errorf("%s was taken for a hello", what)
		}
	}
	b[5] = 1
	if parseHello(b[:], &got) {
		t.Error("a hello of another version was taken")
	}
}

func TestRefusals(t *testing.T) {
	var b [6]byte
	said := append(putRefusal(&b, 0x1234), make([]byte, 142)...) // padded as a receiver sees it
	for _, c := range []struct {
		what   string
		kind   verbs.EventKind
		status int32
		data   []byte
		cause  transport.Cause
		reason uint16
		err    error
		says   string
	}{
		{"a rank's word", verbs.Rejected, 28, said, transport.CauseRejected, 0x1234, nil, ""},
		{"a rank's word that it has no queue pair left", verbs.Rejected, 28, putRefusal(new([6]byte), ReasonNoResources), transport.CauseNoMemory, ReasonNoResources, rejectError(3), "no resources left"},
		{"a rank's word over iWARP", verbs.Rejected, -111, said, transport.CauseRejected, 0x1234, nil, ""},
		{"nobody listens", verbs.Rejected, 8, nil, transport.CauseRefused, 0, rejectError(8), "nobody listens"},
		{"nobody listens, iWARP", verbs.Rejected, -111, nil, transport.CauseRefused, 0, unix.ECONNREFUSED, ""},
		{"the process ended", verbs.Rejected, 28, nil, transport.CauseClosed, 0, rejectError(28), "closed the request or ended"},
		{"somebody else's word", verbs.Rejected, 28, []byte("go away please"), transport.CauseClosed, 0, rejectError(28), ""},
		{"stale", verbs.Rejected, 10, nil, transport.CauseReset, 0, rejectError(10), "stale connection"},
		{"no resources", verbs.Rejected, 3, nil, transport.CauseNoMemory, 0, rejectError(3), "no resources"},
		{"a reason of tomorrow", verbs.Rejected, 99, nil, transport.CauseOther, 0, rejectError(99), "reason 99"},
		{"no answer", verbs.Unreachable, -110, nil, transport.CauseTimeout, 0, unix.ETIMEDOUT, ""},
		{"no host", verbs.Unreachable, -113, nil, transport.CauseUnreachable, 0, unix.EHOSTUNREACH, ""},
		{"went away", verbs.Disconnected, 0, nil, transport.CauseClosed, 0, nil, ""},
		{"broken", verbs.ConnectError, -104, nil, transport.CauseReset, 0, unix.ECONNRESET, ""},
	} {
		cause, reason, err := refusalOf(c.kind, c.status, c.data)
		if cause != c.cause || reason != c.reason || !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %v, reason %#x, %v; want %v, reason %#x, %v", c.what, cause, reason, err, c.cause, c.reason, c.err)
		}
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q does not say %q", c.what, err, c.says)
		}
	}
	for reason := range rejTexts {
		if cause := rejCause(reason); cause == transport.CauseNone || cause >= transport.CauseCount {
			t.Errorf("reason %d has the cause %v", reason, cause)
		}
	}
}

func FuzzPrivateData(f *testing.F) {
	var b [verbs.PrivateSize]byte
	putHello(&b, &transport.Hello{1})
	f.Add(b[:], int32(28))
	var r [6]byte
	f.Add(putRefusal(&r, 7), int32(8))
	f.Fuzz(func(t *testing.T, data []byte, status int32) {
		var h transport.Hello
		if parseHello(data, &h) {
			var again [verbs.PrivateSize]byte
			putHello(&again, &h)
			if string(again[:]) != string(data[:verbs.PrivateSize]) {
				t.Errorf("%x was taken for the hello of %x", data, again)
			}
		}
		cause, _, err := refusalOf(verbs.Rejected, status, data)
		if cause == transport.CauseNone || cause >= transport.CauseCount {
			t.Errorf("status %d: cause %d", status, cause)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("several lines: %q", err)
		}
	})
}
