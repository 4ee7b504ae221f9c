package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Every combination is listed or has a reason, none twice, and a dozen are quick.
func TestCells(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cells() {
		if seen[c.String()] {
			t.Errorf("%s twice", c)
		}
		seen[c.String()] = true
	}
	total, without := 0, 0
	each(func(start, fault, victim, _ string) {
		total++
		mode, why := wayOf(start, fault, victim)
		if (mode == "") == (why == "") {
			t.Errorf("%s %s %s: mode %q, reason %q: want one of them", start, fault, victim, mode, why)
		}
		if mode == "" {
			without++
		}
	})
	if len(seen) != total-without {
		t.Errorf("%d cells, want %d − %d", len(seen), total, without)
	}
	for _, name := range []string{"hand/kill/interior/connect", "spawn/stop/agent/gather", "hosts/loss/controller/destroy", "spawn/kill/parent/qp"} {
		if !seen[name] {
			t.Errorf("no cell %s", name)
		}
	}
	for _, name := range quick {
		if !seen[name] {
			t.Errorf("quick: no cell %s", name)
		}
	}
}

// Every promise binds: a code, a document or none, and, where the fault must be felt, a name.
func TestPromises(t *testing.T) {
	for _, c := range append(cells(), randomCells(50, 1)...) {
		p := promised(c)
		if len(p.codes) == 0 || len(p.docs) == 0 || p.text == "" || p.within <= 0 {
			t.Errorf("%s promises nothing: %+v", c, p)
		}
		mild := c.fault == "loss" || c.fault == "rate" || c.victim == "parent"
		if p.allows(0) && !mild {
			t.Errorf("%s may end as if nothing had happened", c)
		}
		if !p.named && !mild {
			t.Errorf("%s need not name the victim", c)
		}
		if mild && c.victim != "parent" && !p.counted {
			t.Errorf("%s passes when no frame was hit", c)
		}
	}
}

// A seed draws the same job again, alone or in a row.
func TestRandomCellsReplay(t *testing.T) {
	row := randomCells(200, 7)
	kinds := map[string]int{}
	for i, c := range row {
		if alone := randomCells(1, uint64(7+i))[0]; alone != c {
			t.Fatalf("seed %d: %+v in a row, %+v alone", 7+i, c, alone)
		}
		kinds[c.mode+c.fault]++
		if most := (&job{c: c}).procCount(); c.number < 0 || c.number >= most || c.moment < 0 {
			t.Errorf("%+v", c)
		}
	}
	if len(kinds) != 9 {
		t.Errorf("200 seeds draw %v, want 3 faults with both starts and 3 over hosts", kinds)
	}
}

func TestInList(t *testing.T) {
	for _, test := range []struct {
		list string
		n    int
		want bool
	}{{"3", 3, true}, {"3", 30, false}, {"0-8,10-17", 9, false}, {"0-8,10-17", 10, true}, {"0-8,10-17", 8, true}, {"", 0, false}, {"1,", 1, true}} {
		if got := inList(test.list, test.n); got != test.want {
			t.Errorf("inList(%q, %d) = %v", test.list, test.n, got)
		}
	}
}

// The judge sees a survivor without its row, in every phase up to the one that was struck.
func TestRowless(t *testing.T) {
	var d document
	err := json.Unmarshal([]byte(`{"ranks": [{"rank": 0, "proc": 0}, {"rank": 1, "proc": 1}, {"rank": 2, "proc": 2}], "phases": [
		{"phase": "gather", "ranks": []},
		{"phase": "create", "ranks": [{"rank": 0}, {"rank": 1}, {"rank": 2}]},
		{"phase": "bind", "ranks": [{"rank": 0}]}]}`), &d)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.rowless([]int{0, 2}, "create"); len(got) > 0 {
		t.Errorf("create: %v", got)
	}
	if got := d.rowless([]int{0, 2}, "bind"); !slices.Equal(got, []string{"bind: no row of rank 2"}) {
		t.Errorf("bind: %v", got)
	}
	if got := strings.Join(d.rowless([]int{0}, "listen"), "; "); got != "listen: no row of rank 0" {
		t.Errorf("listen, which the document lacks: %s", got)
	}
	if got := d.rowless([]int{0, 1, 2}, "clock"); len(got) > 0 {
		t.Errorf("clock, before there are rows: %v", got)
	}
}
