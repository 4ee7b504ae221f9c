package collect

import (
	"fmt"
	"strings"

	"github.com/mattn/go-runewidth"

	"rankstorm/rank"
)

// column of the table. A column that no row fills is left out.
type column struct {
	key   string // what narrowings name
	head  string
	right bool
	cell  func(r tableRow) string
}

// tableRow is a step, or a phase without steps.
type tableRow struct {
	phase string // only in the first row of a phase
	step  *StepDoc
	wall  *int64
}

// narrowings are taken one after the other while the table is too wide.
var narrowings = []struct {
	drop  string // column to leave out
	apply func(l *layout)
	ifAny func(d *Document) bool // skipped if it returns true
}{
	{drop: "p90"},
	{drop: "p999"},
	{drop: "sum"},
	{apply: func(l *layout) { l.hosts = false }},
	{apply: func(l *layout) { l.target = " (t)" }},
	{drop: "failed", ifAny: anyFailed},
	{drop: "slowest"},
	{drop: "p50"},
	{drop: "count"},
	{drop: "p99"},
	{drop: "phase"}, // of phases without steps it goes into the column of steps
	{drop: "max"},
}

func anyFailed(d *Document) bool {
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			if s.Failed > 0 {
				return true
			}
		}
	}
	return false
}

// layout is how wide the table may be said.
type layout struct {
	hosts   bool   // host names in the last column
	target  string // mark of target-side steps
	dropped map[string]bool
}

func (t *tableText) rows(d *Document) {
	var rows []tableRow
	for _, p := range d.Phases {
		if len(p.Steps) == 0 {
			if p.WallNS != nil {
				rows = append(rows, tableRow{phase: p.Phase, wall: p.WallNS})
			}
			continue
		}
		for i := range p.Steps {
			r := tableRow{step: &p.Steps[i], wall: p.Steps[i].WallNS}
			if i == 0 {
				r.phase = p.Phase
			}
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	l := &layout{hosts: len(d.Hosts) > 1, target: " (target)", dropped: map[string]bool{}}
	hosts := d.hostNames()
	lines := l.render(rows, hosts)
	for _, n := range narrowings {
		if t.o.Columns == 0 || lines.width() <= t.o.Columns {
			break
		}
		if n.ifAny != nil && n.ifAny(d) {
			continue
		}
		if n.apply != nil {
			n.apply(l)
		} else {
			l.dropped[n.drop] = true
		}
		lines = l.render(rows, hosts)
	}
	t.writeGrid(lines, rows)
	t.b.WriteByte('\n')
}

// grid is a rendered table: columns and cells, [0] being the header row.
type grid struct {
	columns []column
	cells   [][]string
	widths  []int
}

const columnGap = 2

func (g grid) width() int {
	n := -columnGap
	for _, w := range g.widths {
		n += w + columnGap
	}
	return n
}

func (l *layout) render(rows []tableRow, hosts map[rank.Rank]string) grid {
	var g grid
	for _, c := range l.columns(hosts) {
		if l.dropped[c.key] {
			continue
		}
		width := runewidth.StringWidth(c.head)
		for _, r := range rows {
			width = max(width, runewidth.StringWidth(c.cell(r)))
		}
		g.columns = append(g.columns, c)
		g.widths = append(g.widths, width)
	}
	head := make([]string, len(g.columns))
	for i, c := range g.columns {
		head[i] = c.head
	}
	g.cells = append(g.cells, head)
	for _, r := range rows {
		line := make([]string, len(g.columns))
		for i, c := range g.columns {
			line[i] = c.cell(r)
		}
		g.cells = append(g.cells, line)
	}
	return g
}

func (l *layout) columns(hosts map[rank.Rank]string) []column {
	figure := func(f func(s *StepDoc) *int64) func(tableRow) string {
		return func(r tableRow) string {
			if r.step == nil {
				return ""
			}
			return durationCell(f(r.step))
		}
	}
	count := func(f func(s *StepDoc) int64) func(tableRow) string {
		return func(r tableRow) string {
			if r.step == nil {
				return ""
			}
			return FormatCount(f(r.step))
		}
	}
	slowestHead := "slowest"
	if l.hosts {
		slowestHead = "slowest rank → peer"
	}
	return []column{
		{"phase", "phase", false, func(r tableRow) string { return r.phase }},
		{"step", "step", false, l.stepCell},
		{"count", "count", true, count(func(s *StepDoc) int64 { return s.Count })},
		{"failed", "failed", true, count(func(s *StepDoc) int64 { return s.Failed })},
		{"wall", "wall", true, func(r tableRow) string { return durationCell(r.wall) }},
		{"sum", "sum", true, figure(func(s *StepDoc) *int64 { return s.SumNS })},
		{"p50", "p50", true, figure(func(s *StepDoc) *int64 { return s.P50NS })},
		{"p90", "p90", true, figure(func(s *StepDoc) *int64 { return s.P90NS })},
		{"p99", "p99", true, figure(func(s *StepDoc) *int64 { return s.P99NS })},
		{"p999", "p99.9", true, figure(func(s *StepDoc) *int64 { return s.P999NS })},
		{"max", "max", true, figure(func(s *StepDoc) *int64 { return s.MaxNS })},
		{"slowest", slowestHead, false, func(r tableRow) string { return l.slowestCell(r, hosts) }},
	}
}

func durationCell(ns *int64) string {
	if ns == nil {
		return "–"
	}
	return FormatDuration(*ns)
}

func (l *layout) stepCell(r tableRow) string {
	switch {
	case r.step == nil && l.dropped["phase"]:
		return r.phase
	case r.step == nil:
		return ""
	case r.step.Side == SideTarget:
		return r.step.Step + l.target
	}
	return r.step.Step
}

// slowestCell names the connection of the maximum, the measuring rank first:
// "3 (n1) → 9 (n4)", at a target "9 (n4) ← 3 (n1)".
func (l *layout) slowestCell(r tableRow, hosts map[rank.Rank]string) string {
	if r.step == nil || r.step.MaxEdge == nil {
		return ""
	}
	name := func(r rank.Rank) string {
		if l.hosts {
			return fmt.Sprintf("%d (%s)", r, hosts[r])
		}
		return fmt.Sprint(r)
	}
	e := r.step.MaxEdge
	switch {
	case e.To == nil:
		return name(e.From)
	case r.step.Side == SideTarget:
		return name(*e.To) + " ← " + name(e.From)
	}
	return name(e.From) + " → " + name(*e.To)
}

func (t *tableText) writeGrid(g grid, rows []tableRow) {
	for y, line := range g.cells {
		var b strings.Builder
		for x, cell := range line {
			fill := strings.Repeat(" ", g.widths[x]-runewidth.StringWidth(cell))
			style := styleNone
			switch {
			case y == 0 || x == 0:
				style = styleBold
			case g.columns[x].key == "failed" && rows[y-1].step != nil && rows[y-1].step.Failed > 0:
				style = styleRed
			case rows[y-1].step != nil && rows[y-1].step.Side == SideTarget:
				style = styleDim
			}
			text := t.style(cell, style)
			if g.columns[x].right {
				text = fill + text
			} else if x < len(line)-1 {
				text += fill
			}
			if x > 0 {
				b.WriteString(strings.Repeat(" ", columnGap))
			}
			b.WriteString(text)
		}
		t.b.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
}
