package phases

import "rankstorm/rank"

// Type of a phase message on the control tree.
type Type uint8

// Messages, in the order in which one slot sees them. ↓ travels from the root
// to everybody, ↑ is reduced on the way to the root.
const (
	Prepare  Type = iota + 1 // ↓ get ready for slot Seq (untimed work)
	Ready                    // ↑ everybody in Covers is ready
	Go                       // ↓ begin slot Seq at T (root's clock)
	Done                     // ↑ own initiator work of the slot is over; Body: contributions to an exchange
	Collect                  // ↓ everybody is done: stop serving, report; Body: the exchanged whole
	Summary                  // ↑ Body: merged collect.Summary
	Progress                 // ↑ done/total so far, only for the display
	Lost                     // ↑ a process is gone: Cause
	Cancel                   // ↑ somebody got a signal: Cause
	Abort                    // ↓ end the running slot now and send Summary; Cause is the first cause
	Bye                      // ↓ the job is over: exit with Code
)

var typeNames = [...]string{"", "prepare", "ready", "go", "done", "collect", "summary", "progress", "lost", "cancel", "abort", "bye"}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "unknown"
}

// Message is one phase message. The control plane carries it opaquely.
type Message struct {
	Type   Type        `msgpack:"t"`
	Seq    int32       `msgpack:"s"`            // slot of the schedule
	T      int64       `msgpack:"at,omitempty"` // Go: start, ns on the root's clock
	Covers ProcSet     `msgpack:"c,omitempty"`  // ↑: whom this message speaks for
	Failed int64       `msgpack:"f,omitempty"`  // ↑ Done: failed connections so far
	Done   int64       `msgpack:"d,omitempty"`  // ↑ Progress
	Total  int64       `msgpack:"n,omitempty"`
	Code   int         `msgpack:"x,omitempty"` // ↓ Bye
	Cause  *rank.Error `msgpack:"e,omitempty"`
	Body   []byte      `msgpack:"b,omitempty"`
}

// ProcSet is a set of processes: bit p%64 of word p/64.
type ProcSet []uint64
