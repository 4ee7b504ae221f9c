package tcp

import (
	"testing"
	"unsafe"
)

// A slot stays small: it is what a connection costs this process beside the
// kernel's socket.
func TestSlotSize(t *testing.T) {
	if got := unsafe.Sizeof(conn{}); got > 128 {
		t.Errorf("a connection takes %d bytes, want at most 128", got)
	} else {
		t.Logf("a connection takes %d bytes", got)
	}
}
