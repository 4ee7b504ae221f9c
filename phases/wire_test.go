package phases

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"rankstorm/rank"
	"rankstorm/test/corpus"
)

// sameMessage ignores what the wire does not keep: nil against empty, and
// trailing zero words of a set.
var sameMessage = cmp.Options{
	cmp.Comparer(func(a, b ProcSet) bool { return slices.Equal(slices.Collect(a.All()), slices.Collect(b.All())) }),
	cmp.Comparer(bytes.Equal),
	cmp.Comparer(slices.Equal[[]rank.Rank]),
}

func drawMessage(t *rapid.T) Message {
	covers, _ := drawSet(t, "covers")
	orphans, _ := drawSet(t, "orphans")
	m := Message{
		Type:   Type(rapid.IntRange(int(Prepare), int(Bye)).Draw(t, "type")),
		Seq:    rapid.Int32Range(-1, 1<<31-1).Draw(t, "seq"),
		T:      rapid.Int64().Draw(t, "T"),
		Covers: covers,
		Failed: rapid.Int64Range(0, 1<<62).Draw(t, "failed"),
		Done:   rapid.Int64Range(0, 1<<62).Draw(t, "done"),
		Total:  rapid.Int64Range(0, 1<<62).Draw(t, "total"),
		Code:   rapid.IntRange(0, 255).Draw(t, "code"),
		Body:   rapid.SliceOf(rapid.Byte()).Draw(t, "body"),

		Epoch:   rapid.Int64Range(0, 1<<62).Draw(t, "epoch"),
		Of:      Type(rapid.IntRange(0, int(Bye)).Draw(t, "of")),
		All:     rapid.Bool().Draw(t, "all"),
		Orphans: orphans,
		Last:    rapid.Bool().Draw(t, "last"),
	}
	if rapid.Bool().Draw(t, "has cause") {
		text := rapid.StringMatching(`[a-z :]{0,30}`)
		m.Cause = &rank.Error{
			Kind:   rank.Kind(rapid.IntRange(0, int(rank.KindCancelled)).Draw(t, "kind")),
			Proc:   rank.Proc(rapid.Int32Range(-1, MaxProcs-1).Draw(t, "proc")),
			Peer:   rank.Rank(rapid.Int32Range(-1, 1<<31-1).Draw(t, "peer")),
			Signal: rapid.IntRange(0, 64).Draw(t, "signal"),
			Host:   text.Draw(t, "host"),
			Phase:  text.Draw(t, "phase"),
			Step:   text.Draw(t, "step"),
			Text:   text.Draw(t, "text"),
		}
		for _, r := range rapid.SliceOf(rapid.Int32Range(0, 1<<31-1)).Draw(t, "ranks") {
			m.Cause.Ranks = append(m.Cause.Ranks, rank.Rank(r))
		}
	}
	return m
}

func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		b, err := EncodeMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got, sameMessage); d != "" {
			t.Fatal(d)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := DecodeMessage(b[:cut]); err == nil {
			t.Fatalf("%d of %d bytes were accepted", cut, len(b))
		}
		if _, err := DecodeMessage(append(b, 0)); err == nil {
			t.Fatal("a byte too many was accepted")
		}
	})
}

func TestEncodeFlattensAndClipsTheCause(t *testing.T) {
	e := rank.Errorf(rank.KindLost, "a\nb")
	e.Text, e.Err = "", errors.New("line one\n"+strings.Repeat("x", 10_000))
	for range 10_000 {
		e.Ranks = append(e.Ranks, 7)
	}
	b, err := EncodeMessage(Message{Type: Lost, Cause: e})
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Cause.Text) != maxCauseText || !strings.HasPrefix(m.Cause.Text, "line one xxx") || len(m.Cause.Ranks) != maxCauseRanks {
		t.Errorf("text of %d bytes, %d ranks", len(m.Cause.Text), len(m.Cause.Ranks))
	}
}

// A full set of 100,000 processes must not cost more than a few bytes.
func TestCoversAreSmall(t *testing.T) {
	b, err := EncodeMessage(Message{Type: Ready, Seq: 1, Covers: Full(100_000)})
	if err != nil || len(b) > 32 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := EncodeMessage(Message{Type: Ready, Covers: SetOf(MaxProcs)}); err == nil {
		t.Error("a process beyond the limit was encoded")
	}
}

func TestEncodeRefusesAHugeBody(t *testing.T) {
	// Never touched, so it costs address space only.
	if _, err := EncodeMessage(Message{Type: Summary, Body: make([]byte, MaxMessageBytes)}); err == nil {
		t.Error("a body beyond the limit was encoded")
	}
}

// raw is an encoded message of the given fields.
func raw(t testing.TB, fields ...any) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := msgpack.NewEncoder(&buf).Encode(fields); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestDecodeRefuses(t *testing.T) {
	cause := func(change func(c []any)) []any {
		c := []any{0, -1, -1, 0, "h", "p", "s", "t", []int{}}
		change(c)
		return c
	}
	with := func(change func(m []any)) []byte {
		m := []any{3, 1, 0, 0, []byte{}, 0, 0, 0, 0, nil, []byte{}, 0, 0, false, []byte{}, false}
		change(m)
		return raw(t, m...)
	}
	if _, err := DecodeMessage(with(func([]any) {})); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	for name, b := range map[string][]byte{
		"empty":              nil,
		"garbage":            []byte("GET / HTTP/1.1\r\n"),
		"too few fields":     raw(t, 2, 1),
		"version":            with(func(m []any) { m[0] = 1 }),
		"type 0":             with(func(m []any) { m[1] = 0 }),
		"unknown type":       with(func(m []any) { m[1] = int(Bye) + 1 }),
		"seq":                with(func(m []any) { m[2] = -2 }),
		"failed":             with(func(m []any) { m[5] = -1 }),
		"code":               with(func(m []any) { m[8] = 256 }),
		"covers cut":         with(func(m []any) { m[4] = []byte{0x80} }),
		"covers half":        with(func(m []any) { m[4] = []byte{1} }),
		"covers empty run":   with(func(m []any) { m[4] = []byte{1, 0} }),
		"covers beyond":      with(func(m []any) { m[4] = []byte{0, 0xff, 0xff, 0xff, 0x7f} }),
		"covers wrap":        with(func(m []any) { m[4] = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1} }),
		"covers not bytes":   with(func(m []any) { m[4] = 7 }),
		"cause kind":         with(func(m []any) { m[9] = cause(func(c []any) { c[0] = 99 }) }),
		"cause text":         with(func(m []any) { m[9] = cause(func(c []any) { c[7] = strings.Repeat("x", maxCauseText+1) }) }),
		"cause ranks":        with(func(m []any) { m[9] = cause(func(c []any) { c[8] = make([]int, maxCauseRanks+1) }) }),
		"cause fields":       with(func(m []any) { m[9] = []int{1} }),
		"epoch":              with(func(m []any) { m[11] = -1 }),
		"of":                 with(func(m []any) { m[12] = int(Bye) + 1 }),
		"all":                with(func(m []any) { m[13] = 1 }),
		"last":               with(func(m []any) { m[15] = 1 }),
		"orphans cut":        with(func(m []any) { m[14] = []byte{0x80} }),
		"body announced 4GB": append(with(func(m []any) { m[10] = 0 })[:11], 0xc6, 0xff, 0xff, 0xff, 0xff),
	} {
		_, err := DecodeMessage(b)
		var e *rank.Error
		if !errors.As(err, &e) || e.Kind != rank.KindRejected || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line of KindRejected", name, err)
		}
	}
}

// What is committed for the fuzz target is of the version that is spoken.
func TestCorpusIsOfToday(t *testing.T) {
	for name, b := range corpus.Bytes(t, "FuzzDecodeMessage") {
		if _, err := DecodeMessage(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range []Message{
		{Type: Prepare, Seq: 3},
		{Type: Prepare, Seq: 4, Last: true},
		{Type: Go, Seq: 1, T: 1 << 60},
		{Type: Resume, Seq: 1, Epoch: 3<<32 + 1, Of: Abort, All: true, Covers: SetOf(0, 2)},
		{Type: Lost, Covers: SetOf(1), Orphans: SetOf(4, 5)},
		{Type: Done, Covers: Full(70), Failed: 9, Body: []byte("body")},
		{Type: Lost, Covers: SetOf(1, 3, 200), Cause: &rank.Error{Kind: rank.KindLost, Proc: 3, Peer: -1, Host: "n1", Ranks: []rank.Rank{6, 7}, Text: "EOF"}},
		{Type: Bye, Seq: -1, Code: 130},
	} {
		b, err := EncodeMessage(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x9b, 1, 1, 0, 0, 0xc4, 0xff})
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			return
		}
		again, err := EncodeMessage(m)
		if err != nil {
			t.Fatalf("decoded, but not encoded again: %v", err)
		}
		m2, err := DecodeMessage(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, m2, sameMessage); d != "" {
			t.Fatal(d)
		}
	})
}
