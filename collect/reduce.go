package collect

import (
	"fmt"

	"rankstorm/rank"
	"rankstorm/transport"
)

// Sides of a step.
const (
	SideInitiator = "initiator"
	SideTarget    = "target"
	SideEndpoint  = "endpoint" // listen, register: per rank, not per connection
)

// FromCreate is the row from the moment that a connection's creation began to
// its full connect, without the waits between phases: they are taken off the
// beginning.
const FromCreate = "create to connect"

// MimicName is the row of what was slept in place of a step, apart from a
// provider's real one.
func MimicName(step string) string { return step + " (mimic)" }

// WorkerStamps are the stamps of one worker of a rank.
type WorkerStamps struct {
	Stamps *Stamps
	First  int // connection indices First … First+N-1 are reduced
	N      int
	// Edge names connection i and its class. An endpoint's "connection" is
	// EdgeConn{From: own rank, To: rank.None}.
	Edge func(i int) (EdgeConn, Class)
}

// StepInput is what ReduceStep reduces: one step of one rank in one slot.
type StepInput struct {
	Step     transport.Step
	Name     string // "" = Step.String(); mimic rows have their own
	Side     string // "" = SideTarget if Step.TargetSide(), else SideInitiator
	Order    int32  // position in the table
	Rank     rank.Rank
	OffsetNS int64 // root's clock = own clock + offset; applied to begin and end
	Workers  []WorkerStamps
	Scratch  *Histogram // reused over calls if given; reset here
}

// ReduceStep makes one rank's share of a step: count, sum, min, max (ties go to
// the lowest edge), moments per class, first begin and last end on the root's
// clock, histogram, failures by cause. A sample is a step that succeeded; a
// failed one counts in Failures only. A duration below 0 or above 1 h is an
// error that names the connection: no figure may be clamped or dropped.
func ReduceStep(in StepInput) (StepSum, error) {
	out := StepSum{Step: in.Name, Side: in.Side, Order: in.Order}
	if out.Step == "" {
		out.Step = in.Step.String()
	}
	if out.Side == "" {
		out.Side = SideInitiator
		if in.Step.TargetSide() {
			out.Side = SideTarget
		}
	}
	var hist recorder
	if in.samples() <= fewSamples {
		hist = &indexList{}
	} else {
		if in.Scratch == nil {
			in.Scratch = NewHistogram()
		}
		in.Scratch.Reset()
		hist = in.Scratch
	}
	own := RankSum{Rank: in.Rank}
	for _, w := range in.Workers {
		for i := w.First; i < w.First+w.N; i++ {
			if cause := w.Stamps.Failed(in.Step, i); cause != transport.CauseNone {
				if out.Failures == nil {
					out.Failures = map[string]int64{}
				}
				out.Failures[cause.String()]++
				own.Failed++
				continue
			}
			begin, end, ok := w.Stamps.Get(in.Step, i)
			if !ok {
				continue
			}
			edge, class := w.Edge(i)
			ns := end - begin
			if err := hist.Record(ns); err != nil {
				return StepSum{}, fmt.Errorf("rank %d: %s: connection %d of edge %d to %d: %w", in.Rank, out.Step, edge.Conn, edge.From, edge.To, err)
			}
			begin, end = begin+in.OffsetNS, end+in.OffsetNS
			if own.Count == 0 || begin < own.FirstBegin {
				own.FirstBegin = begin
			}
			if own.Count == 0 || end > own.LastEnd {
				own.LastEnd = end
			}
			one := Moments{Count: 1, SumNS: ns, MinNS: ns, MaxNS: ns, MinEdge: edge, MaxEdge: edge}
			if err := own.Moments.add(one); err != nil {
				return StepSum{}, fmt.Errorf("rank %d: %s: %w", in.Rank, out.Step, err)
			}
			if class == ClassNone {
				continue
			}
			if out.Classes == nil {
				out.Classes = map[Class]Moments{}
			}
			m := out.Classes[class]
			if err := m.add(one); err != nil {
				return StepSum{}, fmt.Errorf("rank %d: %s: %w", in.Rank, out.Step, err)
			}
			out.Classes[class] = m
		}
	}
	out.Total = own.Moments
	out.FirstBegin, out.LastEnd = own.FirstBegin, own.LastEnd
	out.Hist = hist.Buckets()
	if own.Count > 0 || own.Failed > 0 {
		out.PerRank = []RankSum{own}
	}
	return out, nil
}

func (in *StepInput) samples() int {
	n := 0
	for _, w := range in.Workers {
		n += w.N
	}
	return n
}

// add merges other into m: counts and sums add, min and max keep the edge that
// caused them, the lowest edge on a tie so that order never matters.
func (m *Moments) add(other Moments) error {
	if other.Count == 0 {
		return nil
	}
	if m.Count == 0 {
		*m = other
		return nil
	}
	count, ok1 := addCount(m.Count, other.Count)
	sum, ok2 := addCount(m.SumNS, other.SumNS)
	if !ok1 || !ok2 {
		return fmt.Errorf("the sum of %d and more durations overflows 292 years", m.Count)
	}
	m.Count, m.SumNS = count, sum
	if other.MinNS < m.MinNS || other.MinNS == m.MinNS && other.MinEdge.compare(m.MinEdge) < 0 {
		m.MinNS, m.MinEdge = other.MinNS, other.MinEdge
	}
	if other.MaxNS > m.MaxNS || other.MaxNS == m.MaxNS && other.MaxEdge.compare(m.MaxEdge) < 0 {
		m.MaxNS, m.MaxEdge = other.MaxNS, other.MaxEdge
	}
	return nil
}
