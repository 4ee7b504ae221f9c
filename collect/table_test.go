package collect

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"
)

var update = flag.Bool("update", false, "rewrite the golden tables")

var tableWidths = []int{0, 40, 80, 100, 160}

func table(t testing.TB, d *Document, o TableOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteTable(&b, d, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTableGolden(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(stories())) {
		d := finishedStory(t, name)
		for _, width := range tableWidths {
			t.Run(fmt.Sprintf("%s/%d", name, width), func(t *testing.T) {
				got := table(t, d, TableOptions{Columns: width})
				file := filepath.Join("testdata", fmt.Sprintf("%s-%d.golden", name, width))
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("table differs from %s (-want +got):\n%s", file, diff)
				}
				for line := range strings.Lines(got) {
					if w := runewidth.StringWidth(strings.TrimSuffix(line, "\n")); width > 0 && w > width {
						t.Errorf("line is %d cells wide, want at most %d: %q", w, width, line)
					}
				}
			})
		}
	}
}
