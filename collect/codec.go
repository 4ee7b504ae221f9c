package collect

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/internal/wellformed"
)

// MaxSummaryBytes bounds an encoded summary: 16,384 ranks with 20 steps need
// about 40 MB.
const MaxSummaryBytes = 64 << 20

// maxNesting is deeper than any summary goes.
const maxNesting = 12

// EncodeSummary makes the msgpack form of a summary, normalized. Equal summaries
// give equal bytes. An entry that stands twice is an error.
func EncodeSummary(s *Summary) ([]byte, error) {
	normal := *s
	if err := normal.Normalize(); err != nil {
		return nil, fmt.Errorf("encode summary: %w", err)
	}
	return marshalSummary(&normal)
}

func marshalSummary(s *Summary) ([]byte, error) {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("encode summary of slot %d (%s): %w", s.Seq, s.Phase, err)
	}
	if b.Len() > MaxSummaryBytes {
		return nil, fmt.Errorf("encode summary of slot %d (%s): %d bytes are more than the %d allowed", s.Seq, s.Phase, b.Len(), MaxSummaryBytes)
	}
	return b.Bytes(), nil
}

// DecodeSummary is the inverse. It takes no more memory than a fixed multiple of
// len(b), refuses trailing bytes, unknown keys and whatever breaks the rules
// that Merge relies on: ascending lists, counts that agree with each other.
func DecodeSummary(b []byte) (*Summary, error) {
	if len(b) > MaxSummaryBytes {
		return nil, fmt.Errorf("decode summary: %d bytes are more than the %d allowed", len(b), MaxSummaryBytes)
	}
	if err := wellformed.Msgpack(b, maxNesting); err != nil {
		return nil, fmt.Errorf("decode summary: %w", err)
	}
	dec := msgpack.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields(true)
	s := &Summary{}
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("decode summary: %w", err)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("decode summary of slot %d (%.20q): %w", s.Seq, s.Phase, err)
	}
	return s, nil
}

// stepWire is a StepSum on the wire: its maps as ascending lists, since the
// library writes maps in random order.
type stepWire struct {
	Step       string        `msgpack:"st"`
	Side       string        `msgpack:"sd"`
	Order      int32         `msgpack:"o"`
	Total      Moments       `msgpack:"m"`
	Classes    []classWire   `msgpack:"k"`
	FirstBegin int64         `msgpack:"b"`
	LastEnd    int64         `msgpack:"e"`
	Hist       []Bucket      `msgpack:"h"`
	PerRank    []RankSum     `msgpack:"p"`
	Failures   []failureWire `msgpack:"f"`
}

type classWire struct {
	Class Class `msgpack:"k"`
	Moments
}

type failureWire struct {
	Cause string `msgpack:"c"`
	Count int64  `msgpack:"n"`
}

// EncodeMsgpack writes the step with its maps in order.
func (s StepSum) EncodeMsgpack(enc *msgpack.Encoder) error {
	w := stepWire{
		Step: s.Step, Side: s.Side, Order: s.Order, Total: s.Total, FirstBegin: s.FirstBegin, LastEnd: s.LastEnd,
		Hist: s.Hist, PerRank: s.PerRank,
	}
	for _, class := range slices.Sorted(maps.Keys(s.Classes)) {
		w.Classes = append(w.Classes, classWire{class, s.Classes[class]})
	}
	for _, cause := range slices.Sorted(maps.Keys(s.Failures)) {
		w.Failures = append(w.Failures, failureWire{cause, s.Failures[cause]})
	}
	return enc.Encode(&w)
}

// DecodeMsgpack is the inverse; an entry that comes twice is an error.
func (s *StepSum) DecodeMsgpack(dec *msgpack.Decoder) error {
	var w stepWire
	if err := dec.Decode(&w); err != nil {
		return err
	}
	*s = StepSum{
		Step: w.Step, Side: w.Side, Order: w.Order, Total: w.Total, FirstBegin: w.FirstBegin, LastEnd: w.LastEnd,
		Hist: w.Hist, PerRank: w.PerRank,
	}
	if len(w.Classes) > 0 {
		s.Classes = make(map[Class]Moments, len(w.Classes))
	}
	for _, c := range w.Classes {
		if _, twice := s.Classes[c.Class]; twice {
			return fmt.Errorf("step %.40q: class %d comes twice", w.Step, c.Class)
		}
		s.Classes[c.Class] = c.Moments
	}
	if len(w.Failures) > 0 {
		s.Failures = make(map[string]int64, len(w.Failures))
	}
	for _, f := range w.Failures {
		if _, twice := s.Failures[f.Cause]; twice {
			return fmt.Errorf("step %.40q: failures by %.20q come twice", w.Step, f.Cause)
		}
		s.Failures[f.Cause] = f.Count
	}
	return nil
}

// validate checks what Merge and the document rely on.
func (s *Summary) validate() error {
	for i, st := range s.Steps {
		if err := st.validate(); err != nil {
			return fmt.Errorf("step %.40q: %w", st.Step, err)
		}
		if i > 0 && s.Steps[i-1].compare(st) >= 0 {
			return fmt.Errorf("step %.40q is out of order", st.Step)
		}
	}
	c := s.Conns
	for _, n := range []int64{c.Started, c.Established, c.Accepted, c.Dead, c.Failed, c.Broken, s.EdgesMore, s.ErrorsMore, s.PausesMore} {
		if n < 0 {
			return errors.New("a count is negative")
		}
	}
	for _, e := range s.Edges {
		if math.IsNaN(e.Weight) || math.IsInf(e.Weight, 0) {
			return fmt.Errorf("edge %d to %d: weight is not a number", e.From, e.To)
		}
		if e.Planned < 0 || e.Established < 0 || e.Failed < 0 || e.Broken < 0 || e.SumNS < 0 || e.MaxNS < 0 {
			return fmt.Errorf("edge %d to %d: a figure is negative", e.From, e.To)
		}
	}
	for i, t := range s.Targets {
		if t.Rank < 0 || t.Established < 0 || t.SumNS < 0 || i > 0 && s.Targets[i-1].Rank >= t.Rank {
			return fmt.Errorf("sum of target %d is out of range or order", t.Rank)
		}
	}
	if h := s.Held; h != nil {
		if err := h.validate(); err != nil {
			return err
		}
	}
	if err := validatePorts(s.Ports); err != nil {
		return err
	}
	for _, p := range s.Pauses {
		if p.When != PauseBefore && p.When != PauseIn && p.When != PauseAfter {
			return fmt.Errorf("pause of process %d: %.20q is no time", p.Proc, p.When)
		}
		if p.GapNS < 0 || p.WaitNS < -1 || p.WaitNS > p.GapNS || p.RunNS < -1 || p.RunNS > p.GapNS {
			return fmt.Errorf("pause of process %d: %d ns, %d waited and %d run, is none", p.Proc, p.GapNS, p.WaitNS, p.RunNS)
		}
	}
	if len(s.Errors) > MaxErrors {
		return fmt.Errorf("%d errors are more than the %d allowed", len(s.Errors), MaxErrors)
	}
	// Merging with nothing finds lists that are out of order or hold doubles.
	return Merge(&Summary{}, s)
}

func (s *StepSum) validate() error {
	if s.Side != SideInitiator && s.Side != SideTarget && s.Side != SideEndpoint {
		return fmt.Errorf("side %.20q is unknown", s.Side)
	}
	if err := s.Total.validate(); err != nil {
		return err
	}
	var inHist int64
	for i, b := range s.Hist {
		if b.Index < 0 || b.Index > maxIndex || b.Count <= 0 || i > 0 && s.Hist[i-1].Index >= b.Index {
			return fmt.Errorf("histogram bucket %d is out of range or order", b.Index)
		}
		var ok bool
		if inHist, ok = addCount(inHist, b.Count); !ok {
			return errors.New("the histogram's count overflows")
		}
	}
	if inHist != s.Total.Count {
		return fmt.Errorf("the histogram holds %d values, the total %d", inHist, s.Total.Count)
	}
	var failed, failedOfRanks int64
	for cause, n := range s.Failures {
		if n <= 0 || failed > math.MaxInt64-n {
			return fmt.Errorf("failures by %.20q: count %d is out of range", cause, n)
		}
		failed += n
	}
	var sum Moments
	for _, r := range s.PerRank {
		if err := r.Moments.validate(); err != nil {
			return fmt.Errorf("rank %d: %w", r.Rank, err)
		}
		if r.Failed < 0 || failedOfRanks > math.MaxInt64-r.Failed {
			return fmt.Errorf("rank %d: failed count %d is out of range", r.Rank, r.Failed)
		}
		failedOfRanks += r.Failed
		if err := sum.add(r.Moments); err != nil {
			return err
		}
	}
	if sum != s.Total {
		return errors.New("the ranks' figures do not add up to the total")
	}
	if failed != failedOfRanks {
		return fmt.Errorf("%d failures by cause, %d by rank", failed, failedOfRanks)
	}
	var classed int64
	for _, m := range s.Classes {
		if err := m.validate(); err != nil {
			return err
		}
		if classed > s.Total.Count-m.Count {
			return errors.New("the classes hold more than the total")
		}
		classed += m.Count
	}
	return nil
}

func (m Moments) validate() error {
	if m.Count < 0 || m.SumNS < 0 || m.MinNS < 0 || m.MaxNS < m.MinNS || m.MaxNS > highestNS {
		return fmt.Errorf("moments %+v are out of range", m)
	}
	if m.Count == 0 && m != (Moments{}) {
		return errors.New("moments without a count are not empty")
	}
	return nil
}
