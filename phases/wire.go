package phases

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/rank"
)

// Bounds of an encoded message. A decoder refuses more before it allocates.
const (
	MaxMessageBytes = 256 << 20 // whole message; a merged summary of 100,000 ranks has about 50 MB
	maxCauseRanks   = 4096      // ranks named by a cause; the text counts the rest
	maxCauseText    = 4096      // bytes of each text of a cause
)

const (
	wireVersion   = 3
	messageFields = 16
	causeFields   = 9
)

// EncodeMessage makes the wire form: a msgpack array of version, type, seq, T,
// covers, failed, done, total, code, cause, body, epoch, of, all, orphans, last. Sets travel as runs (gap,
// length, gap, length … as unsigned varints), because the sets of a tree are
// few runs: 100,000 processes take some bytes, not 12 KB. A cause's Err is
// flattened into its text.
func EncodeMessage(m Message) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(64 + len(m.Body))
	e := msgpack.NewEncoder(&buf)
	e.UseCompactInts(true)
	// Writes to a bytes.Buffer cannot fail, so the only error worth having is
	// that of the bounds.
	covers, err := encodeRuns(m.Covers)
	if err != nil {
		return nil, err
	}
	orphans, err := encodeRuns(m.Orphans)
	if err != nil {
		return nil, err
	}
	if len(m.Body)+len(covers)+len(orphans) > MaxMessageBytes-(1<<16) {
		return nil, rank.Errorf(rank.KindInternal, "%s message of slot %d is too large: %d bytes, at most %d", m.Type, m.Seq, len(m.Body), MaxMessageBytes)
	}
	err = first(
		e.EncodeArrayLen(messageFields),
		e.EncodeUint(wireVersion),
		e.EncodeUint(uint64(m.Type)),
		e.EncodeInt(int64(m.Seq)),
		e.EncodeInt(m.T),
		e.EncodeBytes(covers),
		e.EncodeInt(m.Failed),
		e.EncodeInt(m.Done),
		e.EncodeInt(m.Total),
		e.EncodeInt(int64(m.Code)),
		encodeCause(e, m.Cause),
		e.EncodeBytes(m.Body),
		e.EncodeInt(m.Epoch),
		e.EncodeUint(uint64(m.Of)),
		e.EncodeBool(m.All),
		e.EncodeBytes(orphans),
		e.EncodeBool(m.Last),
	)
	if err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func encodeCause(e *msgpack.Encoder, c *rank.Error) error {
	if c == nil {
		return e.EncodeNil()
	}
	text := c.Text
	if text == "" && c.Err != nil {
		text = c.Err.Error()
	}
	ranks := c.Ranks[:min(len(c.Ranks), maxCauseRanks)]
	err := first(
		e.EncodeArrayLen(causeFields),
		e.EncodeUint(uint64(c.Kind)),
		e.EncodeInt(int64(c.Proc)),
		e.EncodeInt(int64(c.Peer)),
		e.EncodeInt(int64(c.Signal)),
		e.EncodeString(clip(c.Host)),
		e.EncodeString(clip(c.Phase)),
		e.EncodeString(clip(c.Step)),
		e.EncodeString(clip(text)),
		e.EncodeArrayLen(len(ranks)),
	)
	for _, r := range ranks {
		err = first(err, e.EncodeInt(int64(r)))
	}
	return err
}

// clip bounds a text and keeps it on one line.
func clip(s string) string {
	s = strings.ReplaceAll(s, "\n", " ")
	if len(s) > maxCauseText {
		s = strings.ToValidUTF8(s[:maxCauseText-3], "") + "..."
	}
	return s
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// DecodeMessage reads what EncodeMessage wrote. Anything else (another
// version, unknown types, sizes beyond the bounds, bytes left over) is an
// error of KindRejected; it never panics and never allocates more than the
// input's length asks for, plus 128 KiB for each set.
func DecodeMessage(b []byte) (Message, error) {
	m, err := decodeMessage(b)
	if err != nil {
		return Message{}, rank.Errorf(rank.KindRejected, "malformed phase message: %w", err)
	}
	return m, nil
}

func decodeMessage(b []byte) (Message, error) {
	var m Message
	if len(b) > MaxMessageBytes {
		return m, fmt.Errorf("%d bytes, at most %d", len(b), MaxMessageBytes)
	}
	r := bytes.NewReader(b)
	d := reader{d: msgpack.NewDecoder(r), in: r}
	d.array(messageFields)
	if v := d.int(0, 1<<31-1); d.err == nil && v != wireVersion {
		return m, fmt.Errorf("version %d, want %d", v, wireVersion)
	}
	m.Type = Type(d.int(int64(Prepare), int64(Bye)))
	m.Seq = int32(d.int(-1, 1<<31-1))
	m.T = d.int(-1<<63, 1<<63-1)
	covers := d.bytes()
	m.Failed = d.int(0, 1<<63-1)
	m.Done = d.int(0, 1<<63-1)
	m.Total = d.int(0, 1<<63-1)
	m.Code = int(d.int(0, 255))
	m.Cause = d.cause()
	m.Body = d.bytes()
	m.Epoch = d.int(0, 1<<63-1)
	m.Of = Type(d.int(0, int64(Bye)))
	m.All = d.bool()
	orphans := d.bytes()
	m.Last = d.bool()
	if d.err == nil && r.Len() > 0 {
		d.err = fmt.Errorf("%d bytes left over", r.Len())
	}
	if d.err == nil {
		m.Covers, d.err = decodeRuns(covers)
	}
	if d.err == nil {
		m.Orphans, d.err = decodeRuns(orphans)
	}
	return m, d.err
}

// reader decodes field by field and keeps the first error. The reflective
// decoder is avoided on purpose: it trusts the length of a list and allocates
// all of it.
type reader struct {
	d   *msgpack.Decoder
	in  *bytes.Reader
	err error
}

func (r *reader) array(want int) {
	if r.err != nil {
		return
	}
	n, err := r.d.DecodeArrayLen()
	if err == nil && n != want {
		err = fmt.Errorf("%d fields, want %d", n, want)
	}
	r.err = err
}

func (r *reader) int(low, high int64) int64 {
	if r.err != nil {
		return 0
	}
	v, err := r.d.DecodeInt64()
	if err == nil && (v < low || v > high) {
		err = fmt.Errorf("%d is not in %d..%d", v, low, high)
	}
	r.err = err
	return v
}

func (r *reader) bool() bool {
	if r.err != nil {
		return false
	}
	var v bool
	v, r.err = r.d.DecodeBool()
	return v
}

func (r *reader) bytes() []byte {
	if r.err != nil {
		return nil
	}
	n, err := r.d.DecodeBytesLen()
	if err == nil && n > r.in.Len() {
		err = fmt.Errorf("%d bytes announced, %d left", n, r.in.Len())
	}
	if r.err = err; err != nil || n <= 0 {
		return nil
	}
	b := make([]byte, n)
	r.err = r.d.ReadFull(b)
	return b
}

func (r *reader) text() string {
	b := r.bytes()
	if r.err == nil && len(b) > maxCauseText {
		r.err = fmt.Errorf("text of %d bytes, at most %d", len(b), maxCauseText)
	}
	return string(b)
}

func (r *reader) cause() *rank.Error {
	if r.err != nil {
		return nil
	}
	n, err := r.d.DecodeArrayLen()
	if err == nil && n == -1 { // nil
		return nil
	}
	if err == nil && n != causeFields {
		err = fmt.Errorf("cause of %d fields, want %d", n, causeFields)
	}
	r.err = err
	c := &rank.Error{
		Kind:   rank.Kind(r.int(0, int64(rank.KindCancelled))),
		Proc:   rank.Proc(r.int(-1, MaxProcs-1)),
		Peer:   rank.Rank(r.int(-1, 1<<31-1)),
		Signal: int(r.int(0, 127)),
		Host:   r.text(),
		Phase:  r.text(),
		Step:   r.text(),
		Text:   r.text(),
	}
	if r.err != nil {
		return nil
	}
	if n, r.err = r.d.DecodeArrayLen(); r.err == nil && n > maxCauseRanks {
		r.err = fmt.Errorf("cause names %d ranks, at most %d", n, maxCauseRanks)
	}
	for i := 0; i < n && r.err == nil; i++ {
		c.Ranks = append(c.Ranks, rank.Rank(r.int(0, 1<<31-1)))
	}
	return c
}

// encodeRuns writes a set as alternating lengths: how many are out, how many
// are in, and so on, as unsigned varints; the empty set is empty.
func encodeRuns(s ProcSet) ([]byte, error) {
	var b []byte
	next := int64(0) // first process not yet told
	start, end := int64(-1), int64(-1)
	flush := func() {
		if start >= 0 {
			b = binary.AppendUvarint(b, uint64(start-next))
			b = binary.AppendUvarint(b, uint64(end-start))
			next = end
		}
	}
	for p := range s.All() {
		if p >= MaxProcs {
			return nil, rank.Errorf(rank.KindInternal, "process %d is beyond the limit of %d", p, MaxProcs)
		}
		if int64(p) != end {
			flush()
			start = int64(p)
		}
		end = int64(p) + 1
	}
	flush()
	return b, nil
}

func decodeRuns(b []byte) (ProcSet, error) {
	if len(b) > 2*MaxProcs {
		return nil, fmt.Errorf("process set of %d bytes", len(b))
	}
	var s ProcSet
	next := uint64(0)
	for len(b) > 0 {
		gap, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("process set is cut off")
		}
		b = b[n:]
		run, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("process set is cut off")
		}
		b = b[n:]
		if gap >= MaxProcs || run > MaxProcs || next+gap+run > MaxProcs {
			return nil, fmt.Errorf("process set goes beyond %d", MaxProcs)
		}
		if run == 0 || gap == 0 && next > 0 {
			return nil, fmt.Errorf("process set has an empty run")
		}
		next += gap
		s.addRange(next, next+run)
		next += run
	}
	return s, nil
}

// addRange adds the processes from … to-1.
func (s *ProcSet) addRange(from, to uint64) {
	if need := int(to+63) / 64; need > len(*s) {
		*s = append(*s, make(ProcSet, need-len(*s))...)
	}
	for from < to {
		end := min(to, from/64*64+64)
		mask := ^uint64(0) << (from % 64)
		if r := end % 64; r != 0 {
			mask &= 1<<r - 1
		}
		(*s)[from/64] |= mask
		from = end
	}
}
