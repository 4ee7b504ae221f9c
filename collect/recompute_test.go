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

func encode(t testing.TB, d *Document) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := d.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
