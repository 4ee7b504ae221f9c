package phases

import (
	"time"

	"rankstorm/rank"
)

// ShapeKind is how the initiators of a job start their connects.
type ShapeKind uint8

// The shapes of --connect.
const (
	Burst    ShapeKind = iota // all at once
	Parallel                  // at most W under way per rank
	Rate                      // R per second over the whole job, open loop
)

// Shape of a connect storm.
type Shape struct {
	Kind  ShapeKind
	Slots int     // Parallel: W ≥ 1, from connect to answer, per rank
	PerS  float64 // Rate: connections per second of the whole job, > 0
}

// Delay holds one rank's workers (initiator and acceptor) at the start of a phase.
type Delay struct {
	Rank  rank.Rank
	Phase Token
	For   time.Duration
}

// Hold makes every process wait after its own work of a phase, before it reports.
type Hold struct {
	Phase Token
	For   time.Duration
}

// Spec is everything job-wide that was asked for: the same at every process,
// compared by the knock, published in the document.
type Spec struct {
	Procs        int // P ≥ 1
	RanksPerProc int // k ≥ 1
	Topology     rank.Params
	Connections  int // per edge, ≥ 1
	Threads      int // workers per rank, ≥ 1
	Transport    string
	Shape        Shape
	Rounds       int           // ≥ 1
	Mimic        time.Duration // 0 = off
	Backlog      int           // 0 = the provider's largest
	Seed         uint64
	Holds        []Hold
	Delays       []Delay

	JoinTimeout     time.Duration
	PhaseTimeout    time.Duration
	LivenessTimeout time.Duration
	MaxTime         time.Duration // 0 = none
	TreeArity       int
	ProcsPerAgent   int
	Secret          bool // the job has one; which one is never said
}
