package rank

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestErrorText(t *testing.T) {
	reset := errors.New("connection reset")
	for want, e := range map[string]*Error{
		"rank 3 (n1): connect: establish: to rank 9: connection reset": {
			Ranks: []Rank{3}, Proc: 1, Host: "n1", Phase: "connect", Step: "establish", Peer: 9, Err: reset,
		},
		"ranks 0-2,7: gone":        {Ranks: []Rank{7, 2, 0, 1}, Proc: NoProc, Peer: None, Text: "gone", Err: reset},
		"process 4 (n2): gone":     {Proc: 4, Host: "n2", Peer: None, Text: "gone"},
		"n2: bind: gone":           {Proc: NoProc, Host: "n2", Phase: "bind", Peer: None, Text: "gone"},
		"open x: connection reset": Errorf(KindFailed, "open %s: %w", "x", reset),
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !errors.Is(Errorf(KindFailed, "open: %w", reset), reset) {
		t.Error("the cause is lost")
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{io.EOF, 1},
		{&Error{}, 1},
		{Errorf(KindUsage, "x"), 2},
		{Errorf(KindResource, "x"), 2},
		{Errorf(KindNotSupported, "x"), 2},
		{Errorf(KindRendezvous, "x"), 3},
		{Errorf(KindRefused, "x"), 3},
		{Errorf(KindLost, "x"), 1},
		{Errorf(KindCorrupt, "x"), 4},
		{Errorf(KindThreshold, "x"), 5},
		{Errorf(KindCancelled, "x"), 130},
		{&Error{Kind: KindCancelled, Signal: 15}, 143},
		{fmt.Errorf("outer: %w", Errorf(KindUsage, "x")), 2},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestFormatRanks(t *testing.T) {
	for want, ranks := range map[string][]Rank{
		"": nil, "5": {5}, "0-2": {2, 0, 1}, "0-1,3,5-7": {7, 6, 5, 3, 1, 0, 3},
	} {
		if got := FormatRanks(ranks); got != want {
			t.Errorf("%v: %q, want %q", ranks, got, want)
		}
	}
}
