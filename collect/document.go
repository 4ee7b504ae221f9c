package collect

import "rankstorm/rank"

// SchemaName is the value of the document's "schema" key; the number grows when
// a key changes its meaning or goes away, not when one is added.
const SchemaName = "rankstorm.result/1"

// Caps of a document; what they leave out is counted beside the list.
const (
	MaxBarriers   = 2_048 // regular ones; the last of each phase and the worst come on top
	MaxRounds     = 2_048 // the same
	MaxRoundsHeld = 255   // and the last
	MaxWarnings   = 1_000
)

// Document is the result of a job: everything the table says and what it was
// made from. Durations are ns; moments are ns since the start of the run on the
// root's clock. A missing value is null, never 0; a list that was not measured
// is empty. docs/result-schema.md explains every key.
type Document struct {
	Schema         string             `json:"schema"`
	RunID          string             `json:"run_id"`
	Digest         string             `json:"digest"` // of the rank table, SHA-256 in hex; the same at every process
	JobKey         string             `json:"job_key"`
	StartedUTC     string             `json:"started_utc"` // RFC 3339
	Version        string             `json:"version"`
	BuildID        string             `json:"build_id"`
	Args           []string           `json:"args"`
	Settings       map[string]string  `json:"settings"`
	Transport      string             `json:"transport"`
	Connect        string             `json:"connect"` // shape: "burst", "parallel=64", "rate=10000"
	Poll           *string            `json:"poll"`    // wait policy, null if the transport has none
	Topology       Topology           `json:"topology"`
	Size           int64              `json:"size"`
	Procs          int64              `json:"procs"`
	RanksPerProc   int64              `json:"ranks_per_proc"`
	VirtualRanks   bool               `json:"virtual_ranks"` // more than one rank per process
	Hosts          []Host             `json:"hosts"`
	Edges          int64              `json:"edges"`
	ConnsPerEdge   int64              `json:"connections_per_edge"`
	RoundsAsked    int64              `json:"rounds_asked"` // 0: without end
	RoundsRun      int64              `json:"rounds_run"`   // that were begun
	Connections    Conns              `json:"connections"`  // summed over rounds
	Clock          []ProcClock        `json:"clock"`
	Barriers       []BarrierDoc       `json:"barriers"`
	BarriersMore   int64              `json:"barriers_left_out"`
	BarrierStats   BarrierStats       `json:"barrier_stats"` // of all of them
	Ranks          []RankDoc          `json:"ranks"`
	Addresses      []AddressDoc       `json:"addresses"`
	Phases         []PhaseDoc         `json:"phases"`
	Rounds         []RoundDoc         `json:"rounds"`
	RoundsMore     int64              `json:"rounds_left_out"`
	EdgeList       []EdgeDoc          `json:"edge_list"`
	EdgesMore      int64              `json:"edge_list_left_out"`
	TargetSums     []TargetSum        `json:"target_sums"` // over all edges, of jobs that do not list all
	Gossip         *Gossip            `json:"gossip"`
	Control        Control            `json:"control"` // of one slot: the most; in all: the sum
	Pauses         []PauseDoc         `json:"pauses"`
	PausesMore     int64              `json:"pauses_left_out"`
	Resources      []ResourceDoc      `json:"resources"`
	DeviceCounters *DeviceCountersDoc `json:"device_counters"` // null: the transport's devices do not count, or nobody read them
	RoundsHeld     []RoundHeldDoc     `json:"round_resources"`
	HeldMore       int64              `json:"round_resources_left_out"`
	Growth         *GrowthDoc         `json:"growth"` // null: too few rounds
	Limits         map[string]int64   `json:"limits"` // of the root process, see cmd/rankstorm
	Errors         []ErrorDoc         `json:"errors"`
	ErrorsMore     int64              `json:"errors_left_out"`
	Causes         []Cause            `json:"causes"`
	Losses         []Loss             `json:"losses"`
	Progress       *ProgressDoc       `json:"progress"` // where a partial job stopped
	Warnings       []string           `json:"warnings"`
	Exit           *Exit              `json:"exit"`

	build *builder
}

// Topology names the rule that made the plan.
type Topology struct {
	Name   string            `json:"name"`
	Stages int64             `json:"stages"`
	Params map[string]string `json:"params"`
}

// Host of a job, in order of its lowest rank.
type Host struct {
	Host  string `json:"host"`
	Ranks int64  `json:"ranks"`
	Procs int64  `json:"procs"`
	// Workers are threads that the ranks want at once, CPUs what the host has for them; null if not known.
	Workers int64  `json:"workers"`
	CPUs    *int64 `json:"cpus"`
}

// crowd is how many workers share a CPU of the host, at least 1.
func (h Host) crowd() int64 {
	if h.CPUs == nil || *h.CPUs < 1 {
		return 1
	}
	return max(1, h.Workers / *h.CPUs)
}

// RankDoc is one rank.
type RankDoc struct {
	Rank       rank.Rank `json:"rank"`
	Proc       rank.Proc `json:"proc"`
	Host       string    `json:"host"`
	PID        int64     `json:"pid"`
	LocalRank  int64     `json:"local_rank"`
	LatenessNS *int64    `json:"lateness_ns"` // largest late_ns of its phases
	GapNS      *int64    `json:"gap_ns"`      // largest gap_ns of its phases
}

// AddressDoc is where a process is reached.
type AddressDoc struct {
	Proc     rank.Proc `json:"proc"`
	Control  string    `json:"control"`   // of control links and gossip, the first one that others try
	Data     []string  `json:"data"`      // of the endpoints of its ranks, in order of rank
	DataFrom string    `json:"data_from"` // "control": the same address; else the flag that gave them
}

// BarrierDoc is one barrier.
type BarrierDoc struct {
	Seq            int32      `json:"seq"`
	Phase          string     `json:"phase"`
	Round          int32      `json:"round"`
	Stage          int32      `json:"stage"`
	FirstInNS      *int64     `json:"first_in_ns"`
	LastInNS       *int64     `json:"last_in_ns"`
	LastInProc     *rank.Proc `json:"last_in_proc"`
	FirstOutNS     *int64     `json:"first_out_ns"`
	LastOutNS      *int64     `json:"last_out_ns"`
	AtNS           *int64     `json:"at_ns"`
	FirstReleaseNS *int64     `json:"first_release_ns"`
	LastReleaseNS  *int64     `json:"last_release_ns"`
	BarrierNS      *int64     `json:"barrier_ns"`      // last_out - last_in
	ReleaseSkewNS  *int64     `json:"release_skew_ns"` // last_release - first_release
	BoundNS        int64      `json:"bound_ns"`        // of the clocks at that time
}

// BarrierStats are figures of all barriers, exact but for the width of the histograms' buckets.
type BarrierStats struct {
	BarrierNS     FiguresDoc `json:"barrier_ns"`
	ReleaseSkewNS FiguresDoc `json:"release_skew_ns"`
}

// FiguresDoc sums up a set of differences of stamps.
type FiguresDoc struct {
	Count int64      `json:"count"`
	SumNS *int64     `json:"sum_ns"`
	MinNS *int64     `json:"min_ns"`
	MaxNS *int64     `json:"max_ns"`
	Hist  [][2]int64 `json:"hist"` // [highest value of the bucket in ns, count]
}

// PhaseDoc is one phase, merged over its rounds and stages.
type PhaseDoc struct {
	Phase   string         `json:"phase"`
	Round   *int32         `json:"round"` // null: merged over several
	Stage   *int32         `json:"stage"` // null: merged over several
	Slots   int64          `json:"slots"` // how many rounds and stages are merged
	BeganNS *int64         `json:"began_ns"`
	WallNS  *int64         `json:"wall_ns"`  // Σ over slots: last rank ended - first rank began
	BoundNS *int64         `json:"bound_ns"` // largest clock bound
	Broken  int64          `json:"broken"`   // connections that broke when none of the phase's steps was under way on them
	Steps   []StepDoc      `json:"steps"`
	Ranks   []RankPhaseDoc `json:"ranks"`
}

// RankPhaseDoc is how one rank went through a phase: the worst of its slots.
type RankPhaseDoc struct {
	Rank   rank.Rank `json:"rank"`
	LateNS *int64    `json:"late_ns"` // began - T; null if there was no T
	BusyNS *int64    `json:"busy_ns"` // ended - began; null if it never began or ended
	GapNS  *int64    `json:"gap_ns"`  // longest stand-still with work at hand; null if it had no work
	// How long a thread of its process waited for a CPU meanwhile, and ran; null if the kernel does not say.
	GapWaitNS *int64 `json:"gap_wait_ns"`
	GapRunNS  *int64 `json:"gap_run_ns"`
}

// PauseDoc is a time in which nobody ran a process, see Pause.
type PauseDoc struct {
	Proc   rank.Proc `json:"proc"`
	Host   string    `json:"host"`
	Phase  string    `json:"phase"`
	When   string    `json:"when"` // before, in or after the work of its ranks in the phase
	AtNS   int64     `json:"at_ns"`
	GapNS  int64     `json:"gap_ns"`
	WaitNS *int64    `json:"wait_ns"` // null if the kernel does not say; so is run_ns
	RunNS  *int64    `json:"run_ns"`
}

// StepDoc is one step of a phase, over all ranks, rounds and stages.
type StepDoc struct {
	Step     string                `json:"step"`
	Side     string                `json:"side"`
	Count    int64                 `json:"count"`  // successes: the samples of all figures below
	Failed   int64                 `json:"failed"` // Σ failures
	SumNS    *int64                `json:"sum_ns"`
	WallNS   *int64                `json:"wall_ns"` // Σ over slots: last end - first begin; null on the target side
	MinNS    *int64                `json:"min_ns"`
	MaxNS    *int64                `json:"max_ns"`
	MinEdge  *ConnDoc              `json:"min_edge"`
	MaxEdge  *ConnDoc              `json:"max_edge"`
	P50NS    *int64                `json:"p50_ns"`
	P90NS    *int64                `json:"p90_ns"`
	P99NS    *int64                `json:"p99_ns"`
	P999NS   *int64                `json:"p999_ns"`
	Classes  map[string]MomentsDoc `json:"classes"`
	Hist     [][2]int64            `json:"hist"` // [highest value of the bucket in ns, count]
	PerRank  []PerRankDoc          `json:"per_rank"`
	Failures map[string]int64      `json:"failures"`
}

// ConnDoc names a connection; to and conn are null for what belongs to a rank alone.
type ConnDoc struct {
	From rank.Rank  `json:"from"`
	To   *rank.Rank `json:"to"`
	Conn *int32     `json:"conn"`
}

// MomentsDoc are exact figures of a part of a step.
type MomentsDoc struct {
	Count   int64    `json:"count"`
	SumNS   int64    `json:"sum_ns"`
	MinNS   int64    `json:"min_ns"`
	MaxNS   int64    `json:"max_ns"`
	MinEdge *ConnDoc `json:"min_edge"`
	MaxEdge *ConnDoc `json:"max_edge"`
}

// PerRankDoc is one rank's share of a step.
type PerRankDoc struct {
	Rank         rank.Rank `json:"rank"`
	Count        int64     `json:"count"`
	Failed       int64     `json:"failed"`
	SumNS        *int64    `json:"sum_ns"`
	MinNS        *int64    `json:"min_ns"`
	MaxNS        *int64    `json:"max_ns"`
	MinEdge      *ConnDoc  `json:"min_edge"`
	MaxEdge      *ConnDoc  `json:"max_edge"`
	FirstBeginNS *int64    `json:"first_begin_ns"`
	LastEndNS    *int64    `json:"last_end_ns"`
}

// RoundDoc is the wall time of one slot.
type RoundDoc struct {
	Seq     int32  `json:"seq"`
	Phase   string `json:"phase"`
	Round   int32  `json:"round"`
	Stage   int32  `json:"stage"`
	BeganNS *int64 `json:"began_ns"`
	WallNS  *int64 `json:"wall_ns"`
	// StepWalls are last end - first begin of the steps, except those of the target side.
	StepWalls map[string]int64 `json:"step_wall_ns"`
}

// EdgeDoc is one edge's share of the connect phase.
type EdgeDoc struct {
	From        rank.Rank `json:"from"`
	To          rank.Rank `json:"to"`
	Stage       int32     `json:"stage"`
	Weight      float64   `json:"weight"`
	Planned     int64     `json:"planned"`
	Established int64     `json:"established"`
	Failed      int64     `json:"failed"`
	Broken      int64     `json:"broken"`
	SumNS       *int64    `json:"full_connect_sum_ns"`
	MaxNS       *int64    `json:"full_connect_max_ns"`
	Rounds      int64     `json:"rounds"` // rounds that these figures cover
}

// Gossip is what gathering and gossip were like.
type Gossip struct {
	Controller  string `json:"controller"`
	Members     int64  `json:"members"`
	Agents      int64  `json:"agents"`
	Suspicions  int64  `json:"suspicions"`
	Refutations int64  `json:"refutations"`
	GatherNS    int64  `json:"gather_ns"`
	SealNS      int64  `json:"seal_ns"`
}

// ResourceDoc is what one process held; a moment that was not seen is null.
type ResourceDoc struct {
	Proc   rank.Proc `json:"proc"`
	Host   string    `json:"host"`
	Before *Held     `json:"before"`
	Peak   *Held     `json:"peak"`
	After  *Held     `json:"after"`
}

// Held are the resources of a process at one moment. RSS, drops, retries and
// requests turned away are shown, not judged.
type Held struct {
	FDs         int64     `json:"fds"`
	ProcFDs     *int64    `json:"process_fds"`
	Conns       int64     `json:"connections"`
	Listeners   int64     `json:"listeners"`
	Goroutines  *int64    `json:"goroutines"`
	RSSBytes    *int64    `json:"rss_bytes"`
	ListenDrops *int64    `json:"listen_drops"`
	SYNRetries  *int64    `json:"syn_retries"`
	Foreign     int64     `json:"foreign_requests"`
	Repeated    int64     `json:"repeated_requests"`
	Starved     int64     `json:"starved_requests"`
	Cramped     int64     `json:"cramped_requests"`
	FDLimit     *int64    `json:"fd_limit"`
	TimeWait    *int64    `json:"time_wait"`   // of its network namespace; shown, not judged
	LocalPorts  *[2]int64 `json:"local_ports"` // first and last that connect(2) may take there
	IDs         *int64    `json:"ids"`         // these eight are null without RDMA
	QPs         *int64    `json:"qps"`
	CQs         *int64    `json:"cqs"`
	MRs         *int64    `json:"mrs"`
	KernelIDs   *int64    `json:"kernel_ids"` // what the kernel says that the process holds
	KernelQPs   *int64    `json:"kernel_qps"`
	KernelCQs   *int64    `json:"kernel_cqs"`
	KernelMRs   *int64    `json:"kernel_mrs"`
}

// ErrorDoc is a failure with what is known of where it happened.
type ErrorDoc struct {
	Kind  string      `json:"kind"`
	Ranks []rank.Rank `json:"ranks"`
	Proc  *rank.Proc  `json:"proc"`
	Host  string      `json:"host"`
	Phase string      `json:"phase"`
	Step  string      `json:"step"`
	Peer  *rank.Rank  `json:"peer"`
	Text  string      `json:"text"` // the whole line as it is printed
}

// Cause is one reason for what is slow or failed, with the evidence for it.
type Cause struct {
	Kind     string     `json:"kind"` // see Diagnose
	Rank     *rank.Rank `json:"rank"`
	Proc     *rank.Proc `json:"proc"`
	Host     string     `json:"host"`
	Phase    string     `json:"phase"`
	ValueNS  *int64     `json:"value_ns"` // how late, how long
	Count    *int64     `json:"count"`    // how many connections, descriptors …
	Evidence string     `json:"evidence"` // one line, complete in itself
	Fix      string     `json:"fix"`      // what to do, may be empty
}

// Loss is one process that was lost: when its control link said so, which is
// what the job acts on, and when gossip first thought so, ns since the start of
// the run.
type Loss struct {
	Proc     rank.Proc `json:"proc"`
	Host     string    `json:"host"`
	Phase    string    `json:"phase"`
	LinkNS   *int64    `json:"link_ns"`   // null: only gossip suspected it
	GossipNS *int64    `json:"gossip_ns"` // null: gossip had not noticed by then
}

// ProgressDoc is where a job stood when it was broken off.
type ProgressDoc struct {
	Phase string `json:"phase"`
	Round int32  `json:"round"`
	Stage int32  `json:"stage"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
}

// Exit is how the job ended.
type Exit struct {
	Code    int       `json:"code"`
	Cause   *string   `json:"cause"` // kind of the first cause, null if clean
	Text    string    `json:"text"`  // one line, "" if clean
	Partial bool      `json:"partial"`
	Error   *ErrorDoc `json:"error"` // the first cause in parts, null if clean
}

// Leak is a resource that a process did not give back.
type Leak struct {
	Proc          rank.Proc
	Host          string
	What          string // "fds", "process fds", "connections", "listeners", "goroutines"
	Before, After int64
}
