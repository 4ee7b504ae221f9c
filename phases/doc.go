// Package phases decides how a job goes through its timed phases: the
// catalogue of phases, the schedule of lockstep slots, the machines of the
// root and of every member, and the pacing of a connect storm. Everything
// here is pure: no clock, no goroutine, no socket, no random source. Time,
// messages and the ends of local work are arguments; what has to be done comes
// back as values. phases/runner carries it out.
//
// # One slot
//
// The schedule is a list of slots (phase, round, stage). The processes form a
// tree; the root machine sits above the member machine of the root process.
//
//	        root                      every member
//	Preparing  ── Prepare ↓ ──▶  MPrepare: untimed work, then MLocalReady
//	           ◀── Ready ↑ ───   own and all living children's
//	Running    ── Go{T} ↓ ───▶   MBegin at T, then MLocalDone
//	           ◀── Done ↑ ────   own and all living children's
//	Collecting ── Collect ↓ ──▶  MCollect: stop serving, then MLocalSummary
//	           ◀── Summary ↑ ─   merged
//	next slot, or:
//	Reporting  OutFinish, the report, InReported
//	Parting    ── Verdict ↓ ──▶  the exit code stands
//	           ◀── Heard ↑ ───   own and all living children's
//	Finished   ── Bye ↓ ────▶    MExit
//
// A message that goes up carries the set of processes it speaks for, so that
// nobody is counted twice. A member forwards a reply when its whole living
// subtree has answered. Shortly before the root's deadline (see flushLead) it
// forwards what it has, and from then on everything at once, so that the root
// can name exactly those who are missing.
//
// # How a job ends
//
//	every slot reduced             Verdict 0, or 1 if connections failed
//	loss before Go                 Verdict 1 at once
//	loss after Go                  the slot ends among the living, is reduced, Verdict 1
//	signal, --max-time, deadline   Abort ↓, summaries for at most Limits.Abort, Verdict
//	loss after the verdict         the verdict stands
//	root silent                    the member leaves with 1 and says Bye to its children
//
// The first cause wins; later ones are notes.
//
// # What the caller must do
//
//  1. Call Step for one machine from one goroutine, in the order of events.
//  2. Carry out the outputs of one Step in their order.
//  3. Pass a now that never goes back. Members pass the root's clock (own
//     clock + offset), so that T and all deadlines mean the same everywhere.
//  4. Keep the order of messages on each link.
//  5. Call Step with a tick at the last wake; early and extra ticks do no harm.
//  6. At the root process hand every OutDown to the member as MFromParent and
//     every MUp to the root as InMessage.
package phases
