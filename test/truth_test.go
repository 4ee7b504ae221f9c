package test

import (
	"os"
	"strings"
	"testing"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What was asked to take 20 ms takes at least that in the table, and every connection has its row. How much longer a
// sleep takes is the machine's affair; the story on the fake clock holds it to the nanosecond.
func TestMimicTakesWhatItSays(t *testing.T) {
	e := ok(t, "run", "--spawn", "2", "-c", "10", "--mimic", "20000")
	rows := 0
	for _, ph := range e.doc.Phases {
		for _, s := range ph.Steps {
			if !strings.HasSuffix(s.Step, "(mimic)") {
				continue
			}
			rows++
			if s.Count != 20 || s.MinNS < 20e6 || s.SumNS < 20*20e6 {
				t.Errorf("%s: count %d, min %d ns, sum %d ns; want 20 of at least 20 ms", s.Step, s.Count, s.MinNS, s.SumNS)
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
	for _, c := range e.doc.Causes {
		if c.Kind == "straggler" && c.Phase == "connect" && c.Rank != nil && *c.Rank == 3 {
			if c.ValueNS < 300e6 {
				t.Errorf("rank 3 named with %d ns, held 300 ms", c.ValueNS)
			}
			return
		}
	}
	t.Errorf("rank 3 is not named: %+v\n%s", e.doc.Causes, e.stdout)
}
