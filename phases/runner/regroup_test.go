package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"rankstorm/phases"
	"rankstorm/rank"
)

func FuzzUnpackSummaries(f *testing.F) {
	whole, err := packSummaries([][]byte{[]byte("one"), {}, bytes.Repeat([]byte("x"), 300)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}) // four billion summaries in five bytes
	f.Add([]byte{0x91, 0xc6, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := unpackSummaries(b)
		if err != nil {
			return
		}
		total := 0
		for _, s := range list {
			total += len(s)
		}
		if total > len(b) || len(list) > len(b) {
			t.Errorf("%d summaries of %d bytes out of %d", len(list), total, len(b))
		}
		again, err := packSummaries(list)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := unpackSummaries(again); err != nil || len(back) != len(list) {
			t.Errorf("what was read cannot be read again: %v", err)
		}
	})
}

// A successor's document is never written over another one.
func TestSuccessorsDoNotOverwrite(t *testing.T) {
	dir := t.TempDir()
	p := &process{table: &rank.Table{RunID: "run"}, self: 3}
	asked := filepath.Join(dir, "x.json")
	first := p.partialPath(asked)
	if first != filepath.Join(dir, "x.partial.json") {
		t.Errorf("the first name is %s", first)
	}
	if err := writeNew(first, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(first, []byte("other")); err == nil {
		t.Error("written over")
	}
	second := p.partialPath(asked)
	if second != filepath.Join(dir, "x-run-process3.partial.json") {
		t.Errorf("the second name is %s", second)
	}
	if err := writeNew(second, []byte("other")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(first); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Only so much is kept for a successor: the oldest goes first, the newest never.
func TestKeptSummariesAreBounded(t *testing.T) {
	p := &process{}
	for seq := range int32(10) {
		p.keep(phases.Slot{Seq: seq}, make([]byte, keptBytes/4))
	}
	if len(p.kept) != 4 || p.kept[3].seq != 9 || p.keptBytes > keptBytes {
		t.Errorf("%d kept, %d bytes", len(p.kept), p.keptBytes)
	}
	p.keep(phases.Slot{Seq: 10}, make([]byte, 2*keptBytes))
	if len(p.kept) != 1 || p.kept[0].seq != 10 {
		t.Errorf("%d kept", len(p.kept))
	}
	// Of many rounds the last two stay, and of the others what is small.
	p = &process{}
	for seq := range int32(100) {
		p.keep(phases.Slot{Seq: seq, Round: seq / 10}, make([]byte, keptRounds/8))
	}
	if len(p.kept) != 20 || p.kept[0].round != 8 {
		t.Errorf("%d kept, from round %d", len(p.kept), p.kept[0].round)
	}
}
