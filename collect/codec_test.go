package collect

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/rank"
)

func TestDecodeSummaryRefuses(t *testing.T) {
	valid := func() *Summary {
		m := Moments{Count: 2, SumNS: 30, MinNS: 10, MaxNS: 20}
		return &Summary{
			Seq: 1, Phase: "connect", Covers: []uint64{1},
			Steps: []StepSum{{
				Step: "connect", Side: SideInitiator, Total: m, Hist: []Bucket{{10, 1}, {20, 1}},
				PerRank: []RankSum{{Rank: 0, Moments: m, Failed: 1}}, Failures: map[string]int64{"reset": 1},
			}},
		}
	}
	for _, c := range []struct {
		name string
		edit func(*Summary)
		want string // "" = accepted
	}{
		{"valid", func(*Summary) {}, ""},
		{"lost value", func(s *Summary) { s.Steps[0].Hist = s.Steps[0].Hist[:1] }, "histogram holds 1 values, the total 2"},
		{"bucket order", func(s *Summary) { s.Steps[0].Hist[1].Index = 3 }, "out of range or order"},
		{"bucket range", func(s *Summary) { s.Steps[0].Hist[1].Index = maxIndex + 1 }, "out of range or order"},
		{"ranks do not add up", func(s *Summary) { s.Steps[0].PerRank[0].SumNS++ }, "do not add up"},
		{"failures by rank", func(s *Summary) { s.Steps[0].Failures["reset"] = 2 }, "2 failures by cause, 1 by rank"},
		{"side", func(s *Summary) { s.Steps[0].Side = "client" }, "side"},
		{"negative count", func(s *Summary) { s.Conns.Dead = -1 }, "negative"},
		{"rank twice", func(s *Summary) { s.Ranks = []RankPhase{{Rank: 4}, {Rank: 4}} }, "reported twice"},
		{"too many errors", func(s *Summary) { s.Errors = make([]rank.Error, MaxErrors+1) }, "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := valid()
			c.edit(s)
			b, err := marshalSummary(s) // as a foreign or damaged process would
			if err != nil {
				t.Fatal(err)
			}
			_, err = DecodeSummary(b)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("DecodeSummary = %v, want %q", err, c.want)
			}
		})
	}
}

func TestDecodeSummaryHostileBytes(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 1<<20)
	b, err := EncodeSummary(&Summary{Phase: "bind"})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := msgpack.Marshal(map[string]int{"zz": 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string][]byte{
		"empty": nil, "deep nesting": deep, "huge array": {0xdd, 0xff, 0xff, 0xff, 0xff}, "huge string": {0xdb, 0xff, 0xff, 0xff, 0xff},
		"trailing": append(bytes.Clone(b), 0xc0), "cut off": b[:len(b)-1], "extension": {0xd4, 1, 2}, "unknown key": unknown, "cut length": {0xdc, 0},
	} {
		if _, err := DecodeSummary(in); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := DecodeSummary(make([]byte, MaxSummaryBytes+1)); err == nil {
		t.Error("too large: accepted")
	}
}

// Whatever is accepted can be merged, encoded and decoded again unchanged.
func FuzzDecodeSummary(f *testing.F) {
	for _, slot := range (story{procs: 2, k: 1, hosts: 1, conns: 1, rounds: 1, seed: 1, failTo: 1, lateRank: rank.None}).summaries(f) {
		for _, s := range slot {
			b, err := EncodeSummary(s)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Add([]byte{0x80})
	f.Add([]byte{0xdd, 0, 0, 0, 1, 0xc0})
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := DecodeSummary(in)
		if err != nil {
			return
		}
		merged := &Summary{}
		if err := Merge(merged, s); err != nil {
			t.Fatalf("accepted, but not mergeable: %v", err)
		}
		once, err := EncodeSummary(merged)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeSummary(once)
		if err != nil {
			t.Fatalf("own encoding refused: %v", err)
		}
		twice, err := EncodeSummary(back)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("encoding is not stable (%v)", err)
		}
	})
}
