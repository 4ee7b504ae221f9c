package eventring

import (
	"errors"
	"testing"

	"rankstorm/transport"
)

func TestRingKeepsOrderWhileItGrows(t *testing.T) {
	var r Ring
	ev := make([]transport.Event, 7)
	next, want := 0, 0
	for round := range 40 {
		for range round {
			e := r.Push()
			e.Conn, e.Kind, e.Err = transport.Conn(next), transport.EventRequest, errors.New("x")
			e.Hello[0] = 1
			if r.Last() != e {
				t.Fatal("Last is not what was pushed last")
			}
			next++
		}
		for _, e := range ev[:r.Drain(ev)] {
			if int(e.Conn) != want || e.Hello[0] != 1 || e.Err == nil {
				t.Fatalf("got %+v, want connection %d", e, want)
			}
			want++
		}
	}
	if r.Len() != next-want || r.Room() != r.Cap()-r.Len() {
		t.Errorf("%d wait, %d fit, room %d; want %d waiting", r.Len(), r.Cap(), r.Room(), next-want)
	}
	r.Clear()
	if r.Len() != 0 || r.Drain(ev) != 0 {
		t.Error("something is left after Clear")
	}
	for range r.Cap() {
		if e := r.Push(); e.Hello != (transport.Hello{}) || e.Err != nil {
			t.Fatalf("a place is given with an old hello or error: %+v", e)
		}
	}
}
