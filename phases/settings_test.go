package phases

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankstorm/rank"
)

func valid() Spec {
	s := DefaultSpec()
	s.Procs = 4
	return s
}

func TestDefaultsAreValid(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Error(err)
	}
	l := valid().Limits()
	if want := (Limits{Phase: time.Minute, Prepare: 10 * time.Second, Abort: 2 * time.Second, Orphans: 3 * time.Second, Search: 8 * time.Second, Report: 3 * time.Second, Part: 18 * time.Second, Margin: 2 * time.Second, Lead: 10 * time.Millisecond}); l != want {
		t.Errorf("limits %+v, want %+v", l, want)
	}
}

func TestValidateNamesFlagValueAndForms(t *testing.T) {
	for _, c := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(s *Spec) { s.Procs = 0 }, "--procs 0: must be 1 to 1048576"},
		{func(s *Spec) { s.RanksPerProc = -1 }, "--ranks-per-proc -1: must be"},
		{func(s *Spec) { s.Procs, s.RanksPerProc = 1<<20, 1<<20 }, "at most 2147483647 ranks"},
		{func(s *Spec) { s.Connections = 0 }, "--connections 0: must be 1 to"},
		{func(s *Spec) { s.Threads = 0 }, "--threads 0: must be 1 to"},
		{func(s *Spec) { s.Rounds = -1 }, "--rounds -1: must be 0 to"},
		{func(s *Spec) { s.Backlog = -1 }, "--backlog -1: must be 0 to"},
		{func(s *Spec) { s.TreeArity = 0 }, "--tree-arity 0: must be 1 to"},
		{func(s *Spec) { s.ProcsPerAgent = 0 }, "--procs-per-agent 0: must be 1 to"},
		{func(s *Spec) { s.Transport = "" }, "--transport is empty"},
		{func(s *Spec) { s.Topology.Name = "" }, "--topology is empty"},
		{func(s *Spec) { s.Shape = Shape{Kind: Parallel} }, `--connect "parallel=0": use burst`},
		{func(s *Spec) { s.Shape = Shape{Kind: Rate} }, `--connect "rate=0": use burst`},
		{func(s *Spec) { s.Mimic = -time.Microsecond }, "--mimic -1: must be 0 to"},
		{func(s *Spec) { s.JoinTimeout = 0 }, "--join-timeout 0s: must be longer than 0"},
		{func(s *Spec) { s.PhaseTimeout = -1 }, "--phase-timeout -1ns: must be longer than 0"},
		{func(s *Spec) { s.LivenessTimeout = 0 }, "--liveness-timeout 0s: must be longer than 0"},
		{func(s *Spec) { s.Passes = []Pass{{Connections: 1}, {Connections: 1}} }, "2 passes for 1 rounds"},
		{func(s *Spec) { s.Mimic, s.Passes = 1000, []Pass{{Connections: 1}} }, "1 passes for 1 rounds with --mimic 1:"},
		{func(s *Spec) { s.Passes = []Pass{{Connections: 2}} }, "pass 0 (2 connections, queue pairs true, delay 0s): must have at most 1 connections"},
		{func(s *Spec) { s.Passes = []Pass{{Connections: 1, Delay: 1}} }, "only without queue pairs"},
		{func(s *Spec) { s.MaxTime = -time.Second }, "--max-time -1s: must not be negative"},
		{func(s *Spec) { s.Holds = []Hold{{"x", time.Second}} }, `--hold x=1s: no job enters phase "x", use one of gather`},
		{func(s *Spec) { s.Holds = []Hold{{Connect, 0}} }, "--hold connect=0s: must be longer than 0"},
		{func(s *Spec) { s.Holds = []Hold{{Connect, 1}, {Connect, 1}} }, "phase connect is held twice"},
		{func(s *Spec) { s.Delays = []Delay{{4, Connect, 1}} }, "rank 4 is not in 0 to 3"},
		{func(s *Spec) { s.Delays = []Delay{{0, Gather, 1}} }, `phase "gather" is not entered in lockstep`},
		{func(s *Spec) { s.Delays = []Delay{{0, Connect, 0}} }, "ms=0: must be longer than 0"},
		{func(s *Spec) { s.PhaseTimeout = 999999 * time.Hour }, "--phase-timeout 999999h0m0s: must be at most 8760h"},
		{func(s *Spec) { s.JoinTimeout = math.MaxInt64 }, "--join-timeout 2562047h47m16.854775807s: must be at most 8760h"},
		{func(s *Spec) { s.LivenessTimeout = math.MaxInt64 }, "--liveness-timeout 2562047h47m16.854775807s: must be at most 8760h"},
		{func(s *Spec) { s.MaxTime = math.MaxInt64 }, "--max-time 2562047h47m16.854775807s: must not be negative (0 is no limit) and at most 8760h"},
		{func(s *Spec) { s.Holds = []Hold{{Connect, math.MaxInt64}} }, "must be longer than 0 and at most 8760h"},
		{func(s *Spec) { s.Delays = []Delay{{0, Connect, math.MaxInt64}} }, "must be longer than 0 and at most 8760h"},
	} {
		s := valid()
		c.change(&s)
		err := s.Validate()
		var e *rank.Error
		if !errors.As(err, &e) || e.Kind != rank.KindUsage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want a usage error with %q", err, c.want)
		}
	}
}

func TestValidateTellsAllFaultsInOneLine(t *testing.T) {
	s := valid()
	s.Procs, s.Threads, s.PhaseTimeout = 0, 0, 0
	msg := s.Validate().Error()
	for _, flag := range []string{"--procs", "--threads", "--phase-timeout"} {
		if !strings.Contains(msg, flag) {
			t.Errorf("%q does not name %s", msg, flag)
		}
	}
	if strings.Contains(msg, "\n") {
		t.Errorf("%q has several lines", msg)
	}
}

// leaves calls f for every settable field, with its path.
func leaves(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
		return
	}
	f(path, v)
}

// Every field of Spec, also one that is added later, must show in Settings.
func TestSettingsCoverEveryField(t *testing.T) {
	base := valid()
	base.Shape = Shape{Kind: Rate, PerS: 1}
	var s Spec
	leaves(reflect.ValueOf(&s).Elem(), "Spec", func(path string, v reflect.Value) {
		if path == "Spec.Topology.File" { // a name for messages; the content counts
			return
		}
		s = base
		if path == "Spec.Shape.Slots" {
			s.Shape = Shape{Kind: Parallel}
		}
		before := s.Settings()
		switch {
		case v.CanInt():
			v.SetInt(v.Int() + 1)
		case v.CanUint():
			v.SetUint(v.Uint() + 1)
		case v.CanFloat():
			v.SetFloat(v.Float() + 1)
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		case path == "Spec.Topology.Custom":
			v.SetBytes([]byte("0 1\n"))
		case path == "Spec.Holds":
			s.Holds = []Hold{{Connect, time.Second}}
		case path == "Spec.Delays":
			s.Delays = []Delay{{1, Connect, time.Second}}
		case path == "Spec.Options":
			s.Options = map[string]string{"tos": "3"}
		case path == "Spec.Passes":
			s.Passes = []Pass{{Connections: 1}}
		case path == "Spec.Face":
			s.Face = []rank.KV{{Key: "-S", Value: "given"}}
		default:
			t.Fatalf("%s: this test does not know how to change it", path)
		}
		if slices.Equal(before, s.Settings()) {
			t.Errorf("%s is not in Settings", path)
		}
	})
}

func TestSettingsAreSortedAndUnique(t *testing.T) {
	kv := valid().Settings()
	for i := 1; i < len(kv); i++ {
		if kv[i-1].Key >= kv[i].Key {
			t.Errorf("%q stands before %q", kv[i-1].Key, kv[i].Key)
		}
	}
	a, b := valid(), valid()
	a.Holds = []Hold{{Connect, 1}, {Create, 2}}
	b.Holds = []Hold{{Create, 2}, {Connect, 1}}
	if !slices.Equal(a.Settings(), b.Settings()) {
		t.Error("the order of --hold on the command line shows in Settings")
	}
	a.Topology = rank.Params{Name: "custom", File: "/a", Custom: []byte("0 1")}
	b = a
	b.Topology.File = "/b"
	if !slices.Equal(a.Settings(), b.Settings()) {
		t.Error("the name of the custom file shows in Settings")
	}
}

// Passes that differ in anything show it.
func TestEveryFieldOfAPassIsInSettings(t *testing.T) {
	seen := map[string]Pass{}
	for _, p := range []Pass{{}, {Connections: 1}, {Connections: 2}, {Connections: 1, NoQPs: true}, {Connections: 1, NoQPs: true, Delay: 1}, {Connections: 1, Delay: 1}} {
		if other, ok := seen[p.String()]; ok {
			t.Errorf("%+v and %+v print as %q", other, p, p)
		}
		seen[p.String()] = p
	}
}

func TestPassesOfRounds(t *testing.T) {
	s := valid()
	s.Connections, s.Rounds = 9, 3
	s.Passes = []Pass{{Connections: 1}, {NoQPs: true, Delay: time.Millisecond}, {Connections: 4, NoQPs: true}}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	for i, want := range []Pass{{Connections: 1}, {Connections: 9, NoQPs: true, Delay: time.Millisecond}, {Connections: 4, NoQPs: true}} {
		if got := s.Pass(int32(i)); got != want {
			t.Errorf("pass %d is %s, want %s", i, got, want)
		}
	}
	if !s.Plays() {
		t.Error("two passes have no queue pairs, and Plays says no")
	}
	s = valid()
	s.Connections, s.Mimic = 4, time.Millisecond
	if got, want := s.Pass(7), (Pass{Connections: 4, NoQPs: true, Delay: time.Millisecond}); got != want || !s.Plays() {
		t.Errorf("without passes round 7 is %s, want %s", got, want)
	}
}

func TestParseShape(t *testing.T) {
	for text, want := range map[string]Shape{
		"burst":            {Kind: Burst},
		"parallel=1":       {Kind: Parallel, Slots: 1},
		"parallel=256":     {Kind: Parallel, Slots: 256},
		"rate=1000":        {Kind: Rate, PerS: 1000},
		"rate=0.25":        {Kind: Rate, PerS: 0.25},
		"rate=1000000000":  {Kind: Rate, PerS: 1e9},
		"rate=33.333333":   {Kind: Rate, PerS: 33.333333},
		"rate=12345.67891": {Kind: Rate, PerS: 12345.67891},
	} {
		got, err := ParseShape(text)
		if err != nil || got != want {
			t.Errorf("ParseShape(%q) = %+v, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%q prints as %q", text, got)
		}
	}
	for _, text := range []string{
		"", "burst=1", "Burst", "parallel", "parallel=0", "parallel=-1", "parallel=1.5", "parallel=99999999999",
		"rate", "rate=0", "rate=-3", "rate=NaN", "rate=Inf", "rate=1e10", "rate=0.0001", "sweep=1:2:1", "parallel=4 ",
	} {
		_, err := ParseShape(text)
		if rank.ExitCode(err) != 2 || !strings.Contains(err.Error(), "--connect") || !strings.Contains(err.Error(), "use burst, parallel=W") {
			t.Errorf("ParseShape(%q): %v, want a usage error that names the flag and the forms", text, err)
		}
	}
}

func TestParseHold(t *testing.T) {
	h, err := ParseHold("connect=2s")
	if err != nil || h != (Hold{Connect, 2 * time.Second}) || h.String() != "connect=2s" {
		t.Errorf("got %v, %v", h, err)
	}
	for _, text := range []string{"", "connect", "connect=", "connect=2", "connect=-2s", "connect=0s", "x=2s", "=2s"} {
		if _, err := ParseHold(text); rank.ExitCode(err) != 2 || !strings.Contains(err.Error(), "PHASE=DURATION") {
			t.Errorf("ParseHold(%q): %v", text, err)
		}
	}
}

func TestParseDelay(t *testing.T) {
	for _, text := range []string{"rank=3,phase=connect,ms=300", "ms=300,rank=3,phase=connect"} {
		d, err := ParseDelay(text)
		if err != nil || d != (Delay{3, Connect, 300 * time.Millisecond}) || d.String() != "rank=3,phase=connect,ms=300" {
			t.Errorf("ParseDelay(%q) = %v, %v", text, d, err)
		}
	}
	for _, text := range []string{
		"", "rank=3", "rank=3,phase=connect", "rank=3,phase=connect,ms=", "rank=-1,phase=connect,ms=1",
		"rank=x,phase=connect,ms=1", "rank=3,phase=seal,ms=1", "rank=3,phase=connect,ms=0", "rank=3,phase=connect,ms=NaN",
		"rank=3,phase=connect,ms=1e-9", "rank=3,phase=connect,ms=1e300", "rank=3,rank=3,phase=connect,ms=1", "rank=3,phase=connect,ms=1,x=2",
	} {
		if _, err := ParseDelay(text); rank.ExitCode(err) != 2 || !strings.Contains(err.Error(), "rank=R,phase=PHASE,ms=N") {
			t.Errorf("ParseDelay(%q): %v", text, err)
		}
	}
}

func TestParsePrintRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Delay{
			rank.Rank(rapid.Int32Range(0, 1<<30).Draw(t, "rank")), Connect,
			time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "for")),
		}
		if got, err := ParseDelay(d.String()); err != nil || got != d {
			t.Fatalf("%v → %v, %v", d, got, err)
		}
		h := Hold{Probe, d.For}
		if got, err := ParseHold(h.String()); err != nil || got != h {
			t.Fatalf("%v → %v, %v", h, got, err)
		}
		text := Shape{Kind: Rate, PerS: rapid.Float64Range(MinRate, MaxRate).Draw(t, "rate")}.String()
		s, err := ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseShape(s.String()); err != nil || again != s {
			t.Fatalf("%v → %v, %v", s, again, err)
		}
	})
}
