package rank

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// customFile is the content of a custom file: per initiator the targets in
// file order. It has no self edges, no repeats and only weights above 0.
type customFile struct {
	matrix bool
	rows   [][]customEdge
}

type customEdge struct {
	to     Rank
	weight float64
	line   int
}

// customParser reads one file; its errors name file and line.
type customParser struct {
	name  string
	view  View
	edges int
	file  customFile
}

// parseCustom reads one of two formats. Blank lines and what follows a # are
// skipped in both; the first line that is left decides: an edge list has a
// colon.
//
// Edge list: "src: dst[*weight], dst…". src and the dst are selections as in
// ParseSelection; the colon is the first that a blank or the end of the line
// follows, or else the first. A weight (default 1) counts for every rank that
// its word names; it is what follows the last * if that is a number, so a
// pattern that ends in * and digits needs a weight. Weights are relative to the
// other edges of the initiator; 0 means no edge. An initiator may have several
// lines. An initiator left without an edge is an error.
//
// Matrix: W lines of W numbers, separated by blanks or commas; row i, column j
// is the bytes that rank i moves to rank j, with K, M, G or T for powers of
// 1024. 0 means no edge, a row of zeros a rank that does not initiate.
//
// Self edges are dropped, a repeated edge is an error.
func parseCustom(name string, content []byte, v View) (*customFile, error) {
	p := &customParser{name: name, view: v}
	if p.name == "" {
		p.name = "custom file"
	}
	p.file.rows = make([][]customEdge, v.Size())
	number, row, decided := 0, 0, false
	// Editors on some systems begin a text with a byte order mark.
	for line := range strings.Lines(strings.TrimPrefix(string(content), "\ufeff")) {
		number++
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if !decided {
			decided = true
			p.file.matrix = !strings.Contains(line, ":")
		}
		var err error
		if p.file.matrix {
			err = p.matrixRow(number, row, line)
			row++
		} else {
			err = p.edgeLine(number, line)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case !decided:
		return nil, p.fail(number, "no edges and no matrix, only blank lines and comments")
	case p.file.matrix && row < v.Size():
		return nil, p.fail(number, "the matrix has %d rows, needs %d: one per rank", row, v.Size())
	case p.file.matrix && p.edges == 0 && v.Size() > 1:
		return nil, p.fail(number, "the matrix has no bytes between different ranks")
	}
	if err := p.refuseRepeats(); err != nil {
		return nil, err
	}
	return &p.file, nil
}

func (p *customParser) fail(line int, format string, args ...any) error {
	e := Errorf(KindUsage, format, args...)
	e.Text = p.name + ":" + strconv.Itoa(line) + ": " + e.Text
	return e
}

// add notes an edge.
func (p *customParser) add(line int, from, to Rank, weight float64) error {
	if from == to || weight == 0 {
		return nil
	}
	if p.edges++; p.edges > maxCustomEdges {
		return p.tooMany(line)
	}
	p.file.rows[from] = append(p.file.rows[from], customEdge{to: to, weight: weight, line: line})
	return nil
}

func (p *customParser) tooMany(line int) error {
	return p.fail(line, "more than %d edges: use a topology with a rule, such as all_to_all", maxCustomEdges)
}

func (p *customParser) matrixRow(line, row int, text string) error {
	size := p.view.Size()
	if row >= size {
		return p.fail(line, "the matrix has more than %d rows: one per rank", size)
	}
	// Commas and blanks separate, but two commas hold an empty cell.
	cells := make([]string, 0, size)
	for part := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		fields := strings.Fields(part)
		if len(fields) == 0 {
			return p.fail(line, "row %d has an empty cell: write 0 for no bytes", row)
		}
		cells = append(cells, fields...)
	}
	if len(cells) != size {
		hint := ""
		if row == 0 {
			hint = `; if this is an edge list, write "src: dst, dst"`
		}
		return p.fail(line, "row %d has %d columns, needs %d: one per rank%s", row, len(cells), size, hint)
	}
	for column, cell := range cells {
		bytes, ok := parseBytes(cell)
		if !ok {
			return p.fail(line, "row %d, column %d: %q is no number of bytes: write 0 or a number from %g to %g, K, M, G, T for powers of 1024", row, column, cell, minWeight, maxWeight)
		}
		if err := p.add(line, Rank(row), Rank(column), bytes); err != nil {
			return err
		}
	}
	return nil
}

// parseBytes reads a finite number ≥ 0 with a suffix K, M, G or T (powers of
// 1024, any case).
func parseBytes(cell string) (float64, bool) {
	scale := 1.0
	if i := strings.IndexByte("kmgt", cell[len(cell)-1]|0x20); i >= 0 {
		scale = float64(int64(1) << (10 * (i + 1)))
		cell = cell[:len(cell)-1]
	}
	n, ok := parseWeight(cell)
	return n * scale, ok && n*scale <= maxWeight
}

// Weights are 0 or within these bounds, so that sums stay finite and shares
// above 0.
const (
	minWeight = 1e-9
	maxWeight = 1e18
)

// parseWeight reads a number that is 0 or in minWeight … maxWeight.
func parseWeight(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && (n == 0 || n >= minWeight) && n <= maxWeight
}

func (p *customParser) edgeLine(line int, text string) error {
	colon := -1
	for i := range len(text) {
		if text[i] == ':' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\t') {
			colon = i
			break
		}
	}
	if colon < 0 {
		colon = strings.IndexByte(text, ':')
	}
	if colon < 0 {
		return p.fail(line, "no colon: write \"src: dst, dst\", and a blank after the colon")
	}
	sources, err := ParseSelection(text[:colon], p.view)
	if err != nil {
		return p.fail(line, "source: %w", err)
	}
	before := make([]int, len(sources))
	for i, from := range sources {
		before[i] = len(p.file.rows[from])
	}
	rest := strings.TrimSpace(text[colon+1:])
	if rest == "" {
		return p.fail(line, "ranks %s have no targets: name some or remove the line", FormatRanks(sources))
	}
	for _, word := range splitWords(rest) {
		targets, weight, err := p.target(line, strings.TrimSpace(word))
		if err != nil {
			return err
		}
		// Refuse "*: *" before it is expanded: at most one self edge each drops out.
		if s, t := len(sources), len(targets); weight > 0 && s*t-min(s, t) > maxCustomEdges-p.edges {
			return p.tooMany(line)
		}
		for _, from := range sources {
			for _, to := range targets {
				if err := p.add(line, from, to, weight); err != nil {
					return err
				}
			}
		}
	}
	for i, from := range sources {
		if len(p.file.rows[from]) == before[i] {
			return p.fail(line, "rank %d has no target but itself or all its weights are 0: name another or remove it", from)
		}
	}
	return nil
}

// target reads "dst[*weight]".
func (p *customParser) target(line int, word string) ([]Rank, float64, error) {
	weight := 1.0
	if star := strings.LastIndexByte(word, '*'); star >= 0 {
		text := strings.TrimSpace(word[star+1:])
		if n, err := strconv.ParseFloat(text, 64); err == nil || n != 0 { // out of range gives ±Inf
			ok := false
			if weight, ok = parseWeight(text); !ok {
				return nil, 0, p.fail(line, "weight %q of %q: give 0 or a number from %g to %g", text, word, minWeight, maxWeight)
			}
			word = strings.TrimSpace(word[:star])
		} else if strings.Trim(word[:star], "0123456789-: ") == "" && star > 0 {
			return nil, 0, p.fail(line, "weight %q of %q is no number", text, word)
		}
	}
	targets, err := ParseSelection(word, p.view)
	if err != nil {
		return nil, 0, p.fail(line, "target: %w", err)
	}
	return targets, weight, nil
}

// refuseRepeats finds an edge that is given twice: the one whose second line
// comes first.
func (p *customParser) refuseRepeats() error {
	var from Rank
	var first, second customEdge
	for r, row := range p.file.rows {
		sorted := slices.Clone(row)
		slices.SortStableFunc(sorted, func(a, b customEdge) int { return cmp.Compare(a.to, b.to) })
		for i := 1; i < len(sorted); i++ {
			if sorted[i].to == sorted[i-1].to && (second.line == 0 || sorted[i].line < second.line) {
				from, first, second = Rank(r), sorted[i-1], sorted[i]
			}
		}
	}
	if second.line == 0 {
		return nil
	}
	return p.fail(second.line, "edge %d → %d is already given on line %d: give each edge once", from, second.to, first.line)
}
