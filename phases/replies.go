package phases

import (
	"slices"
	"time"

	"rankstorm/rank"
)

// State of a machine within a slot.
type State uint8

// The states. A root and its members go through them together, one message
// apart.
const (
	Idle       State = iota // before the first slot
	Preparing               // Prepare sent or heard, Go not yet
	Running                 // Go sent or heard
	Collecting              // Collect sent or heard; a member stays here until the next slot
	Aborting                // Abort sent or heard
	Reporting               // the root only: the report is written
	Parting                 // Verdict sent or heard: the job's end stands, and it is made sure that everybody knows it
	Finished                // Bye; every further input is ignored
)

func (s State) String() string {
	names := [...]string{"idle", "preparing", "running", "collecting", "aborting", "reporting", "parting", "finished"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// flushLead is how long before the root's deadline a member forwards an
// incomplete reply, so that the root knows who really is missing and does not
// blame everybody below a late process.
func flushLead(limit time.Duration) time.Duration {
	return min(limit/8, 250*time.Millisecond)
}

// replies gathers one kind of reply of one slot.
type replies struct {
	typ    Type
	need   ProcSet // those whose reply is waited for
	got    ProcSet // those who have replied
	fresh  ProcSet // of got, not forwarded yet
	failed int64   // of fresh
	cause  *rank.Error
	bodies []body // of fresh
	closed bool   // a complete reply has been forwarded
}

type body struct {
	from rank.Proc
	data []byte
}

// take adds a reply that came from process from. It refuses (false) what
// speaks for nobody or for somebody already counted.
func (r *replies) take(from rank.Proc, m Message) bool {
	if m.Covers.Len() == 0 || r.got.Intersects(m.Covers) {
		return false
	}
	r.got.Union(m.Covers)
	r.fresh.Union(m.Covers)
	r.failed += m.Failed
	// The lowest process wins, so that the result does not depend on the order
	// of arrival.
	if m.Cause != nil && (r.cause == nil || m.Cause.Proc < r.cause.Proc) {
		r.cause = m.Cause
	}
	if len(m.Body) > 0 {
		r.bodies = append(r.bodies, body{from, m.Body})
	}
	return true
}

// complete says whether everybody needed has replied.
func (r *replies) complete() bool { return r.got.Contains(r.need) }

// merged makes one body of what is fresh, in the order of the processes it
// came from.
func (r *replies) merged(slot Slot, merge MergeFunc) ([]byte, error) {
	slices.SortStableFunc(r.bodies, func(a, b body) int { return int(a.from) - int(b.from) })
	list := make([][]byte, len(r.bodies))
	for i, b := range r.bodies {
		list[i] = b.data
	}
	r.bodies = nil
	switch {
	case len(list) == 0:
		return nil, nil
	case len(list) == 1:
		return list[0], nil
	case merge == nil:
		return nil, rank.Errorf(rank.KindInternal, "%d %s bodies and nothing to merge them with", len(list), r.typ)
	}
	return merge(r.typ, slot, list)
}

// MergeFunc makes one body out of two or more of the same kind (Done of an
// exchange, or Summary). It is pure and does not keep or change its input.
type MergeFunc func(t Type, slot Slot, bodies [][]byte) ([]byte, error)
