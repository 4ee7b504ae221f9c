package phases

import (
	"fmt"
	"strconv"
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

// Pass is what one round sets up, where rounds differ.
type Pass struct {
	Connections int           // per edge, at most the Spec's; 0: those
	NoQPs       bool          // queue pair steps are sleeps, see Delay
	Delay       time.Duration // of each of these sleeps, ≥ 0; only with NoQPs
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
	Options      map[string]string // of the transport's provider
	Shape        Shape
	Rounds       int           // 0 = until MaxTime is over or a signal
	Mimic        time.Duration // 0 = off
	Backlog      int           // 0 = the provider's largest
	Seed         uint64
	Holds        []Hold
	Delays       []Delay
	Passes       []Pass // one per round; none: all rounds are alike
	NoProbe      bool   // no first round trip: no data is sent after the set-up
	// FromCreate adds a row to the connect phase: from the moment that a connection's creation began to its full
	// connect, without the waits between the phases.
	FromCreate bool

	// Face lists what another command line was given that the job follows from, by its own names ("-S"): they come
	// before our own where processes differ. Empty without a face.
	Face []rank.KV

	JoinTimeout     time.Duration
	PhaseTimeout    time.Duration
	LivenessTimeout time.Duration
	MaxTime         time.Duration // 0 = none
	TreeArity       int
	ProcsPerAgent   int
	Secret          bool // the job has one; which one is never said
}

// Pass is what a round sets up.
func (s Spec) Pass(round int32) Pass {
	if round >= 0 && int(round) < len(s.Passes) {
		p := s.Passes[round]
		if p.Connections == 0 {
			p.Connections = s.Connections
		}
		return p
	}
	return Pass{Connections: s.Connections, NoQPs: s.Mimic > 0, Delay: s.Mimic}
}

// Plays says whether any round goes without queue pairs.
func (s Spec) Plays() bool {
	for _, p := range s.Passes {
		if p.NoQPs {
			return true
		}
	}
	return len(s.Passes) == 0 && s.Mimic > 0
}

// String is the pass in settings: different passes, different texts.
func (p Pass) String() string {
	conns := "all"
	if p.Connections != 0 {
		conns = strconv.Itoa(p.Connections)
	}
	return fmt.Sprintf("%s connections, queue pairs %t, delay %s", conns, !p.NoQPs, p.Delay)
}
