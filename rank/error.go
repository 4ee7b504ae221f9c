package rank

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind classifies an error; it decides the exit code and survives the wire.
type Kind uint8

// The kinds. The zero value is KindInternal on purpose: an error nobody
// classified is our fault, not the user's.
const (
	KindInternal     Kind = iota // a defect of this program: exit 1
	KindUsage                    // bad flag, file or combination: exit 2
	KindResource                 // preflight: fds, ports, memory, permission: exit 2
	KindNotSupported             // the provider or kernel lacks it: exit 2
	KindRendezvous               // the job did not form: exit 3
	KindRefused                  // this process was refused by the controller: exit 3
	KindUnreachable              // a peer could not be reached: exit 1
	KindRejected                 // a peer said no: exit 1
	KindTimeout                  // a deadline passed: exit 1
	KindLost                     // a process died or was cut off: exit 1
	KindFailed                   // connections failed or something leaked: exit 1
	KindCorrupt                  // data or ledger wrong: exit 4
	KindThreshold                // threshold or comparison failed: exit 5
	KindCancelled                // SIGINT or SIGTERM: exit 130 or 143, see Error.Signal
)

// ExitCode is the documented exit code of a kind (DESIGN: exit codes).
func (k Kind) ExitCode() int {
	switch k {
	case KindUsage, KindResource, KindNotSupported:
		return 2
	case KindRendezvous, KindRefused:
		return 3
	case KindCorrupt:
		return 4
	case KindThreshold:
		return 5
	case KindCancelled:
		return 130
	default:
		return 1
	}
}

// Error is what every failure of a job is told with. Each layer fills the
// fields it knows; empty fields are not printed.
type Error struct {
	Kind   Kind   `msgpack:"kind"`
	Ranks  []Rank `msgpack:"ranks,omitempty"` // the rank or ranks concerned
	Proc   Proc   `msgpack:"proc"`            // the process concerned, NoProc if none
	Host   string `msgpack:"host,omitempty"`
	Phase  string `msgpack:"phase,omitempty"` // phase token
	Step   string `msgpack:"step,omitempty"`
	Peer   Rank   `msgpack:"peer"` // the other rank, None if none
	Signal int    `msgpack:"signal,omitempty"`
	Text   string `msgpack:"text,omitempty"` // what happened and what to do, one line
	Err    error  `msgpack:"-"`              // the local cause; flattened into Text on the wire
}

// Errorf makes an error of a kind that concerns no particular rank.
func Errorf(kind Kind, format string, args ...any) *Error {
	e := &Error{Kind: kind, Proc: NoProc, Peer: None}
	wrapped := fmt.Errorf(format, args...)
	e.Text = wrapped.Error()
	e.Err = errors.Unwrap(wrapped)
	return e
}

// Error prints outside-in, one fact once:
// "rank 3 (n1): connect: establish: to rank 9: connection reset by peer".
func (e *Error) Error() string {
	var b strings.Builder
	part := func(format string, args ...any) {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		fmt.Fprintf(&b, format, args...)
	}
	who := ""
	switch {
	case len(e.Ranks) == 1:
		who = fmt.Sprintf("rank %d", e.Ranks[0])
	case len(e.Ranks) > 1:
		who = fmt.Sprintf("ranks %s", FormatRanks(e.Ranks))
	case e.Proc >= 0:
		who = fmt.Sprintf("process %d", e.Proc)
	}
	switch {
	case who != "" && e.Host != "":
		part("%s (%s)", who, e.Host)
	case who != "":
		part("%s", who)
	case e.Host != "":
		part("%s", e.Host)
	}
	if e.Phase != "" {
		part("%s", e.Phase)
	}
	if e.Step != "" && e.Step != e.Phase { // "connect" is both
		part("%s", e.Step)
	}
	if e.Peer >= 0 {
		part("to rank %d", e.Peer)
	}
	switch {
	case e.Text != "":
		part("%s", e.Text)
	case e.Err != nil:
		part("%v", e.Err)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// AsError is the *Error in err's chain, or else a new one of a kind around it.
func AsError(err error, kind Kind) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Errorf(kind, "%w", err)
}

// ExitCode of any error: nil is 0, a *Error its kind's (a cancelled job the
// signal's 128+n), anything else 1.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Kind == KindCancelled && e.Signal > 0 {
			return 128 + e.Signal
		}
		return e.Kind.ExitCode()
	}
	return 1
}

// FormatRanks prints ranks as lists and ranges: "0-2,5,7-9". The input need
// not be sorted; it is not changed.
func FormatRanks(ranks []Rank) string {
	sorted := slices.Clone(ranks)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	var b strings.Builder
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		if j == i {
			fmt.Fprintf(&b, "%d", sorted[i])
		} else {
			fmt.Fprintf(&b, "%d-%d", sorted[i], sorted[j])
		}
		i = j + 1
	}
	return b.String()
}
