package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// columns is the width of the terminal that w is, 0 if it is none: what goes
// into a file or a pipe is complete, whatever terminal the command was typed on.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// leastRoom is how wide the last column of a text must be to stay beside the others.
const leastRoom = 24

// rowOfFigures is how many cells no line of words has.
const rowOfFigures = 4

var cells = regexp.MustCompile(`\S+( \S+)*`)

// print writes a text for a person to standard output.
func (a *app) print(text string) error {
	_, err := io.WriteString(a.text, layout(text, columns(a.stdout)))
	return err
}

// layout breaks lines that are wider than the terminal between words; 0 columns
// are unlimited. Cells of a line are two blanks or more apart: its last cell is
// continued below itself, or below the line where it has too little room; rows
// of figures stay whole. Neighbouring lines of prose are filled anew.
func layout(text string, columns int) string {
	if columns == 0 {
		return text
	}
	var b strings.Builder
	var prose []string
	flush := func() {
		wide := false
		for _, line := range prose {
			wide = wide || utf8.RuneCountInString(line) > columns
		}
		if wide {
			prose = fill(strings.Join(prose, " "), "", "", columns)
		}
		for _, line := range prose {
			b.WriteString(line + "\n")
		}
		prose = prose[:0]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line != "" && line[0] != ' ' && !strings.Contains(line, "  ") {
			prose = append(prose, line)
			continue
		}
		flush()
		for _, part := range breakLine(line, columns) {
			b.WriteString(part + "\n")
		}
	}
	flush()
	return b.String()
}

// breakLine makes lines of at most columns cells of one that has cells or an indent.
func breakLine(line string, columns int) []string {
	if utf8.RuneCountInString(line) <= columns {
		return []string{line}
	}
	margin := line[:len(line)-len(strings.TrimLeft(line, " "))]
	gap := strings.LastIndex(strings.TrimRight(line, " "), "  ")
	switch {
	case gap < len(margin): // no cells
		return fill(line[len(margin):], margin, margin+"  ", columns)
	case len(cells.FindAllString(line, rowOfFigures)) == rowOfFigures:
		return []string{line} // breaking would only tear it
	}
	head, last := strings.TrimRight(line[:gap], " "), line[gap+2:]
	if at := utf8.RuneCountInString(line[:gap+2]); at <= columns-leastRoom {
		return fill(last, line[:gap+2], strings.Repeat(" ", at), columns)
	}
	below := margin + "    "
	return append(breakLine(head, columns), fill(last, below, below, columns)...)
}

// fill puts words into lines: the first begins with first, the others with rest.
func fill(text, first, rest string, columns int) []string {
	var lines []string
	line, words := first, 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case words == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= columns:
			line += " " + word
		default:
			lines = append(lines, line)
			line = rest + word
		}
		words++
	}
	return append(lines, line)
}
