//go:build cgo

package verbs

import "testing"

// TestLayouts compares what Go passes to C with what C takes it for.
func TestLayouts(t *testing.T) {
	for i, l := range layouts() {
		if l[0] != l[1] {
			t.Errorf("layout %d: %d in Go, %d in C", i, l[0], l[1])
		}
	}
}
