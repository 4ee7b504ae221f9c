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
	Done                     // ↑ own initiator work of the slot is over; Failed, Cause; Body: contributions to an exchange
	Collect                  // ↓ everybody is done: stop serving, report; Body: the exchanged whole
	Summary                  // ↑ Body: merged collect.Summary; Failed, Cause of what was found while collecting (a leak)
	Progress                 // ↑ done/total so far, only for the display
	Lost                     // ↑ the processes in Covers are gone: Cause; those in Orphans lost their way to the root with them. ↓ Covers and Cause, told to everybody: holds end
	Cancel                   // ↑ somebody got a signal: Cause
	Abort                    // ↓ end the running slot now and send Summary; Cause is the first cause
	Resume                   // ↓ the tree has changed, without those in Covers: slot Seq stands at Of (Go, Collect, Abort or Verdict), and everybody's reply to it is asked for again, under a new Epoch
	Wait                     // ↓ the way to the root is lost and looked for: be patient
	Verdict                  // ↓ all is decided and the report is out: the job's exit code is Code, whatever happens from here on
	Heard                    // ↑ everybody in Covers knows the verdict
	Bye                      // ↓ everybody knows it: leave with Code
)

var typeNames = [...]string{"", "prepare", "ready", "go", "done", "collect", "summary", "progress", "lost", "cancel", "abort", "resume", "wait", "verdict", "heard", "bye"}

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
	Failed int64       `msgpack:"f,omitempty"`  // ↑ Done, Summary: connections that failed in this slot
	Done   int64       `msgpack:"d,omitempty"`  // ↑ Progress
	Total  int64       `msgpack:"n,omitempty"`
	Code   int         `msgpack:"x,omitempty"` // ↓ Verdict, Bye; Resume of a Verdict
	Cause  *rank.Error `msgpack:"e,omitempty"`
	Body   []byte      `msgpack:"b,omitempty"`

	// After a loss replies are asked for again; those of an earlier epoch no
	// longer count, so that nobody is counted twice however the tree changed.
	Epoch   int64   `msgpack:"o,omitempty"` // ↑ Ready, Done, Summary, Heard; ↓ Resume, Verdict
	Of      Type    `msgpack:"r,omitempty"` // ↓ Resume: Go, Collect, Abort or Verdict
	All     bool    `msgpack:"a,omitempty"` // ↓ Resume of Abort: send the summaries of all slots that are still at hand, the root has none
	Orphans ProcSet `msgpack:"w,omitempty"` // ↑ Lost
	Last    bool    `msgpack:"l,omitempty"` // ↓ Prepare: no slot follows this one
}
