package collect

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("result.json", parsed); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("result.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDocumentsFollowTheSchema(t *testing.T) {
	schema := compiledSchema(t)
	for _, name := range slices.Sorted(maps.Keys(stories())) {
		t.Run(name, func(t *testing.T) {
			parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(encode(t, finishedStory(t, name))))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(parsed); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSchemaNoticesWrongDocuments(t *testing.T) {
	schema := compiledSchema(t)
	good := encode(t, finishedStory(t, "failed"))
	for _, change := range [][2]string{
		{`"size": 6`, `"size": 0`},
		{`"size": 6`, `"size": 6.5`},
		{`"schema": "rankstorm.result/1"`, `"schema": "rankstorm.result/2"`},
		{`"planned": 480`, `"plannd": 480`},
		{`"started_utc": "2026-09-01T10:15:00Z"`, `"started_utc": "yesterday"`},
		{`"side": "target"`, `"side": "server"`},
		{`"p999_ns": null`, `"p999_ns": "n/a"`},
		{`"timeout": 20`, `"timeout": 0`},
	} {
		bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, good) {
			t.Fatalf("%q is not in the document", change[0])
		}
		parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(bad))
		if err != nil {
			t.Fatal(err)
		}
		if schema.Validate(parsed) == nil {
			t.Errorf("%s for %s is accepted", change[1], change[0])
		}
	}
}

// Every key of the schema stands in docs/result-schema.md.
func TestSchemaIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/result-schema.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := func(key string) bool {
		for _, form := range []string{"`" + key + "`", "`" + key + "[]`", "." + key + "[]`"} {
			if bytes.Contains(page, []byte(form)) {
				return true
			}
		}
		return false
	}
	var walk func(node any)
	walk = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			if props, ok := n["properties"].(map[string]any); ok {
				for key := range props {
					if !explained(key) {
						t.Errorf("docs/result-schema.md does not explain key %s", key)
					}
				}
			}
			for _, v := range n {
				walk(v)
			}
		case []any:
			for _, v := range n {
				walk(v)
			}
		}
	}
	var schema any
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	walk(schema)
}

// So do the names that stand in values: of failures, kinds of errors, settings.
func TestNamesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/result-schema.md")
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Collect(maps.Values(kindNames))
	for c := transport.CauseNone + 1; c < transport.CauseCount; c++ {
		names = append(names, c.String())
	}
	for _, kv := range phases.DefaultSpec().Settings() {
		names = append(names, kv.Key)
	}
	for _, name := range names {
		if !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("docs/result-schema.md does not explain %q", name)
		}
	}
}

// The examples of the page read real documents.
func TestDocumentedReaders(t *testing.T) {
	page, err := os.ReadFile("../docs/result-schema.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if code == nil {
		t.Fatal("no example")
	}
	dir := t.TempDir()
	script, python := filepath.Join(dir, "read.py"), needPython(t)
	if err := os.WriteFile(script, code[1], 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clean", "failed"} {
		file := filepath.Join(dir, name+".json")
		if err := os.WriteFile(file, encode(t, finishedStory(t, name)), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(python, script, file).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("connected,")) || !bytes.Contains(out, []byte("on average")) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestDocumentRoundTrip(t *testing.T) {
	for name, st := range stories() {
		d := st.document(t)
		encoded := encode(t, d)
		if !json.Valid(encoded) {
			t.Fatalf("%s: not JSON", name)
		}
		back, err := Decode(bytes.NewReader(encoded))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, back, cmpopts.IgnoreUnexported(Document{})); diff != "" {
			t.Errorf("%s: decoded differs:\n%s", name, diff)
		}
		if !bytes.Equal(encode(t, back), encoded) {
			t.Errorf("%s: encoding is not stable", name)
		}
		if table(t, d, TableOptions{}) != table(t, back, TableOptions{}) {
			t.Errorf("%s: the decoded document prints another table", name)
		}
		if !bytes.Equal(encode(t, st.document(t)), encoded) {
			t.Errorf("%s: the same job gives another document", name)
		}
	}
}

func TestEncodeIndent(t *testing.T) {
	in := `{"s":"a,{\"b\":[1]}","m":{"x":1},"l":[1,2],"o":[{"a":1,"e":{"f":2},"h":[[1,2],[3,4]]}],"z":[],"y":{}}`
	got := string(indent([]byte(in)))
	want := `{
  "s": "a,{\"b\":[1]}",
  "m": {
    "x": 1
  },
  "l": [1, 2],
  "o": [
    {
      "a": 1,
      "e": {"f": 2},
      "h": [[1, 2], [3, 4]]
    }
  ],
  "z": [],
  "y": {}
}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := string(encode(t, finishedStory(t, "one-rank")))
	for name, in := range map[string]string{
		"empty": "", "cut off": good[:len(good)/2], "two": good + good, "other schema": strings.Replace(good, "result/1", "result/2", 1),
		"no exit": `{"schema":"rankstorm.result/1"}`, "list": "[]",
	} {
		if _, err := Decode(strings.NewReader(in)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Decode(strings.NewReader(strings.Replace(good, `"size"`, `"new_key": 3, "size"`, 1))); err != nil {
		t.Errorf("a key that is not known yet: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWritersReportErrors(t *testing.T) {
	d := finishedStory(t, "one-rank")
	if err := d.Encode(brokenWriter{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Encode = %v", err)
	}
	if err := WriteTable(brokenWriter{}, d, TableOptions{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("WriteTable = %v", err)
	}
	if err := NewDocument(Meta{}).Encode(&bytes.Buffer{}); err == nil {
		t.Error("an unfinished document was written")
	}
}

func TestDocumentStaysBounded(t *testing.T) {
	d := NewDocument(Meta{Procs: 1, RanksPerProc: 1, Edges: 50_000})
	const slots = 20_000
	for i := range slots {
		s := &Summary{Seq: int32(i), Phase: "connect", Round: int32(i), Covers: []uint64{1}, Barrier: Barrier{FirstInNS: 1, LastInNS: 1, FirstOutNS: 2, LastOutNS: 3}}
		s.Held = &RoundHeld{Procs: 1, RSSBytes: LevelOf(0, 1<<20)}
		if i == 12_345 {
			s.Barrier.LastOutNS = 500_000
		}
		if i < 3 {
			for e := range 12_000 {
				s.Edges = append(s.Edges, EdgeSum{From: rank.Rank(i), To: rank.Rank(10 + e), Stage: int32(i), Planned: 1})
			}
		}
		if err := d.AddSlot(s); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * MaxWarnings {
		d.Warn(strings.Repeat("w", i))
	}
	d.Finish(Exit{})
	for _, l := range []struct{ listed, left, most int }{
		{len(d.Barriers), int(d.BarriersMore), MaxBarriers + 2*worstKept + 1},
		{len(d.Rounds), int(d.RoundsMore), MaxRounds + worstKept + 1},
		{len(d.RoundsHeld), int(d.HeldMore), MaxRoundsHeld + 1},
	} {
		if l.listed > l.most || l.listed < l.most/4 || l.listed+l.left != slots {
			t.Errorf("%d listed, at most %d, and %d left out", l.listed, l.most, l.left)
		}
	}
	if b := d.Barriers; b[0].Seq != 0 || b[len(b)-1].Seq != slots-1 || !slices.ContainsFunc(b, func(b BarrierDoc) bool { return b.Seq == 12_345 }) {
		t.Error("the first, the last or the worst barrier is missing")
	}
	if s := d.BarrierStats.BarrierNS; s.Count != slots || *s.MaxNS != 499_999 || *s.median() != 2 || *s.SumNS != 2*(slots-1)+499_999 {
		t.Errorf("of all barriers: %+v", s)
	}
	if r := d.RoundsHeld; r[0].Round != 0 || r[len(r)-1].Round != slots-1 || d.RoundsRun != slots {
		t.Error("the first or the last round is missing")
	}
	if len(d.Phases) != 1 || d.Phases[0].Slots != slots || d.Phases[0].Round != nil {
		t.Errorf("phases %+v", d.Phases)
	}
	if n := len(d.EdgeList); n > EdgesFirst+EdgesWorst+EdgesSampled || int64(n)+d.EdgesMore != 50_000 {
		t.Errorf("%d edges listed, %d left out", n, d.EdgesMore)
	}
	if len(d.Warnings) != MaxWarnings {
		t.Errorf("%d warnings", len(d.Warnings))
	}
}

// Rounds add up: an edge's figures, walls, counts.
func TestRoundsAreMerged(t *testing.T) {
	st := stories()["virtual"]
	d := st.document(t)
	n := int64(st.rounds * st.conns * st.size() * (st.size() - 1))
	if d.Connections.Planned != n || d.Connections.Established != n || d.Connections.Accepted != n {
		t.Errorf("connections %+v, want %d", d.Connections, n)
	}
	for _, e := range d.EdgeList {
		if e.Rounds != int64(st.rounds) || e.Planned != int64(st.rounds*st.conns) {
			t.Fatalf("edge %+v covers %d rounds, want %d", e, e.Rounds, st.rounds)
		}
	}
	for _, p := range d.Phases {
		once := p.Phase == "listen" || p.Phase == "publish" || p.Phase == "gather" || p.Phase == "seal"
		if once != (p.Slots == 1) || !once && (p.Slots != int64(st.rounds) || p.Round != nil) {
			t.Errorf("phase %s: %d slots, round %v", p.Phase, p.Slots, p.Round)
		}
	}
}

func TestAddSlotRefusesContradictions(t *testing.T) {
	d := NewDocument(Meta{Procs: 1, RanksPerProc: 1})
	s := &Summary{Phase: "connect", Conns: Conns{Started: 1<<63 - 1}}
	if err := d.AddSlot(s); err != nil {
		t.Fatal(err)
	}
	if err := d.AddSlot(&Summary{Phase: "connect", Conns: Conns{Started: 1}}); err == nil {
		t.Error("an overflow was added")
	}
	d.Finish(Exit{})
	if err := d.AddSlot(s); err == nil {
		t.Error("a slot was added after Finish")
	}
}

func TestExitFollowsTheFigures(t *testing.T) {
	for _, c := range []struct {
		story string
		exit  Exit
		code  int
		text  string
	}{
		{"clean", Exit{}, 0, ""},
		{"failed", Exit{}, 1, "20 of 480 connections failed; 2 connections are dead: up, but never answered; 3 connections broke after being established; process 5 (n2) leaked fds: 3 before, 5 after"},
		{"failed", NewExit(143, &rank.Error{Kind: rank.KindCancelled, Proc: rank.NoProc, Peer: rank.None, Text: "SIGTERM"}, true), 143, "SIGTERM"},
	} {
		st := stories()[c.story]
		st.exit = c.exit
		d := st.document(t)
		if d.Exit.Code != c.code || d.Exit.Text != c.text {
			t.Errorf("%s: exit %d %q, want %d %q", c.story, d.Exit.Code, d.Exit.Text, c.code, c.text)
		}
	}
}

// The runner asks for leaks before it finishes.
func TestLeaksBeforeFinish(t *testing.T) {
	d := NewDocument(Meta{Procs: 1, RanksPerProc: 1, Ranks: []RankMeta{{Host: "n7"}}})
	for i, moment := range []string{"before", "after"} {
		if err := d.AddSlot(&Summary{Seq: int32(i), Phase: "create", Resources: []ProcResources{{Moment: moment, FDs: int64(3 + i), ProcFDs: -1, ListenDrops: -1, SYNRetries: -1}}}); err != nil {
			t.Fatal(err)
		}
	}
	want := []Leak{{Proc: 0, Host: "n7", What: "fds", Before: 3, After: 4}}
	if got := d.Leaks(); !slices.Equal(got, want) {
		t.Errorf("leaks %+v, want %+v", got, want)
	}
	d.Finish(Exit{})
	if got := d.Leaks(); !slices.Equal(got, want) {
		t.Errorf("after Finish: leaks %+v, want %+v", got, want)
	}
	if r := d.Resources[0]; r.Before.ProcFDs != nil || r.Before.SYNRetries != nil || r.Peak != nil {
		t.Errorf("what is not known is not null: %+v", r)
	}
}

// A rank that had nothing to begin, or was broken off, is neither early nor
// instantaneous, and does not stretch the phase to the epoch.
func TestRanksThatDidNotBegin(t *testing.T) {
	d := NewDocument(Meta{Procs: 1, RanksPerProc: 4, StartNS: 1000})
	s := &Summary{Phase: "connect", Barrier: Barrier{AtNS: 2000}, Ranks: []RankPhase{
		{Rank: 0, BeganNS: 2010, EndedNS: 2500}, {Rank: 1}, {Rank: 2, BeganNS: 2020}, {Rank: 3, BeganNS: 2005, EndedNS: 2400},
	}}
	if err := d.AddSlot(s); err != nil {
		t.Fatal(err)
	}
	d.Finish(Exit{})
	p := d.Phases[0]
	if *p.BeganNS != 1005 || *p.WallNS != 495 {
		t.Errorf("phase began %d, took %d; want 1005 and 495", *p.BeganNS, *p.WallNS)
	}
	if r := p.Ranks[1]; r.LateNS != nil || r.BusyNS != nil {
		t.Errorf("a rank that never began: %+v", r)
	}
	if r := p.Ranks[2]; *r.LateNS != 20 || r.BusyNS != nil {
		t.Errorf("a rank that was broken off: %+v", r)
	}
}

// Whatever is read can be written, printed and diagnosed.
func FuzzDecode(f *testing.F) {
	st := story{procs: 2, k: 1, hosts: 2, conns: 1, rounds: 1, seed: 1, failTo: 1, lateRank: rank.None, leakProc: 1, deadConns: 1}
	f.Add(encode(f, st.document(f)))
	f.Add([]byte(`{"schema":"rankstorm.result/1","exit":{"code":3},"phases":[{"phase":"connect","steps":[{"max_edge":{}}]}],"barriers":[{}],"resources":[{}]}`))
	f.Add([]byte(`{"schema":"rankstorm.result/1","exit":{},"phases":[{"wall_ns":-9223372036854775808,"ranks":[{"late_ns":9223372036854775807},{}]}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := Decode(bytes.NewReader(in))
		if err != nil {
			return
		}
		Diagnose(d)
		d.Verdict()
		for _, columns := range []int{0, 1, 80} {
			if err := WriteTable(&bytes.Buffer{}, d, TableOptions{Columns: columns, Color: columns == 1}); err != nil {
				t.Fatal(err)
			}
		}
		once := encode(t, d)
		back, err := Decode(bytes.NewReader(once))
		if err != nil {
			t.Fatalf("own document refused: %v", err)
		}
		if !bytes.Equal(once, encode(t, back)) {
			t.Fatal("encoding is not stable")
		}
	})
}

func TestMissingProcessesAreTold(t *testing.T) {
	d := NewDocument(Meta{Procs: 70, RanksPerProc: 1})
	for i, covers := range [][]uint64{{^uint64(0), 1<<6 - 1}, {^uint64(0) &^ 0b1010, 1<<6 - 1}, {^uint64(0)}} {
		s := &Summary{Seq: int32(i), Phase: []string{"create", "connect", "connect"}[i], Round: int32(i), Covers: covers}
		if err := d.AddSlot(s); err != nil {
			t.Fatal(err)
		}
	}
	d.Finish(Exit{})
	want := []string{"connect: figures of 8 processes are missing (1,3,64-69)"}
	if !slices.Equal(d.Warnings, want) {
		t.Errorf("warnings %q, want %q", d.Warnings, want)
	}
}
