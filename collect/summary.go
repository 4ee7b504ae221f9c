package collect

import "rankstorm/rank"

// EdgeConn names one connection of a job.
type EdgeConn struct {
	From rank.Rank `msgpack:"f" json:"from"`
	To   rank.Rank `msgpack:"t" json:"to"`
	Conn int32     `msgpack:"c" json:"conn"` // 0 … connections per edge - 1
}

// Class of an edge.
type Class uint8

// The classes. Per-rank and per-endpoint steps have ClassNone.
const (
	ClassNone Class = iota
	ClassSameHost
	ClassOtherHost
)

// Moments are the exact figures of a set of durations, ns. Count 0 means that
// the rest is not measured.
type Moments struct {
	Count   int64    `msgpack:"n"`
	SumNS   int64    `msgpack:"s"`
	MinNS   int64    `msgpack:"a"`
	MaxNS   int64    `msgpack:"z"`
	MinEdge EdgeConn `msgpack:"ae"`
	MaxEdge EdgeConn `msgpack:"ze"`
}

// RankSum is one rank's share of a step.
type RankSum struct {
	Rank rank.Rank `msgpack:"r"`
	Moments
	Failed     int64 `msgpack:"x"` // connections of this rank that failed in this step
	FirstBegin int64 `msgpack:"b"` // ns on the root's clock
	LastEnd    int64 `msgpack:"e"`
}

// StepSum is one step of one slot, over the ranks that the summary covers.
type StepSum struct {
	Step       string            `msgpack:"st"` // transport.Step.String, or a mimic row
	Side       string            `msgpack:"sd"` // "initiator", "target" or "endpoint"
	Order      int32             `msgpack:"o"`  // position in the table
	Total      Moments           `msgpack:"m"`
	Classes    map[Class]Moments `msgpack:"k"`
	FirstBegin int64             `msgpack:"b"` // ns on the root's clock, over all ranks; wall = LastEnd - FirstBegin
	LastEnd    int64             `msgpack:"e"`
	Hist       []Bucket          `msgpack:"h"` // sparse, ascending
	PerRank    []RankSum         `msgpack:"p"` // ascending
	Failures   map[string]int64  `msgpack:"f"` // cause → count
}

// Bucket of a sparse histogram: count values at index (the HdrHistogram
// counts index for 1 ns … 1 h at 3 digits).
type Bucket struct {
	Index int32 `msgpack:"i"`
	Count int64 `msgpack:"n"`
}

// RankPhase is how one rank went through one slot. BeganNS 0 means that it had
// nothing to begin, EndedNS 0 that it was broken off.
type RankPhase struct {
	Rank    rank.Rank `msgpack:"r"`
	BeganNS int64     `msgpack:"b"` // when the rank's workers began, ns on the root's clock (the latest of them)
	EndedNS int64     `msgpack:"e"` // when its own work was over
	GapNS   int64     `msgpack:"g"` // longest time a worker that had work stood still beyond the wait it asked for; -1 if none had work
	// What the process did meanwhile, as in Pause; -1 if it is not known.
	GapWaitNS int64 `msgpack:"gw"`
	GapRunNS  int64 `msgpack:"gr"`
}

// Pause is a time in which nobody ran a process: a ticker of its own came late by
// so much. WaitNS and RunNS are how long a thread of it, the one with most, waited
// in the run queue of a CPU and ran meanwhile, as the kernel's scheduler counts
// them; both -1 if it does not say.
type Pause struct {
	Proc   rank.Proc `msgpack:"p"`
	AtNS   int64     `msgpack:"a"` // when the ticker was due, ns on the root's clock
	GapNS  int64     `msgpack:"g"`
	WaitNS int64     `msgpack:"w"` // ≤ GapNS
	RunNS  int64     `msgpack:"r"` // ≤ GapNS
	When   string    `msgpack:"t"` // PauseBefore, PauseIn or PauseAfter the work of its ranks in the phase
}

// Barrier is what one process, or several, saw of a barrier; root's clock. A
// pair (first, last) whose both values are 0 was not measured.
type Barrier struct {
	FirstInNS      int64     `msgpack:"fi"` // first and last process ready
	LastInNS       int64     `msgpack:"li"`
	LastInProc     rank.Proc `msgpack:"lp"`
	FirstOutNS     int64     `msgpack:"fo"` // first and last process that heard the go
	LastOutNS      int64     `msgpack:"lo"`
	AtNS           int64     `msgpack:"at"` // T, the agreed start
	FirstReleaseNS int64     `msgpack:"fr"` // first and last worker that really began
	LastReleaseNS  int64     `msgpack:"lr"`
}

// Conns counts connections over the ranks covered. What the plan asks for follows from the settings, whoever is covered:
// only a document has it.
type Conns struct {
	Planned     int64 `msgpack:"-" json:"planned"`
	Started     int64 `msgpack:"s" json:"started"`
	Established int64 `msgpack:"e" json:"established"` // initiator read the answer
	Accepted    int64 `msgpack:"a" json:"accepted"`    // target wrote the answer
	Dead        int64 `msgpack:"d" json:"dead"`        // the path answered, but the target never did, or the first round trip never came back
	Failed      int64 `msgpack:"f" json:"failed"`      // any other failure of a step
	Broken      int64 `msgpack:"b" json:"broken"`      // broke when no step was under way on them
}

// EdgeSum is one edge's share of the connect phase.
type EdgeSum struct {
	From        rank.Rank `msgpack:"f" json:"from"`
	To          rank.Rank `msgpack:"t" json:"to"`
	Stage       int32     `msgpack:"g" json:"stage"`
	Weight      float64   `msgpack:"w" json:"weight"`
	Planned     int64     `msgpack:"p" json:"planned"`
	Established int64     `msgpack:"e" json:"established"`
	Failed      int64     `msgpack:"x" json:"failed"`
	Broken      int64     `msgpack:"b" json:"broken"`
	SumNS       int64     `msgpack:"s" json:"full_connect_sum_ns"`
	MaxNS       int64     `msgpack:"z" json:"full_connect_max_ns"`
}

// TargetSum is what the connections to one target took, whatever edges are left out.
type TargetSum struct {
	Rank        rank.Rank `msgpack:"r" json:"rank"`
	Established int64     `msgpack:"n" json:"established"`
	SumNS       int64     `msgpack:"s" json:"full_connect_sum_ns"`
}

// ProcResources is what one process holds.
type ProcResources struct {
	Proc        rank.Proc `msgpack:"p" json:"proc"`
	Moment      string    `msgpack:"m" json:"moment"`       // "before", "peak", "after"
	FDs         int64     `msgpack:"f" json:"fds"`          // counted by the providers
	ProcFDs     int64     `msgpack:"pf" json:"process_fds"` // entries of /proc/self/fd less the control plane's; -1 unknown
	Conns       int64     `msgpack:"c" json:"connections"`
	Listeners   int64     `msgpack:"l" json:"listeners"`
	Goroutines  int64     `msgpack:"g" json:"goroutines"`         // -1 unknown
	RSSBytes    int64     `msgpack:"r" json:"rss_bytes"`          // shown, not judged; -1 unknown
	ListenDrops int64     `msgpack:"ld" json:"listen_drops"`      // -1 not known
	SYNRetries  int64     `msgpack:"sr" json:"syn_retries"`       // -1 not known
	Foreign     int64     `msgpack:"fo" json:"foreign_requests"`  // turned away so far: not of this job, or forged
	Repeated    int64     `msgpack:"re" json:"repeated_requests"` // turned away so far: that connection was there already
	Starved     int64     `msgpack:"st" json:"starved_requests"`  // times so far that requests had to wait for want of a descriptor
	Cramped     int64     `msgpack:"cr" json:"cramped_requests"`  // the same for want of memory
	FDLimit     int64     `msgpack:"fl" json:"fd_limit"`          // descriptors that the process may open; -1 unknown
	TimeWait    int64     `msgpack:"tw" json:"time_wait"`         // sockets in TIME_WAIT of its network namespace, shown, not judged; -1 unknown
	PortLow     int64     `msgpack:"pl" json:"port_low"`          // of net.ipv4.ip_local_port_range there; 0 unknown
	PortHigh    int64     `msgpack:"ph" json:"port_high"`
	RDMA        *RDMAHeld `msgpack:"rd" json:"-"` // nil: the transport has none of these
}

// RDMAHeld are ids, queue pairs, completion queues and regions of a process, as
// its provider counts them and as the kernel does; the kernel's are -1 if not known.
type RDMAHeld struct {
	IDs       int64 `msgpack:"i"`
	QPs       int64 `msgpack:"q"`
	CQs       int64 `msgpack:"c"`
	MRs       int64 `msgpack:"m"`
	KernelIDs int64 `msgpack:"ki"`
	KernelQPs int64 `msgpack:"kq"`
	KernelCQs int64 `msgpack:"kc"`
	KernelMRs int64 `msgpack:"km"`
}

// Summary is the reduction of one slot over a set of processes. Merge is
// associative and commutative.
type Summary struct {
	Seq        int32           `msgpack:"q"`
	Phase      string          `msgpack:"p"`
	Round      int32           `msgpack:"r"`
	Stage      int32           `msgpack:"g"`
	Covers     []uint64        `msgpack:"c"` // bit set of processes; overlapping merges are refused
	Barrier    Barrier         `msgpack:"b"`
	BoundNS    int64           `msgpack:"cb"` // largest clock bound
	Steps      []StepSum       `msgpack:"s"`
	Ranks      []RankPhase     `msgpack:"k"`
	Conns      Conns           `msgpack:"n"`
	Edges      []EdgeSum       `msgpack:"e"`
	EdgesMore  int64           `msgpack:"em"` // edges left out of Edges by the cap
	Targets    []TargetSum     `msgpack:"tg"` // ascending; only of jobs whose edges are not all kept, see SumTargets
	Resources  []ProcResources `msgpack:"rs"`
	Errors     []rank.Error    `msgpack:"er"` // failures, typed: at most MaxErrors, the first in the order of compareErrors
	ErrorsMore int64           `msgpack:"eo"` // failures left out of Errors by the cap
	Clocks     []ProcClock     `msgpack:"ck"`
	Control    Control         `msgpack:"ct"`
	Held       *RoundHeld      `msgpack:"hd"` // after a round of several, nil otherwise
	Pauses     []Pause         `msgpack:"pa"` // of PauseFloorNS or more: at most MaxPauses, the first in the order of Pause.compare
	PausesMore int64           `msgpack:"pm"` // pauses left out of Pauses by the cap
	Ports      []PortSum       `msgpack:"pt"` // counters of devices, by the one process of each machine that reads them
}

// Control is what the control tree carried since the summary before: phase
// messages sent and received, without frames and encryption. A message counts
// at both of its ends.
type Control struct {
	Messages     int64     `msgpack:"m" json:"messages"` // over all processes
	Bytes        int64     `msgpack:"b" json:"bytes"`
	MostMessages int64     `msgpack:"mm" json:"most_messages"` // of one process
	MostBytes    int64     `msgpack:"mb" json:"most_bytes"`
	MostProc     rank.Proc `msgpack:"mp" json:"most_proc"` // the one of MostBytes
}

// plus adds what other processes, or the same ones in another slot, carried.
func (c Control) plus(o Control) Control {
	sum := Control{
		Messages: c.Messages + o.Messages, Bytes: c.Bytes + o.Bytes, MostMessages: max(c.MostMessages, o.MostMessages),
		MostBytes: c.MostBytes, MostProc: c.MostProc,
	}
	if o.MostBytes > c.MostBytes || o.MostBytes == c.MostBytes && o.MostProc < c.MostProc {
		sum.MostBytes, sum.MostProc = o.MostBytes, o.MostProc
	}
	return sum
}

// ProcClock is one process's clock against the root's.
type ProcClock struct {
	Proc     rank.Proc `msgpack:"p" json:"proc"`
	OffsetNS int64     `msgpack:"o" json:"offset_ns"` // root's clock = own clock + offset
	BoundNS  int64     `msgpack:"b" json:"bound_ns"`
}
