package collect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"rankstorm/rank"
)

// Progress is what the display knows about the running phase.
type Progress struct {
	Phase       string
	Done, Total int64         // work of the phase; Total 0 = unknown
	PerSecond   float64       // rate of Done, 0 = not known yet
	Late        []LateRank    // who is waited for, may be empty
	LateMore    int64         // how many more are late than Late lists
	Elapsed     time.Duration // since the phase began
}

// LateRank is a rank that the others wait for.
type LateRank struct {
	Rank rank.Rank
	Host string
}

// Line is one plain line, for logs and pipes:
// "connect 1,203/3,840 at 12,000/s, waiting for rank 5 (n1)".
func (p Progress) Line() string {
	var b strings.Builder
	b.WriteString(p.Phase)
	switch {
	case p.Total > 0:
		fmt.Fprintf(&b, " %s/%s", FormatCount(p.Done), FormatCount(p.Total))
	case p.Done > 0:
		fmt.Fprintf(&b, " %s", FormatCount(p.Done))
	}
	if p.PerSecond > 0 {
		b.WriteString(" at " + formatRate(p.PerSecond) + "/s")
	}
	if len(p.Late) > 0 {
		b.WriteString(", waiting for ")
		for i, l := range p.Late {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "rank %d", l.Rank)
			if l.Host != "" {
				fmt.Fprintf(&b, " (%s)", l.Host)
			}
		}
		if p.LateMore > 0 {
			fmt.Fprintf(&b, " and %s more", FormatCount(p.LateMore))
		}
	}
	return b.String()
}

// TTYLine is the line for a terminal: bar, figures and elapsed time, cut to
// columns - 1 cells so that it never wraps. The caller returns the cursor and
// clears the line. columns 0 means 80.
func (p Progress) TTYLine(columns int) string {
	if columns <= 0 {
		columns = 80
	}
	elapsed := ""
	if p.Elapsed > 0 {
		elapsed = fmt.Sprintf("  %.1f s", p.Elapsed.Seconds())
	}
	bar := ""
	if p.Total > 0 && columns >= 60 {
		const cells = 20
		full := int(cells * float64(min(max(p.Done, 0), p.Total)) / float64(p.Total))
		bar = strings.Repeat("█", full) + strings.Repeat("░", cells-full) + " "
	}
	room := columns - 1 - runewidth.StringWidth(bar) - runewidth.StringWidth(elapsed)
	if room < 1 {
		return runewidth.Truncate(p.Line(), max(columns-1, 1), "…")
	}
	return bar + runewidth.Truncate(p.Line(), room, "…") + elapsed
}

// formatRate prints a rate; slow ones, of rounds mostly, to two digits.
func formatRate(r float64) string {
	if r < 10 {
		return strconv.FormatFloat(r, 'g', 2, 64)
	}
	return FormatCount(roundRate(r))
}

// roundRate keeps three significant digits: a rate is not known better.
func roundRate(r float64) int64 {
	if r >= 9e17 {
		return 9e17
	}
	n, unit := int64(r+0.5), int64(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}
