// Package printed keeps what a process under test prints.
package printed

import (
	"bytes"
	"strings"
	"sync"
)

// Text may be read while others write it. The zero value is empty.
type Text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to it.
func (t *Text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

// String is what was written so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// Lines are those that were written so far.
func (t *Text) Lines() []string {
	return strings.FieldsFunc(t.String(), func(r rune) bool { return r == '\n' })
}
