package collect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDocumentBytes bounds what Decode reads.
const maxDocumentBytes = 1 << 30

// Encode writes the finished document as indented JSON. Equal documents give
// equal bytes. Objects and lists that hold only plain values stand on one line.
func (d *Document) Encode(w io.Writer) error {
	if d.Exit == nil {
		return errors.New("encode document: it is not finished")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		return fmt.Errorf("encode document: %w", err)
	}
	if _, err := w.Write(indent(b.Bytes())); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

// Decode reads a document; it accepts schema 1 with keys that it does not know.
func Decode(r io.Reader) (*Document, error) {
	limited := &io.LimitedReader{R: r, N: maxDocumentBytes + 1}
	dec := json.NewDecoder(limited)
	d := &Document{}
	if err := dec.Decode(d); err != nil {
		if limited.N <= 0 {
			return nil, fmt.Errorf("decode document: larger than %d bytes", maxDocumentBytes)
		}
		return nil, fmt.Errorf("decode document: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("decode document: something follows it; one file holds one document")
	}
	if d.Schema != SchemaName {
		return nil, fmt.Errorf("decode document: schema %.40q, this program reads %q", d.Schema, SchemaName)
	}
	if d.Exit == nil {
		return nil, errors.New("decode document: key exit is missing")
	}
	return d, nil
}

// indent lays out compact JSON: two spaces a level, but a small container (see
// isFlat) on one line, unless it is an object directly in the document.
func indent(compact []byte) []byte {
	out := make([]byte, 0, 2*len(compact))
	depth := 0
	newline := func() {
		out = append(out, '\n')
		for range depth {
			out = append(out, ' ', ' ')
		}
	}
	var flat []bool // per open container: stays on one line
	var text quoted
	for i, c := range compact {
		if text.takes(c) {
			out = append(out, c)
			continue
		}
		switch c {
		case '{', '[':
			one := len(flat) > 0 && flat[len(flat)-1] || (c == '[' || len(flat) > 1) && isFlat(compact[i:]) || compact[i+1] == '}'
			flat = append(flat, one)
			out = append(out, c)
			if !one {
				depth++
				newline()
			}
		case '}', ']':
			if len(flat) > 0 {
				if !flat[len(flat)-1] {
					depth--
					newline()
				}
				flat = flat[:len(flat)-1]
			}
			out = append(out, c)
		case ',':
			out = append(out, c)
			if len(flat) > 0 && !flat[len(flat)-1] {
				newline()
			} else {
				out = append(out, ' ')
			}
		case ':':
			out = append(out, c, ' ')
		default:
			out = append(out, c)
		}
	}
	return out
}

// quoted follows the strings of a JSON text byte by byte.
type quoted struct{ open, escaped bool }

// takes says whether the next byte belongs to a string, its quotes included.
func (q *quoted) takes(c byte) bool {
	switch {
	case q.escaped:
		q.escaped = false
	case q.open && c == '\\':
		q.escaped = true
	case c == '"':
		q.open = !q.open
		return true
	}
	return q.open
}

// isFlat says whether the container at b[0] stands on one line: it nests at most
// one level (the edges inside a rank's figures, the pairs of a histogram) and is
// no list of objects.
func isFlat(b []byte) bool {
	depth := 0
	var text quoted
	for i, c := range b {
		if text.takes(c) {
			continue
		}
		switch c {
		case '{', '[':
			depth++
			// A list of objects gets a line per object; anything deeper than two levels is laid out.
			if depth > 2 || i > 0 && b[0] == '[' && c == '{' {
				return false
			}
		case '}', ']':
			depth--
			if depth == 0 {
				return true
			}
		}
	}
	return true
}
