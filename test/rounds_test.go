package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rankstorm/collect"
)

// Rounds of the real program leave no descriptor and no goroutine behind, and no memory to speak of. What a planted leak
// looks like is tested in phases/runner; a million connections are opened by bench/soak.sh.
func TestRoundsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a slope needs more than 100 rounds, which take half a minute; not with -short")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "r.json")
	cmd := exec.Command(binary, "run", "--spawn", "2", "-c", "20", "--rounds", "180", "-q", "-o", file)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d collect.Document
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	g := d.Growth
	if g == nil || d.RoundsRun != 180 || len(d.RoundsHeld) != 180 {
		t.Fatalf("growth %+v, %d rounds, %d listed", g, d.RoundsRun, len(d.RoundsHeld))
	}
	t.Logf("%+v", *g)
	if g.FDs != 0 || g.Goroutines != 0 {
		t.Errorf("%d descriptors and %d goroutines more per 1,000 rounds", g.FDs, g.Goroutines)
	}
	// Two processes that are still filling their bounded lists grow by some 30 KiB a round. Twice that is 1.6 KiB for each
	// of the 40 connections of a round.
	if g.HeapBytes > 64<<20 {
		t.Errorf("%d bytes more of heap per 1,000 rounds", g.HeapBytes)
	}
	for _, r := range d.RoundsHeld {
		if r.Procs != 2 || r.Conns != 40*int64(r.Round+1) || r.FDs != d.RoundsHeld[0].FDs {
			t.Fatalf("round %d: %+v, first %+v", r.Round, r, d.RoundsHeld[0])
		}
	}
}
