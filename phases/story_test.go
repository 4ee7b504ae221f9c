package phases

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"rankstorm/rank"
)

// The stories in testdata say what a machine decides. Moments are told since
// the beginning of the story.
const storyStart = Time(1_000_000 * time.Second)

var storyLimits = Limits{
	Phase: 10 * time.Second, Prepare: 4 * time.Second, Abort: 2 * time.Second, Orphans: 3 * time.Second, Search: 8 * time.Second,
	Report: time.Second, Part: 12 * time.Second, Margin: 2 * time.Second, Lead: 10 * time.Millisecond,
}

// storyHost puts two processes on a host, two ranks in each.
func storyHost(p rank.Proc) (string, []rank.Rank) {
	return fmt.Sprintf("n%d", p/2), []rank.Rank{rank.Rank(2 * p), rank.Rank(2*p + 1)}
}

// storyMerge shows what was merged, in which order.
func storyMerge(t Type, slot Slot, bodies [][]byte) ([]byte, error) {
	if bytes.Contains(bytes.Join(bodies, nil), []byte("broken")) {
		return nil, fmt.Errorf("cannot merge %s", slot.Phase)
	}
	return append(append([]byte("("), bytes.Join(bodies, []byte("+"))...), ')'), nil
}

func parseProcs(t testing.TB, text string) ProcSet {
	t.Helper()
	var s ProcSet
	if text == "-" {
		return s
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(low)
		b := a
		if ranged && err == nil {
			b, err = strconv.Atoi(high)
		}
		if err != nil {
			t.Fatalf("not a list of processes: %q", text)
		}
		for p := a; p <= b; p++ {
			s.Add(rank.Proc(p))
		}
	}
	return s
}

func formatProcs(s ProcSet) string {
	var ranks []rank.Rank
	for p := range s.All() {
		ranks = append(ranks, rank.Rank(p))
	}
	if len(ranks) == 0 {
		return "-"
	}
	return rank.FormatRanks(ranks)
}

// args reads key=value words of a command.
type args map[string]string

func argsOf(d *datadriven.TestData) args {
	a := args{}
	for _, c := range d.CmdArgs {
		a[c.Key] = strings.Join(c.Vals, ",")
		if len(c.Vals) == 0 {
			a["word"+strconv.Itoa(len(a))] = c.Key
		}
	}
	return a
}

func (a args) int(t testing.TB, key string) int64 {
	t.Helper()
	text := a[key]
	if text == "" { // not given, or a word such as done in "local done"
		return 0
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: %v", key, text, err)
	}
	return v
}

func (a args) duration(t testing.TB, key string, def time.Duration) time.Duration {
	t.Helper()
	text, ok := a[key]
	if !ok {
		return def
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s=%s: %v", key, text, err)
	}
	return v
}

// schedule of the phases named in phases=a,b,c with hold=(PHASE,DURATION).
func (a args) schedule(t testing.TB) *Schedule {
	t.Helper()
	spec := DefaultSpec()
	if _, ok := a["rounds"]; ok {
		spec.Rounds = int(a.int(t, "rounds"))
	}
	if h, ok := a["hold"]; ok {
		phase, d, _ := strings.Cut(h, ",")
		hold, err := ParseHold(phase + "=" + d)
		if err != nil {
			t.Fatal(err)
		}
		spec.Holds = []Hold{hold}
	}
	wired := "," + a["phases"] + ","
	s, err := NewSchedule(spec, int(max(a.int(t, "stages"), 1)), func(tok Token) bool {
		return strings.Contains(wired, ","+string(tok)+",")
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cause=text with kind=lost|cancelled|failed|internal, proc=, signal=.
func (a args) cause(t testing.TB) *rank.Error {
	t.Helper()
	text, ok := a["cause"]
	if !ok && a["signal"] == "" {
		return nil
	}
	e := rank.Errorf(rank.KindLost, "%s", strings.ReplaceAll(text, "_", " "))
	switch a["kind"] {
	case "", "lost":
	case "failed":
		e.Kind = rank.KindFailed
	case "internal":
		e.Kind = rank.KindInternal
	default:
		t.Fatalf("kind=%s", a["kind"])
	}
	if sig := a.int(t, "signal"); sig > 0 {
		e = rank.Errorf(rank.KindCancelled, "got signal %d", sig)
		e.Signal = int(sig)
	}
	if _, ok := a["proc"]; ok {
		e.Proc = rank.Proc(a.int(t, "proc"))
	}
	return e
}

// decision is told=CODE.
func (a args) decision(t testing.TB) *Decision {
	t.Helper()
	if _, ok := a["told"]; !ok {
		return nil
	}
	d := &Decision{Code: int(a.int(t, "told"))}
	if d.Code != 0 {
		d.Cause = rank.Errorf(rank.KindFailed, "as decided before")
	}
	return d
}

func since(t Time) string { return time.Duration(t - storyStart).String() }

func formatMessage(m Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", m.Type, m.Seq)
	if m.T != 0 {
		fmt.Fprintf(&b, " at %s", since(m.T))
	}
	if len(m.Covers) > 0 {
		fmt.Fprintf(&b, " covers %s", formatProcs(m.Covers))
	}
	if len(m.Orphans) > 0 {
		fmt.Fprintf(&b, " orphans %s", formatProcs(m.Orphans))
	}
	if m.Last {
		b.WriteString(", the last")
	}
	if m.Epoch != 0 {
		fmt.Fprintf(&b, " epoch %d", m.Epoch)
	}
	if m.Of != 0 {
		fmt.Fprintf(&b, " of %s", m.Of)
	}
	if m.All {
		b.WriteString(" with all slots")
	}
	if m.Failed != 0 {
		fmt.Fprintf(&b, " failed %d", m.Failed)
	}
	if m.Type == Progress {
		fmt.Fprintf(&b, " %d of %d", m.Done, m.Total)
	}
	if m.Type == Bye || m.Type == Verdict || m.Of == Verdict {
		fmt.Fprintf(&b, " code %d", m.Code)
	}
	if len(m.Body) > 0 {
		fmt.Fprintf(&b, " body %s", m.Body)
	}
	if m.Cause != nil {
		fmt.Fprintf(&b, " cause [%s]", m.Cause)
	}
	return b.String()
}

// message of a command such as "done 0-3 seq=1 failed=2 body=x".
func (a args) message(t testing.TB, typ Type, procs string) Message {
	t.Helper()
	m := Message{
		Type: typ, Seq: int32(a.int(t, "seq")), Failed: a.int(t, "failed"), Done: a.int(t, "done"), Total: a.int(t, "total"),
		Code: int(a.int(t, "code")), Body: []byte(a["body"]), Cause: a.cause(t),
	}
	if procs != "" {
		m.Covers = parseProcs(t, procs)
	}
	m.Epoch = a.int(t, "epoch")
	m.Of, _ = typeByName(a["of"])
	_, m.All = a["all"]
	if o, ok := a["orphans"]; ok {
		m.Orphans = parseProcs(t, o)
	}
	if _, ok := a["at"]; ok {
		m.T = storyStart + int64(a.duration(t, "at", 0))
	}
	return m
}

func typeByName(name string) (Type, bool) {
	for typ := Prepare; typ <= Bye; typ++ {
		if typ.String() == name {
			return typ, true
		}
	}
	return 0, false
}

func TestRootStories(t *testing.T) {
	datadriven.Walk(t, "testdata/root", func(t *testing.T, path string) {
		var root *Root
		now := storyStart
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			a := argsOf(d)
			word := func(i int) string {
				if i < len(d.CmdArgs) && len(d.CmdArgs[i].Vals) == 0 {
					return d.CmdArgs[i].Key
				}
				return ""
			}
			var in Input
			switch d.Cmd {
			case "take-over": // a successor instead of process 0
				now = storyStart
				root = NewRoot(RootConfig{
					Self: rank.Proc(a.int(t, "self")), Procs: int(a.int(t, "procs")), Schedule: a.schedule(t), Limits: storyLimits,
					Merge: storyMerge, Describe: storyHost,
					Takeover: &Takeover{Seq: int32(a.int(t, "seq")), Below: parseProcs(t, a["below"]), Lost: parseProcs(t, a["lost"]), Cause: a.cause(t), Told: a.decision(t)},
				})
				return ""
			case "attached":
				p, err := strconv.Atoi(word(0))
				if err != nil {
					t.Fatal(err)
				}
				if !root.Admits(rank.Proc(p)) {
					return "refused"
				}
				in = Input{Kind: InAttached, Proc: rank.Proc(p), Msg: Message{Covers: parseProcs(t, word(1))}, Cause: a.cause(t), Told: a.decision(t)}
			case "reported":
				in = Input{Kind: InReported, Told: a.decision(t)}
			case "new":
				l := storyLimits
				l.MaxTime = a.duration(t, "max-time", 0)
				now = storyStart
				root = NewRoot(RootConfig{Procs: int(a.int(t, "procs")), Schedule: a.schedule(t), Limits: l, Merge: storyMerge, Describe: storyHost})
				return ""
			case "start":
				in = Input{Kind: InStart, TreeTime: a.duration(t, "tree", 0)}
			case "tick":
				d, err := time.ParseDuration(word(0))
				if err != nil {
					t.Fatal(err)
				}
				now += int64(d)
				in = Input{Kind: InTick}
			case "gossip-lost":
				in = Input{Kind: InLost, Cause: a.cause(t)}
				for p := range parseProcs(t, word(0)).All() {
					in.Procs = append(in.Procs, p)
				}
			case "state":
				slot := root.slot
				return fmt.Sprintf("%s: slot %d %s round %d stage %d, alive %s, waiting for %s, progress %d of %d", root.state,
					slot.Seq, slot.Phase, slot.Round, slot.Stage, formatProcs(root.alive), formatProcs(root.Waiting()), root.done, root.total)
			default:
				typ, ok := typeByName(d.Cmd)
				if !ok {
					t.Fatalf("unknown command %s", d.Cmd)
				}
				in = Input{Kind: InMessage, Msg: a.message(t, typ, word(0))}
			}
			var b strings.Builder
			for _, o := range root.Step(now, in) {
				switch o.Kind {
				case OutDown:
					fmt.Fprintf(&b, "down: %s\n", formatMessage(o.Msg))
				case OutReduced:
					fmt.Fprintf(&b, "reduced %d covers %s body %s\n", o.Seq, formatProcs(o.Msg.Covers), o.Body)
				case OutNote:
					fmt.Fprintf(&b, "note: %s\n", o.Text)
				case OutWake:
					fmt.Fprintf(&b, "wake at %s\n", since(o.At))
				case OutFinish:
					fmt.Fprintf(&b, "finish with %d", o.Code)
					if o.Partial {
						b.WriteString(", partial")
					}
					if o.Cause != nil {
						fmt.Fprintf(&b, ": %s", o.Cause)
					}
					b.WriteByte('\n')
				}
			}
			if b.Len() == 0 {
				return "nothing"
			}
			return b.String()
		})
	})
}

func TestMemberStories(t *testing.T) {
	datadriven.Walk(t, "testdata/member", func(t *testing.T, path string) {
		var m *Member
		now := storyStart
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			a := argsOf(d)
			word := func(i int) string {
				if i < len(d.CmdArgs) && len(d.CmdArgs[i].Vals) == 0 {
					return d.CmdArgs[i].Key
				}
				return ""
			}
			in := MemberInput{Seq: int32(a.int(t, "seq")), Failed: a.int(t, "failed"), Done: a.int(t, "done"), Total: a.int(t, "total"), Body: []byte(a["body"]), Cause: a.cause(t)}
			number := func(text string) rank.Proc {
				v, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				return rank.Proc(v)
			}
			switch d.Cmd {
			case "new":
				// Children are the lines of the input: "3: 3,7-9".
				cfg := MemberConfig{
					Self: rank.Proc(a.int(t, "self")), Parent: rank.Proc(a.int(t, "parent")), Procs: 16,
					Schedule: a.schedule(t), Limits: storyLimits, Merge: storyMerge, Describe: storyHost,
				}
				for line := range strings.Lines(d.Input) {
					child, below, _ := strings.Cut(strings.TrimSpace(line), ": ")
					cfg.Children = append(cfg.Children, Child{number(child), parseProcs(t, below)})
				}
				if _, ok := a["filter"]; ok {
					cfg.Filter = func(child rank.Proc, m Message) Message {
						m.Body = fmt.Appendf(nil, "%s-for-%d", m.Body, child)
						return m
					}
				}
				now = storyStart
				m = NewMember(cfg)
				return ""
			case "tick":
				d, err := time.ParseDuration(word(0))
				if err != nil {
					t.Fatal(err)
				}
				now += int64(d)
				in.Kind = MTick
			case "parent": // parent TYPE [PROCS] …
				typ, ok := typeByName(word(0))
				if !ok {
					t.Fatalf("unknown message %s", word(0))
				}
				in.Kind, in.Msg = MFromParent, a.message(t, typ, word(1))
			case "child": // child PROC TYPE [PROCS] …
				typ, ok := typeByName(word(1))
				if !ok {
					t.Fatalf("unknown message %s", word(1))
				}
				in.Kind, in.Proc, in.Msg = MFromChild, number(word(0)), a.message(t, typ, word(2))
			case "local":
				in.Kind = map[string]MemberInputKind{"ready": MLocalReady, "done": MLocalDone, "summary": MLocalSummary, "progress": MLocalProgress}[word(0)]
			case "child-lost":
				in.Kind, in.Proc = MChildLost, number(word(0))
			case "parent-lost":
				in.Kind = MParentLost
			case "attached":
				in.Kind, in.Proc = MAttached, number(word(0))
			case "take-root":
				in.Kind = MTakeRoot
			case "given-up":
				in.Kind = MGivenUp
			case "joined":
				in.Kind, in.Proc, in.Msg.Covers = MChildJoined, number(word(0)), parseProcs(t, word(1))
			case "cancel":
				in.Kind = MCancel
			case "state":
				return fmt.Sprintf("%s: slot %d %s", m.state, m.slot.Seq, m.slot.Phase)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			if in.Kind == 0 {
				t.Fatalf("nothing known as %s %s", d.Cmd, word(0))
			}
			var b strings.Builder
			for _, o := range m.Step(now, in) {
				switch o.Kind {
				case MUp:
					fmt.Fprintf(&b, "up: %s\n", formatMessage(o.Msg))
				case MDown:
					who := "all"
					if o.Proc >= 0 {
						who = strconv.Itoa(int(o.Proc))
					}
					fmt.Fprintf(&b, "down to %s: %s\n", who, formatMessage(o.Msg))
				case MPrepare:
					fmt.Fprintf(&b, "prepare %d\n", o.Seq)
				case MBegin:
					fmt.Fprintf(&b, "begin %d at %s\n", o.Seq, since(o.T))
				case MCollect:
					fmt.Fprintf(&b, "collect %d body %s abort %v", o.Seq, o.Msg.Body, o.Abort)
					if o.All {
						b.WriteString(", all slots")
					}
					b.WriteByte('\n')
				case MWake:
					fmt.Fprintf(&b, "wake at %s\n", since(o.At))
				case MExit:
					fmt.Fprintf(&b, "exit with %d", o.Code)
					if o.Abandon {
						b.WriteString(" without a goodbye")
					}
					if o.Cause != nil {
						fmt.Fprintf(&b, ": %s", o.Cause)
					}
					b.WriteByte('\n')
				case MLost:
					fmt.Fprintf(&b, "gone: %s\n", formatProcs(o.Msg.Covers))
				case MReattach:
					fmt.Fprintf(&b, "look for the root: %s\n", o.Cause)
				case MNote:
					fmt.Fprintf(&b, "note: %s\n", o.Cause)
				}
			}
			if b.Len() == 0 {
				return "nothing"
			}
			return b.String()
		})
	})
}
