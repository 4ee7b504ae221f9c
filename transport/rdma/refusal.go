package rdma

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// What an initiator says with its request: four bytes that tell a rank from a
// stranger, four of zero, the hello.
const helloMagic = "RSH1"

func putHello(b *[verbs.PrivateSize]byte, h *transport.Hello) {
	copy(b[:], helloMagic)
	clear(b[4:8])
	copy(b[8:], h[:])
}

// parseHello reads a request's private data, which may be longer than what was said.
func parseHello(b []byte, h *transport.Hello) bool {
	if len(b) < verbs.PrivateSize || string(b[:4]) != helloMagic || [4]byte(b[4:8]) != [4]byte{} {
		return false
	}
	copy(h[:], b[8:])
	return true
}

// What a target says with a reject.
const refusalMagic = "RSR1"

// ReasonNoRoom is the reason given to a request beyond those that Reserve made room for.
const ReasonNoRoom = 0xffff

// ReasonNoResources is the reason given to a request for which the target could not make or move a queue pair.
const ReasonNoResources = 0xfffe

func putRefusal(b *[6]byte, reason uint16) []byte {
	copy(b[:], refusalMagic)
	binary.BigEndian.PutUint16(b[4:], reason)
	return b[:]
}

func parseRefusal(b []byte) (reason uint16, ok bool) {
	if len(b) < 6 || string(b[:4]) != refusalMagic {
		return 0, false
	}
	return binary.BigEndian.Uint16(b[4:]), true
}

// Reasons of a REJ message (InfiniBand specification, table of section 12.6.7.2).
const (
	rejNoQP        = 1
	rejNoEEC       = 2
	rejNoResources = 3
	rejTimeout     = 4
	rejInvalidID   = 6
	rejNoListener  = 8
	rejStale       = 10
	rejDuplicate   = 11
	rejConsumer    = 28
)

var rejTexts = map[int32]string{
	rejNoQP:        "the target has no queue pair left",
	rejNoEEC:       "the target has no context left",
	rejNoResources: "the target has no resources left",
	rejTimeout:     "the target gave up waiting",
	5:              "unsupported request",
	rejInvalidID:   "the target does not know the connection",
	7:              "invalid communication instance",
	rejNoListener:  "nobody listens on that port",
	9:              "invalid transport service type",
	rejStale:       "stale connection: the target still holds one of the same queue pair number and adapter; two processes use the same numbers, or the last job's are not over",
	rejDuplicate:   "the target accepts only one connection of this queue pair",
	12:             "the target's GID is wrong",
	13:             "the target's LID is wrong",
	14:             "the target's service level is wrong",
	15:             "the target's traffic class is wrong",
	16:             "the target's hop limit is wrong",
	17:             "the target's packet rate is wrong",
	24:             "the target redirects to another port",
	25:             "the target's path MTU is wrong",
	26:             "insufficient responder resources",
	rejConsumer:    "the target's process closed the request or ended",
	29:             "the target cannot match the receiver-not-ready retries",
	30:             "duplicate local communication identifier",
	31:             "unsupported class version",
	35:             "the vendors' enhanced connection establishment cannot be agreed on",
}

// rejectError is a refusal by the connection manager of the target.
type rejectError int32

func (e rejectError) Error() string {
	text := rejTexts[int32(e)]
	if text == "" {
		text = "see the reasons of a CM reject"
	}
	return fmt.Sprintf("rejected (reason %d): %s", int32(e), text)
}

// refusalOf says why a connect failed: the cause, the reason that the target's
// rank gave, and the error in words (nil where the cause says all). Statuses
// are reasons of REJ on InfiniBand and RoCE, and -errno on iWARP and for what
// the own side found out.
func refusalOf(kind verbs.EventKind, status int32, data []byte) (transport.Cause, uint16, error) {
	if kind == verbs.Rejected {
		if reason, ok := parseRefusal(data); ok && reason == ReasonNoResources {
			return rejCause(rejNoResources), reason, rejectError(rejNoResources)
		} else if ok {
			return transport.CauseRejected, reason, nil
		}
		if status > 0 {
			return rejCause(status), 0, rejectError(status)
		}
	}
	if status < 0 {
		no := unix.Errno(-status)
		return causeOf(no), 0, no
	}
	return transport.CauseClosed, 0, nil
}

func rejCause(reason int32) transport.Cause {
	switch reason {
	case rejNoListener:
		return transport.CauseRefused
	case rejNoQP, rejNoEEC, rejNoResources:
		return transport.CauseNoMemory
	case rejTimeout:
		return transport.CauseTimeout
	case rejStale, rejDuplicate, rejInvalidID:
		return transport.CauseReset
	case rejConsumer:
		return transport.CauseClosed
	}
	return transport.CauseOther
}
