package collect

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"rankstorm/rank"
)

// TableOptions of WriteTable.
type TableOptions struct {
	Columns int  // width of the terminal in cells, 0 = unlimited
	Color   bool // ANSI bold, dim and red
}

// labelWidth is where the text of the lines below the table begins.
const labelWidth = 13

// WriteTable prints the document for a person: header, one row per step, then
// failures, connections, barriers, clocks, resources, causes, warnings, exit. It
// is a pure function of d. If the rows are wider than o.Columns, columns go in
// the order of narrowings; other lines wrap between words.
func WriteTable(w io.Writer, d *Document, o TableOptions) error {
	t := &tableText{o: o}
	t.header(d)
	t.rows(d)
	t.failures(d)
	t.connections(d)
	t.barriers(d)
	t.clocks(d)
	t.resources(d)
	t.growth(d)
	for _, c := range d.Causes {
		t.words("cause", c.Evidence)
		if c.Fix != "" {
			t.words("", "fix: "+c.Fix)
		}
	}
	for _, text := range d.Warnings {
		t.words("warning", text)
	}
	t.exit(d)
	_, err := io.WriteString(w, t.b.String())
	return err
}

// tableText collects the text.
type tableText struct {
	b strings.Builder
	o TableOptions
}

const (
	styleNone = ""
	styleBold = "1"
	styleDim  = "2"
	styleRed  = "31"
)

func (t *tableText) style(s, style string) string {
	if !t.o.Color || style == styleNone || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return FormatCount(n) + " " + many
}

func (t *tableText) header(d *Document) {
	items := []string{plural(d.Size, "rank", "ranks"), plural(int64(len(d.Hosts)), "host", "hosts")}
	if d.VirtualRanks {
		items = append(items, fmt.Sprintf("virtual ranks: %s per process", FormatCount(d.RanksPerProc)))
	}
	items = append(items, d.Topology.Name)
	if d.Topology.Stages > 1 {
		items = append(items, plural(d.Topology.Stages, "stage", "stages"))
	}
	items = append(items, fmt.Sprintf("%s × %s = %s", plural(d.Edges, "edge", "edges"), FormatCount(d.ConnsPerEdge),
		plural(d.Edges*d.ConnsPerEdge, "connection", "connections")))
	switch {
	case d.RoundsAsked == 0:
		items = append(items, plural(d.RoundsRun, "round", "rounds"))
	case d.RoundsAsked > 1:
		items = append(items, plural(d.RoundsAsked, "round", "rounds"))
	}
	items = append(items, d.Transport, d.Connect)
	if d.Poll != nil {
		items = append(items, "poll "+*d.Poll)
	}
	items = append(items, "run "+d.RunID)
	for _, line := range wrap(items, " · ", t.o.Columns, 0) {
		t.b.WriteString(t.style(line, styleBold) + "\n")
	}
	t.b.WriteByte('\n')
}

// words prints a labelled text, wrapped between words.
func (t *tableText) words(label, text string) {
	// Control characters in texts from other processes must not move the cursor.
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
	t.lines(label, wrap(unbroken(text), " ", t.o.Columns, labelWidth), styleNone)
}

// items prints a labelled list, wrapped between items.
func (t *tableText) items(label string, items []string, style string) {
	t.lines(label, wrap(items, " · ", t.o.Columns, labelWidth), style)
}

func (t *tableText) lines(label string, lines []string, style string) {
	for i, line := range lines {
		head := strings.Repeat(" ", labelWidth)
		if i == 0 {
			head = t.style(label, styleBold) + strings.Repeat(" ", labelWidth-len(label))
		}
		t.b.WriteString(head + t.style(line, style) + "\n")
	}
}

// wrap joins items into lines of at most columns - indent cells; an item that is
// too long stands alone and is broken between words.
func wrap(items []string, sep string, columns, indent int) []string {
	room := columns - indent
	if columns == 0 {
		return []string{strings.Join(items, sep)}
	}
	room = max(room, 20)
	var lines []string
	line := ""
	for _, item := range items {
		switch {
		case line == "":
			line = item
		case runewidth.StringWidth(line+sep+item) <= room:
			line += sep + item
		default:
			lines = append(lines, line)
			line = item
		}
		if sep != " " && runewidth.StringWidth(line) > room {
			parts := wrap(unbroken(line), " ", room, 0)
			lines = append(lines, parts[:len(parts)-1]...)
			line = parts[len(parts)-1]
		}
	}
	return append(lines, line)
}

// units stand behind figures, on the same line.
var units = []string{"ns", "µs", "ms", "s", "B", "KiB", "MiB", "GiB", "TiB", "fds"}

// unbroken are the words of a text; a figure and its unit are one.
func unbroken(text string) []string {
	var words []string
	for word := range strings.FieldsSeq(text) {
		last := len(words) - 1
		if last >= 0 && strings.ContainsAny(words[last][:1], "0123456789") && slices.Contains(units, strings.TrimRight(word, ".,:;)")) {
			words[last] += " " + word
			continue
		}
		words = append(words, word)
	}
	return words
}

func (t *tableText) failures(d *Document) {
	for _, p := range d.Phases {
		for _, s := range p.Steps {
			if s.Failed == 0 {
				continue
			}
			var items []string
			for _, cause := range slices.Sorted(maps.Keys(s.Failures)) {
				items = append(items, fmt.Sprintf("%s %s", cause, FormatCount(s.Failures[cause])))
			}
			items[0] = s.Step + ": " + items[0]
			t.items("failures", items, styleRed)
		}
	}
}

func (t *tableText) connections(d *Document) {
	c := d.Connections
	style := styleNone
	if c.Failed > 0 || c.Dead > 0 || c.Broken > 0 {
		style = styleRed
	}
	items := []string{
		FormatCount(c.Planned) + " planned", FormatCount(c.Started) + " started", FormatCount(c.Established) + " established",
		FormatCount(c.Accepted) + " accepted", FormatCount(c.Dead) + " dead", FormatCount(c.Failed) + " failed",
	}
	if c.Broken > 0 {
		items = append(items, FormatCount(c.Broken)+" broken")
	}
	t.items("connections", items, style)
}

// clockBound is the largest error of any clock against the root's.
func clockBound(d *Document) int64 {
	var bound int64
	for _, c := range d.Clock {
		bound = max(bound, c.BoundNS)
	}
	for _, p := range d.Phases {
		if p.BoundNS != nil {
			bound = max(bound, *p.BoundNS)
		}
	}
	return bound
}

func (t *tableText) barriers(d *Document) {
	var took, skew []int64
	for _, b := range d.Barriers {
		if b.BarrierNS != nil {
			took = append(took, *b.BarrierNS)
		}
		if b.ReleaseSkewNS != nil {
			skew = append(skew, *b.ReleaseSkewNS)
		}
	}
	items := []string{FormatCount(int64(len(d.Barriers)) + d.BarriersMore)}
	bound := clockBound(d)
	add := func(name string, list []int64, all FiguresDoc) {
		if len(list) == 0 {
			return
		}
		largest, median := slices.Max(list), int64(0) // the worst are always listed
		if d.BarriersMore == 0 {
			slices.Sort(list)
			median = medianOf(list)
		} else if m := all.median(); m != nil {
			median = *m
		}
		if largest == 0 {
			return // one worker: there is nothing to compare
		}
		if largest < bound {
			items = append(items, fmt.Sprintf("%s < %s", name, FormatDuration(bound)))
			return
		}
		items = append(items, fmt.Sprintf("%s median %s, max %s", name, overBound(median, bound), FormatDuration(largest)))
	}
	add("last in → last out", took, d.BarrierStats.BarrierNS)
	add("release skew", skew, d.BarrierStats.ReleaseSkewNS)
	if len(d.Barriers) > 0 {
		t.items("barriers", items, styleNone)
	}
}

// growth says whether rounds leave something behind.
func (t *tableText) growth(d *Document) {
	g := d.Growth
	if g == nil {
		return
	}
	change := func(n int64, text func(int64) string) string {
		switch {
		case n < 0:
			return "-" + text(-n)
		case n > 0:
			return "+" + text(n)
		}
		return text(0)
	}
	t.items("growth", []string{
		fmt.Sprintf("all processes per 1,000 rounds, from round %s on: %s fds", FormatCount(int64(g.FromRound)+1), change(g.FDs, FormatCount)),
		change(g.Goroutines, FormatCount) + " goroutines",
		"heap " + change(g.HeapBytes, FormatBytes),
		"resident " + change(g.RSSBytes, FormatBytes),
	}, styleNone)
}

// overBound prints a difference between two clocks; below their bound it is
// not known better than that.
func overBound(ns, bound int64) string {
	if ns < bound {
		return "< " + FormatDuration(bound)
	}
	return FormatDuration(ns)
}

func (t *tableText) clocks(d *Document) {
	if len(d.Clock) == 0 {
		return
	}
	if bound := clockBound(d); bound > 0 {
		t.items("clocks", []string{"agree within " + FormatDuration(bound)}, styleNone)
		return
	}
	t.items("clocks", []string{"one clock"}, styleNone)
}

func (t *tableText) resources(d *Document) {
	judged, leaking := int64(0), map[rank.Proc]bool{}
	for _, l := range d.Leaks() {
		leaking[l.Proc] = true
	}
	var fds, ids, qps, rss, drops, retries int64
	peaks, dropsKnown, retriesKnown := false, false, false
	for _, r := range d.Resources {
		if r.Before != nil && r.After != nil {
			judged++
			if r.Before.ListenDrops != nil && r.After.ListenDrops != nil {
				drops, dropsKnown = drops+*r.After.ListenDrops-*r.Before.ListenDrops, true
			}
			if r.Before.SYNRetries != nil && r.After.SYNRetries != nil {
				retries, retriesKnown = retries+*r.After.SYNRetries-*r.Before.SYNRetries, true
			}
		}
		if r.Peak != nil {
			fds, peaks = max(fds, r.Peak.FDs), true
			if r.Peak.IDs != nil && r.Peak.QPs != nil {
				ids, qps = max(ids, *r.Peak.IDs), max(qps, *r.Peak.QPs)
			}
			if r.Peak.RSSBytes != nil {
				rss = max(rss, *r.Peak.RSSBytes)
			}
		}
	}
	var items []string
	style := styleNone
	switch {
	case judged == 0:
	case len(leaking) > 0:
		style = styleRed
		items = append(items, fmt.Sprintf("not back to the baseline: %s of %s", FormatCount(int64(len(leaking))), plural(judged, "process", "processes")))
	default:
		items = append(items, "back to the baseline: "+plural(judged, "process", "processes"))
	}
	if peaks {
		text := "peak per process " + plural(fds, "fd", "fds")
		if ids > 0 {
			text += ", " + plural(ids, "id", "ids") + ", " + plural(qps, "QP", "QPs")
		}
		if rss > 0 {
			text += ", " + FormatBytes(rss)
		}
		items = append(items, text)
	}
	if dropsKnown {
		items = append(items, "listen drops "+FormatCount(drops))
	}
	if retriesKnown {
		items = append(items, "SYN retries "+FormatCount(retries))
	}
	if len(items) > 0 {
		t.items("resources", items, style)
	}
}

func (t *tableText) exit(d *Document) {
	if d.Exit == nil {
		return
	}
	e := d.Exit
	text := fmt.Sprint(e.Code)
	switch {
	case e.Code == 0 && !e.Partial:
		text += " clean"
	case e.Partial && d.Progress != nil:
		text += " partial, stopped in " + d.Progress.Phase
		if d.Progress.Total > 0 { // it ran long enough to tell
			text += fmt.Sprintf(" at %s/%s", FormatCount(d.Progress.Done), FormatCount(d.Progress.Total))
		}
	case e.Partial:
		text += " partial"
	case e.Cause != nil:
		text += " " + *e.Cause
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	t.words("exit", text)
}
