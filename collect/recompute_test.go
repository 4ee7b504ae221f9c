package collect

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankstorm/test/need"
)

// recompute runs the independent script on a document and a table.
func recompute(t *testing.T, python string, document []byte, table string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	docFile, tableFile := filepath.Join(dir, "doc.json"), filepath.Join(dir, "table.txt")
	for file, content := range map[string][]byte{docFile: document, tableFile: []byte(table)} {
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := exec.Command(python, filepath.Join("..", "test", "recompute.py"), docFile, tableFile).CombinedOutput()
	return string(b), err
}

func needPython(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		need.Absent(t, "python", "no python3: the table is not recomputed by the independent script")
	}
	return python
}

func TestRecomputeEveryCell(t *testing.T) {
	python := needPython(t)
	for _, name := range slices.Sorted(maps.Keys(stories())) {
		t.Run(name, func(t *testing.T) {
			d := finishedStory(t, name)
			encoded := encode(t, d)
			for _, width := range tableWidths {
				if out, err := recompute(t, python, encoded, table(t, d, TableOptions{Columns: width, Color: width == 100})); err != nil {
					t.Errorf("%d columns: %v\n%s", width, err, out)
				}
			}
		})
	}
}

// A script that never objects would prove nothing: every kind of cell is
// falsified once, in the table or under it, and must be named.
func TestRecomputeFindsWrongCells(t *testing.T) {
	python := needPython(t)
	d := finishedStory(t, "failed")
	text := table(t, d, TableOptions{})
	for i, change := range [][2]string{
		{"30 edges × 16 = 480", "30 edges × 16 = 481"},
		{"1.86 s", "1.87 s"},
		{"26.4 ms", "26.5 ms"},
		{"2.85 ms", "2.86 ms"},
		{"–  45.3 µs", "45.3 µs  45.3 µs"},
		{"0 (n0) → 5 (n2)", "0 (n0) → 4 (n2)"},
		{"3 (n1) ← 1 (n0)", "3 (n1) → 1 (n0)"},
		{"connect: timeout 20", "connect: timeout 21"},
		{"460 accepted", "461 accepted"},
		{"3 broken", "4 broken"},
		{"median 1.79 ms", "median 1.78 ms"},
		{"within 42.0 µs", "within 42.1 µs"},
		{"1 of 6 processes", "2 of 6 processes"},
		{"195 fds", "196 fds"},
		{"180 ms", "181 ms"},
		{"exit         1", "exit         0"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			wrong := strings.Replace(text, change[0], change[1], 1)
			if wrong == text {
				t.Fatalf("%q is not in the table:\n%s", change[0], text)
			}
			out, err := recompute(t, python, encode(t, d), wrong)
			if err == nil || !strings.Contains(out, "printed") {
				t.Errorf("%q for %q was not noticed: %v\n%s", change[1], change[0], err, out)
			}
		})
	}
}

// The figures of cause lines are recomputed too, and a wrong one is noticed.
func TestRecomputeCauses(t *testing.T) {
	python := needPython(t)
	d := finishedStory(t, "clean")
	connect := d.phase("connect")
	for i := range d.EdgeList {
		if e := &d.EdgeList[i]; e.To == 5 {
			*e.SumNS *= 20
			*e.MaxNS *= 20
		}
	}
	for i, ns := range []int64{40e6, 60e6} { // ranks 0 and 1 are host n0
		connect.Ranks[i].GapNS, connect.Ranks[i].GapWaitNS = &ns, &ns
	}
	wait, run := int64(2e6), int64(5e6)
	d.Pauses = append(d.Pauses, PauseDoc{Proc: 5, Host: d.Ranks[5].Host, Phase: "qp", When: PauseAfter, AtNS: 1e9, GapNS: 250e6, WaitNS: &wait, RunNS: &run})
	resolve := d.phase("resolve")
	for i := range 6 {
		*resolve.Ranks[3*i].LateNS += 30e6
	}
	drops := int64(9)
	d.Resources[8].Peak.ListenDrops = &drops
	create := &d.phase("create").Steps[0]
	create.Failures["no ports"] = 3
	create.Failed, create.PerRank[0].Failed = 3, 3
	d.finishRanks()
	d.Causes = Diagnose(d)
	kinds := map[string]int{}
	for i, c := range d.Causes {
		kinds[c.Kind] = i
	}
	text := table(t, d, TableOptions{})
	if out, err := recompute(t, python, encode(t, d), text); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, kind := range []string{"stopped", "starved", "uneven", "ports", "drops", "slow_target"} {
		i, ok := kinds[kind]
		if !ok {
			t.Errorf("no cause %s in %+v", kind, d.Causes)
			continue
		}
		right := d.Causes[i]
		wrong := right
		figure := right.ValueNS
		if figure == nil {
			figure = right.Count
		}
		other := *figure + 1
		if right.ValueNS != nil {
			wrong.ValueNS = &other
		} else {
			wrong.Count = &other
		}
		d.Causes[i] = wrong
		out, err := recompute(t, python, encode(t, d), text)
		if err == nil || !strings.Contains(out, "cause "+kind) {
			t.Errorf("%s: a wrong figure was not noticed: %v\n%s", kind, err, out)
		}
		d.Causes[i] = right
	}
}

func encode(t testing.TB, d *Document) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := d.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
