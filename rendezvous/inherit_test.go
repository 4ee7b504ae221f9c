package rendezvous

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
)

// A child that was not greeted must not take the next line for a greeting.
func TestInheritNeedsAGreeting(t *testing.T) {
	for _, first := range []any{spawnEnd{Proc: 1, PID: 7}, spawnHello{}, spawnHello{Procs: 2}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		c := &spawned{pipe: w}
		c.tell(first)
		w.Close()
		if in, err := inherit(r); err == nil || !strings.Contains(err.Error(), "no greeting") {
			t.Errorf("%+v: %+v, %v", first, in, err)
		}
	}
}

// A line is told whole, and a child that reads nothing does not hold its parent.
func TestTellDoesNotWait(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &spawned{pipe: w}
	for range 10000 { // a pipe holds 64 KiB
		c.tell(spawnEnd{Proc: 1, PID: 7})
	}
	w.Close()
	defer r.Close()
	text, err := io.ReadAll(r)
	var end spawnEnd
	first, _, _ := strings.Cut(string(text), "\n")
	if err != nil || json.Unmarshal([]byte(first), &end) != nil || end.PID != 7 {
		t.Errorf("%q, %v", first, err)
	}
	c.tell(spawnEnd{}) // closed: nothing happens
}
