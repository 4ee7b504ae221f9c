package phases

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"rankstorm/rank"
)

// longest is the most that a time given by the user may be: a year. Deadlines
// are sums of a few such times and a moment in nanoseconds, which must not
// overflow.
const longest = 365 * 24 * time.Hour

// DefaultSpec is a job with every documented default; Procs is left for the
// launcher (0).
func DefaultSpec() Spec {
	return Spec{
		RanksPerProc:    1,
		Topology:        rank.Params{Name: "all_to_all"},
		Connections:     1,
		Threads:         1,
		Transport:       "tcp",
		Shape:           Shape{Kind: Burst},
		Rounds:          1,
		JoinTimeout:     60 * time.Second,
		PhaseTimeout:    60 * time.Second,
		LivenessTimeout: 10 * time.Second,
		TreeArity:       16,
		ProcsPerAgent:   64,
	}
}

// Limits are the deadlines that follow from the spec. Untimed work and the
// summaries of a whole slot get as long as a phase but at most 10 s. After the
// first cause the job ends within
//
//	what is left of the phase (at most hold + phase timeout)
//	+ 8 s to find the root, if the root itself is lost
//	+ 3 s for orphans to come back, if an inner process is lost
//	+ 2 s for the summaries
//
// and a process that hears nothing of it leaves 2 s later.
func (s Spec) Limits() Limits {
	return Limits{
		Phase:   s.PhaseTimeout,
		Prepare: min(s.PhaseTimeout, 10*time.Second),
		Abort:   2 * time.Second,
		Orphans: 3 * time.Second,
		Search:  8 * time.Second,
		Report:  3 * time.Second,
		Part:    s.LivenessTimeout + 8*time.Second, // a silent process is found (1 s), those below it search (2 s) and arrive (3 s); 2 s to spare
		Margin:  2 * time.Second,
		Lead:    10 * time.Millisecond,
		MaxTime: s.MaxTime,
	}
}

// Validate checks what can be checked without a table. It reports all faults
// at once, joined by "; " to one line, as a *rank.Error of KindUsage.
func (s Spec) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	between := func(flag string, v, low, high int) {
		if v < low || v > high {
			fault("%s %d: must be %d to %d", flag, v, low, high)
		}
	}
	positive := func(flag string, d time.Duration) {
		switch {
		case d <= 0:
			fault("%s %s: must be longer than 0, for instance 60s", flag, d)
		case d > longest:
			fault("%s %s: must be at most %s", flag, d, longest)
		}
	}
	between("--procs", s.Procs, 1, MaxProcs)
	between("--ranks-per-proc", s.RanksPerProc, 1, MaxProcs)
	if s.Procs > 0 && s.RanksPerProc > 0 && int64(s.Procs)*int64(s.RanksPerProc) > math.MaxInt32 {
		fault("--procs %d × --ranks-per-proc %d: at most %d ranks", s.Procs, s.RanksPerProc, math.MaxInt32)
	}
	between("--connections", s.Connections, 1, math.MaxInt32)
	between("--threads", s.Threads, 1, 1024)
	between("--rounds", s.Rounds, 0, math.MaxInt32)
	between("--backlog", s.Backlog, 0, math.MaxInt32)
	between("--tree-arity", s.TreeArity, 1, 1024)
	between("--procs-per-agent", s.ProcsPerAgent, 1, MaxProcs)
	if s.Transport == "" {
		fault("--transport is empty: name one, for instance tcp")
	}
	if s.Topology.Name == "" {
		fault("--topology is empty: name one, for instance all_to_all")
	}
	if err := s.Shape.check(); err != "" {
		fault("%s", err)
	}
	if s.Mimic < 0 || s.Mimic > time.Minute {
		fault("--mimic %d: must be 0 to 60000000 microseconds", s.Mimic.Microseconds())
	}
	positive("--join-timeout", s.JoinTimeout)
	positive("--phase-timeout", s.PhaseTimeout)
	positive("--liveness-timeout", s.LivenessTimeout)
	if s.MaxTime < 0 || s.MaxTime > longest {
		fault("--max-time %s: must not be negative (0 is no limit) and at most %s", s.MaxTime, longest)
	}
	held := map[Token]bool{}
	for _, h := range s.Holds {
		if !Enters(h.Phase) {
			fault("--hold %s: no job enters phase %q, use one of %s", h, string(h.Phase), enteredNames())
		}
		if h.For <= 0 || h.For > longest {
			fault("--hold %s: must be longer than 0 and at most %s", h, longest)
		}
		if held[h.Phase] {
			fault("--hold %s: phase %s is held twice", h, h.Phase)
		}
		held[h.Phase] = true
	}
	size := int64(s.Procs) * int64(s.RanksPerProc)
	for _, d := range s.Delays {
		if e, ok := Lookup(d.Phase); !ok || !e.Lockstep || e.Empty {
			fault("--delay %s: phase %q is not entered in lockstep, use one of create … destroy", d, string(d.Phase))
		}
		if d.Rank < 0 || size > 0 && int64(d.Rank) >= size {
			fault("--delay %s: rank %d is not in 0 to %d", d, d.Rank, size-1)
		}
		if d.For <= 0 || d.For > longest {
			fault("--delay %s: must be longer than 0 and at most %s", d, longest)
		}
	}
	if len(s.Passes) > 0 {
		faults = append(faults, s.passFaults()...)
	}
	if len(faults) == 0 {
		return nil
	}
	return rank.Errorf(rank.KindUsage, "%s", strings.Join(faults, "; "))
}

// passFaults are what is wrong with rounds that differ. No flag says such a
// thing, so the faults are those of a face.
func (s Spec) passFaults() []string {
	if len(s.Passes) != s.Rounds || s.Mimic > 0 {
		return []string{fmt.Sprintf("%d passes for %d rounds with --mimic %d: one for each, and no other mimic",
			len(s.Passes), s.Rounds, s.Mimic.Microseconds())}
	}
	var faults []string
	for i, p := range s.Passes {
		if p.Connections < 0 || p.Connections > s.Connections || p.Delay < 0 || p.Delay > time.Minute || p.Delay > 0 && !p.NoQPs {
			faults = append(faults, fmt.Sprintf("pass %d (%s): must have at most %d connections, a delay of at most 1m, and that only without queue pairs", i, p, s.Connections))
		}
	}
	return faults
}

// Settings lists every job-wide setting after defaults, sorted by key; keys
// are flag names, and the options of a face as they are typed. Equal specs, and only those, give equal lists: the knock
// compares them and the document shows them. A custom topology counts by the
// SHA-256 of its content, not by the name of the file, which may differ from
// host to host.
func (s Spec) Settings() []rank.KV {
	t := s.Topology
	custom := ""
	if t.Name == "custom" || len(t.Custom) > 0 {
		sum := sha256.Sum256(t.Custom)
		custom = hex.EncodeToString(sum[:])
	}
	kv := []rank.KV{
		{Key: "procs", Value: strconv.Itoa(s.Procs)},
		{Key: "ranks-per-proc", Value: strconv.Itoa(s.RanksPerProc)},
		{Key: "topology", Value: t.Name},
		{Key: "initiators", Value: t.Initiators},
		{Key: "targets", Value: t.Targets},
		{Key: "m2n", Value: joinM2N(t.M, t.N)},
		{Key: "offsets", Value: t.Offsets},
		{Key: "staged", Value: strconv.FormatBool(t.Staged)},
		{Key: "hot", Value: t.Hot},
		{Key: "hot-share", Value: formatFloat(t.HotShare)},
		{Key: "exclude-same-host", Value: strconv.FormatBool(t.ExcludeSameHost)},
		{Key: "no-rotate", Value: strconv.FormatBool(t.NoRotate)},
		{Key: "topology-seed", Value: strconv.FormatUint(t.Seed, 10)},
		{Key: "topology-file-sha256", Value: custom},
		{Key: "connections", Value: strconv.Itoa(s.Connections)},
		{Key: "threads", Value: strconv.Itoa(s.Threads)},
		{Key: "transport", Value: s.Transport},
		{Key: "transport-options", Value: joinOptions(s.Options)},
		{Key: "connect", Value: s.Shape.String()},
		{Key: "secret", Value: map[bool]string{true: "yes", false: "no"}[s.Secret]},
		{Key: "rounds", Value: strconv.Itoa(s.Rounds)},
		{Key: "mimic", Value: s.Mimic.String()},
		{Key: "backlog", Value: strconv.Itoa(s.Backlog)},
		{Key: "seed", Value: strconv.FormatUint(s.Seed, 10)},
		{Key: "hold", Value: joinSorted(s.Holds)},
		{Key: "delay", Value: joinSorted(s.Delays)},
		{Key: "join-timeout", Value: s.JoinTimeout.String()},
		{Key: "phase-timeout", Value: s.PhaseTimeout.String()},
		{Key: "liveness-timeout", Value: s.LivenessTimeout.String()},
		{Key: "max-time", Value: s.MaxTime.String()},
		{Key: "tree-arity", Value: strconv.Itoa(s.TreeArity)},
		{Key: "procs-per-agent", Value: strconv.Itoa(s.ProcsPerAgent)},
		{Key: "passes", Value: joinPasses(s.Passes)},
		{Key: "probe", Value: strconv.FormatBool(!s.NoProbe)},
		{Key: "from-create", Value: strconv.FormatBool(s.FromCreate)},
	}
	kv = append(kv, s.Face...)
	slices.SortFunc(kv, func(a, b rank.KV) int { return strings.Compare(a.Key, b.Key) })
	return kv
}

// joinM2N is empty if the topology chooses.
func joinM2N(m, n int) string {
	if m == 0 && n == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", m, n)
}

// joinOptions prints what the provider was asked for, sorted.
func joinOptions(options map[string]string) string {
	text := make([]string, 0, len(options))
	for _, key := range slices.Sorted(maps.Keys(options)) {
		text = append(text, key+"="+options[key])
	}
	return strings.Join(text, " ")
}

// joinPasses prints what the rounds set up, in their order.
func joinPasses(list []Pass) string {
	text := make([]string, len(list))
	for i, p := range list {
		text[i] = p.String()
	}
	return strings.Join(text, "; ")
}

// joinSorted prints a list in an order that does not depend on the command line.
func joinSorted[T fmt.Stringer](list []T) string {
	text := make([]string, len(list))
	for i, v := range list {
		text[i] = v.String()
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}
