package phases

import (
	"time"

	"rankstorm/rank"
)

// Time is a moment on the machine's clock, ns. Machines never read a clock.
type Time = int64

// Slot is one lockstep entry of the schedule.
type Slot struct {
	Seq   int32
	Phase Token
	Round int32 // 0 … rounds-1; slots outside rounds carry 0
	Stage int32
	Hold  time.Duration // --hold of this phase: added to the deadline
	Ahead time.Duration // first slot only: --hold of seal and clock, which end before this slot is ready
}

// Limits are the deadlines of a job.
type Limits struct {
	Phase   time.Duration // from T (plus hold) to the last Done
	Prepare time.Duration // from Prepare to the last Ready, and from Collect to the last Summary; > 0
	Abort   time.Duration // from Abort to the last Summary; > 0
	Orphans time.Duration // from a loss until those below it must have found the root again; > 0
	Search  time.Duration // longest time that an orphan looks for the root; > 0
	Report  time.Duration // that the report gets before the others are told the verdict; > 0
	Part    time.Duration // from the verdict until it is no longer waited for that everybody knows it: a silent process must be found by then; > 0
	Margin  time.Duration // member's own deadline after the root's should have come
	Lead    time.Duration // least distance between Go sent and T
	MaxTime time.Duration // of the whole job, 0 = none
}

// InputKind of the root machine.
type InputKind uint8

// Inputs of the root.
const (
	InStart    InputKind = iota + 1 // table sealed: begin the schedule
	InMessage                       // ↑ message of its own process's member (the top of the tree): Msg
	InLost                          // a process is known to be gone: Cause names it
	InTick                          // the clock reached the last Wake
	InAttached                      // an orphan has found its way here: Proc with the living below it (Covers of Msg); Cause: why it was lost; Told: the verdict, if it knows it
	InReported                      // the report that OutFinish asked for is out, or failed: Told is the verdict that comes of it
)

// Input of Root.Step.
type Input struct {
	Kind     InputKind
	Msg      Message
	Cause    *rank.Error
	Proc     rank.Proc     // InAttached
	Procs    []rank.Proc   // InLost: the process and those that hang below it
	Told     *Decision     // InAttached, InReported
	TreeTime time.Duration // InStart: measured time of one trip down the tree
}

// OutputKind of the root machine.
type OutputKind uint8

// Outputs of the root.
const (
	OutDown    OutputKind = iota + 1 // hand Msg to the own member as FromParent
	OutReduced                       // slot Seq is complete (or given up): Body is its merged summary, nil if none came; Msg.Covers says of whom
	OutNote                          // tell the user Text
	OutWake                          // call Step with InTick at At
	OutFinish                        // all figures are there: Code, Cause (nil if clean), Partial; report, then InReported
)

// Decision is how a job ends, once and for all.
type Decision struct {
	Code  int
	Cause *rank.Error // nil if clean
}

// Output of Root.Step.
type Output struct {
	Kind    OutputKind
	Msg     Message
	Seq     int32
	Body    []byte
	Text    string
	At      Time
	Code    int
	Cause   *rank.Error
	Partial bool
}

// MemberInputKind of the member machine.
type MemberInputKind uint8

// Inputs of a member.
const (
	MFromParent    MemberInputKind = iota + 1 // Msg came down (at the root process: from Root)
	MFromChild                                // Msg came up from child Proc
	MLocalReady                               // own untimed preparation of Seq is over
	MLocalDone                                // own initiator work of Seq is over: Failed in this slot, Body (exchange contribution), Cause of a failure that does not stop the job
	MLocalSummary                             // own summary of Seq: Body; Failed and Cause of what was found only now (a leak)
	MLocalProgress                            // Done, Total of the own process
	MChildLost                                // link to child Proc closed: Cause
	MParentLost                               // link to the parent closed: Cause
	MCancel                                   // a signal, or a local fault that must end the job: Cause
	MTick                                     // the clock reached the last Wake
	MAttached                                 // after MReattach: the link to the root Proc stands, it is the parent from now on
	MTakeRoot                                 // after MReattach: nobody below this process's number lives, it is the root from now on
	MGivenUp                                  // after MReattach: the root has given this process up, or there is no way to it: Cause
	MChildJoined                              // at the root process: orphan Proc is a child from now on, with Covers of Msg below it
)

// MemberInput of Member.Step.
type MemberInput struct {
	Kind        MemberInputKind
	Proc        rank.Proc
	Msg         Message
	Seq         int32
	Failed      int64
	Done, Total int64
	Body        []byte
	Cause       *rank.Error
}

// MemberOutputKind of the member machine.
type MemberOutputKind uint8

// Outputs of a member.
const (
	MUp       MemberOutputKind = iota + 1 // send Msg to the parent (at the root process: to Root)
	MDown                                 // send Msg to every child, or to child Proc only if Proc ≥ 0; a child whose link is gone is left out
	MPrepare                              // do the untimed work of Seq, then MLocalReady
	MBegin                                // begin Seq at T (root's clock), then MLocalDone
	MCollect                              // stop serving Seq, build the summary, then MLocalSummary; Msg.Body is the exchanged whole, Abort says whether work must be broken off, All whether earlier slots' summaries are wanted too
	MWake                                 // call Step with MTick at At
	MExit                                 // leave with Code; Cause says why; Abandon: without a goodbye, so that the neighbours take it for lost
	MLost                                 // the processes in Msg.Covers are gone: end the hold of Seq and begin none, give up what waits for them; Cause
	MNote                                 // something odd that changes nothing: Cause, for -v
	MReattach                             // the parent is gone: find the root, or become it; then MAttached, MTakeRoot or MGivenUp
)

// MemberOutput of Member.Step.
type MemberOutput struct {
	Kind  MemberOutputKind
	Proc  rank.Proc
	Msg   Message
	Seq   int32
	T     Time
	At    Time
	Abort bool
	All   bool
	Code  int
	Cause *rank.Error

	Abandon bool // MExit
	Last    bool // MPrepare: no slot follows this one
}
