package collect

import (
	"io"
)

// TableOptions of WriteTable.
type TableOptions struct {
	Columns int  // width of the terminal in cells, 0 = unlimited
	Color   bool // ANSI bold, dim and red
}

// WriteTable prints the document for a person. It is a pure function of d.
func WriteTable(w io.Writer, d *Document, o TableOptions) error {
	_, err := io.WriteString(w, renderTable(d, o))
	return err
}
