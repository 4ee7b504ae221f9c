package phases

import (
	"math"
	"strconv"
	"strings"
	"time"

	"rankstorm/rank"
)

// MinRate and MaxRate bound Shape.PerS: one connection in 1,000 s, and one per
// nanosecond. Rates are kept in millionths.
const (
	MinRate = 0.001
	MaxRate = 1e9
)

const shapeForms = "use burst, parallel=W (W slots per rank, at least 1) or rate=R (R per second over the whole job, 0.001 to 1000000000)"

// ParseShape reads the value of --connect: "burst", "parallel=W" or "rate=R".
// R may have decimals and is taken to the nearest millionth.
func ParseShape(text string) (Shape, error) {
	bad := func() (Shape, error) {
		return Shape{}, rank.Errorf(rank.KindUsage, "--connect %q: %s", text, shapeForms)
	}
	name, value, has := strings.Cut(text, "=")
	var s Shape
	switch {
	case name == "burst" && !has:
	case name == "parallel" && has:
		w, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return bad()
		}
		s = Shape{Kind: Parallel, Slots: int(w)}
	case name == "rate" && has:
		r, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return bad()
		}
		s = Shape{Kind: Rate, PerS: math.Round(r*1e6) / 1e6}
	default:
		return bad()
	}
	if s.check() != "" {
		return bad()
	}
	return s, nil
}

// String is the inverse of ParseShape.
func (s Shape) String() string {
	switch s.Kind {
	case Parallel:
		return "parallel=" + strconv.Itoa(s.Slots)
	case Rate:
		return "rate=" + formatFloat(s.PerS)
	default:
		return "burst"
	}
}

// check says what is wrong, "" if nothing.
func (s Shape) check() string {
	ok := false
	switch s.Kind {
	case Burst:
		ok = true
	case Parallel:
		ok = s.Slots >= 1 && s.Slots <= math.MaxInt32
	case Rate:
		ok = s.PerS >= MinRate && s.PerS <= MaxRate // false for NaN
	}
	if ok {
		return ""
	}
	return "--connect " + strconv.Quote(s.String()) + ": " + shapeForms
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// ParseHold reads the value of --hold: "PHASE=DURATION", for instance
// "connect=2s".
func ParseHold(text string) (Hold, error) {
	bad := func(why string) (Hold, error) {
		return Hold{}, rank.Errorf(rank.KindUsage,
			"--hold %q: %s: use PHASE=DURATION, for instance connect=2s; phases: %s", text, why, enteredNames())
	}
	name, value, has := strings.Cut(text, "=")
	if !has {
		return bad("no duration")
	}
	entry, ok := Lookup(Token(name))
	switch {
	case !ok:
		return bad("unknown phase " + strconv.Quote(name))
	case entry.Empty:
		return bad(emptyPhase(name))
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return bad("not a duration longer than 0: " + strconv.Quote(value))
	}
	return Hold{Phase: entry.Token, For: d}, nil
}

// String is the inverse of ParseHold.
func (h Hold) String() string { return string(h.Phase) + "=" + h.For.String() }

// emptyPhase refuses what is asked of a phase that nothing fills.
func emptyPhase(name string) string { return "this version does nothing in phase " + name }

// ParseDelay reads the value of --delay: "rank=R,phase=PHASE,ms=N" with the
// parts in any order; N may have decimals and is taken to the nearest
// nanosecond.
func ParseDelay(text string) (Delay, error) {
	bad := func(why string) (Delay, error) {
		return Delay{}, rank.Errorf(rank.KindUsage,
			"--delay %q: %s: use rank=R,phase=PHASE,ms=N, for instance rank=3,phase=connect,ms=300", text, why)
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, has := strings.Cut(part, "=")
		if !has {
			return bad(strconv.Quote(part) + " has no value")
		}
		if _, twice := parts[name]; twice {
			return bad(name + " is given twice")
		}
		switch name {
		case "rank", "phase", "ms":
			parts[name] = value
		default:
			return bad("unknown part " + strconv.Quote(name))
		}
	}
	for _, name := range [...]string{"rank", "phase", "ms"} {
		if parts[name] == "" {
			return bad(name + " is missing")
		}
	}
	r, err := strconv.ParseInt(parts["rank"], 10, 32)
	if err != nil || r < 0 {
		return bad("not a rank: " + strconv.Quote(parts["rank"]))
	}
	entry, ok := Lookup(Token(parts["phase"]))
	switch {
	case ok && entry.Empty:
		return bad(emptyPhase(parts["phase"]) + ", only in " + lockstepNames())
	case !ok || !entry.Lockstep:
		return bad("phase " + strconv.Quote(parts["phase"]) + " is not one that is entered in lockstep, which are " + lockstepNames())
	}
	ms, err := strconv.ParseFloat(parts["ms"], 64)
	// A day is the most that a delay can mean, and keeps the product exact.
	if err != nil || !(ms > 0 && ms <= 86_400_000) {
		return bad("not a number of milliseconds above 0: " + strconv.Quote(parts["ms"]))
	}
	d := time.Duration(math.Round(ms * 1e6))
	if d <= 0 {
		return bad("not a number of milliseconds above 0: " + strconv.Quote(parts["ms"]))
	}
	return Delay{Rank: rank.Rank(r), Phase: entry.Token, For: d}, nil
}

// String is the inverse of ParseDelay.
func (d Delay) String() string {
	return "rank=" + strconv.Itoa(int(d.Rank)) + ",phase=" + string(d.Phase) + ",ms=" + formatFloat(float64(d.For)/1e6)
}
