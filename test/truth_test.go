package test

import (
	"math"
	"os"
	"testing"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What was asked to take 20 ms takes 20 ms in the table.
func TestMimicTakesWhatItSays(t *testing.T) {
	e := ok(t, "run", "--spawn", "2", "-c", "10", "--mimic", "20000")
	rows := 0
	for _, ph := range e.doc.Phases {
		for _, s := range ph.Steps {
			switch s.Step {
			case "create qp (mimic)", "init qp (mimic)", "rtr qp (mimic)", "rts qp (mimic)":
				rows++
				if s.Count != 20 {
					t.Errorf("%s: count %d, want 20", s.Step, s.Count)
				}
				mean := float64(s.SumNS) / float64(s.Count)
				if math.Abs(mean-20e6) > 0.02*20e6 {
					t.Errorf("%s: mean %.3f ms, asked 20 ms ± 2 %%", s.Step, mean/1e6)
				}
			}
		}
	}
	if rows != 4 {
		t.Errorf("%d mimic rows, want 4", rows)
	}
	recompute(t, e)
}

// The held rank is named from stamps, with the time it was held.
func TestDelayIsFoundFromStamps(t *testing.T) {
	e := ok(t, "run", "--spawn", "8", "-c", "4", "--delay", "rank=3,phase=connect,ms=300")
	found := false
	for _, c := range e.doc.Causes {
		if c.Rank == nil || c.Phase != "connect" {
			continue
		}
		if *c.Rank != 3 {
			t.Errorf("rank %d named in connect; only rank 3 was held: %+v", *c.Rank, c)
			continue
		}
		found = true
		if ms := float64(c.ValueNS) / 1e6; math.Abs(ms-300) > 15 {
			t.Errorf("rank 3 named with %.1f ms, held 300 ms ± 5 %%", ms)
		}
	}
	if !found {
		t.Errorf("rank 3 is not named: %+v\n%s", e.doc.Causes, e.stdout)
	}
}
