package collect

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"pgregory.net/rapid"
)

func TestFormatDuration(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0 ns", 999: "999 ns", 1000: "1.00 µs", 1004: "1.00 µs", 1005: "1.01 µs", 9994: "9.99 µs", 9995: "10.0 µs",
		99_949: "99.9 µs", 99_950: "100 µs", 999_499: "999 µs", 999_500: "1.00 ms", 12_345_678: "12.3 ms",
		999_499_999: "999 ms", 999_500_000: "1.00 s", 61_200_000_000: "61.2 s", 999_499_999_999: "999 s", 999_500_000_000: "1,000 s",
		3_600_000_000_000: "3,600 s", math.MaxInt64: "9,223,372,037 s", -1500: "-1.50 µs",
	} {
		if got := FormatDuration(ns); got != want {
			t.Errorf("FormatDuration(%d) = %q, want %q", ns, got, want)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 1_023_000: "999 KiB", 1_024_000: "0.98 MiB", 10 << 20: "10.0 MiB", 24_300_000: "23.2 MiB",
		3 << 40: "3.00 TiB", 5000 << 40: "4.88 PiB", 5000 << 50: "5000 PiB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFormatCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 99_990_000: "99,990,000", -1234: "-1,234", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := FormatCount(n); got != want {
			t.Errorf("FormatCount(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestProgressLine(t *testing.T) {
	for want, p := range map[string]Progress{
		"rounds 2/3 at 0.24/s": {Phase: "rounds", Done: 2, Total: 3, PerSecond: 0.2401},
		"connect 1,203/3,840 at 12,000/s, waiting for rank 5 (n1)": {Phase: "connect", Done: 1203, Total: 3840, PerSecond: 12_011, Late: []LateRank{{5, "n1"}}},
		"publish":    {Phase: "publish"},
		"gather 3/8": {Phase: "gather", Done: 3, Total: 8},
		"probe 7":    {Phase: "probe", Done: 7},
		"create 0/9, waiting for rank 1 (a), rank 2 and 1,000 more": {Phase: "create", Total: 9, Late: []LateRank{{1, "a"}, {2, ""}}, LateMore: 1000},
	} {
		if got := p.Line(); got != want {
			t.Errorf("Line = %q, want %q", got, want)
		}
	}
}

func TestProgressTTYLine(t *testing.T) {
	p := Progress{Phase: "connect", Done: 960, Total: 3840, PerSecond: 12_000, Elapsed: 1250 * time.Millisecond}
	want := "█████░░░░░░░░░░░░░░░ connect 960/3,840 at 12,000/s  1.2 s"
	if got := p.TTYLine(100); got != want && got != strings.Replace(want, "1.2 s", "1.3 s", 1) {
		t.Errorf("TTYLine = %q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(2, 200).Draw(t, "columns")
		p := Progress{
			Phase: rapid.StringN(0, 30, -1).Draw(t, "phase"), Done: rapid.Int64Range(-5, math.MaxInt64).Draw(t, "done"),
			Total: rapid.Int64Range(0, math.MaxInt64).Draw(t, "total"), PerSecond: rapid.Float64Range(0, 1e30).Draw(t, "rate"), Elapsed: time.Hour,
		}
		if w := runewidth.StringWidth(p.TTYLine(columns)); w >= columns {
			t.Fatalf("%d cells in %d columns", w, columns)
		}
	})
}

func TestTableTextsCannotMoveTheCursor(t *testing.T) {
	st := stories()["one-rank"]
	st.warnings = []string{"host \x1b[2Jsays\r\nboo"}
	got := table(t, st.document(t), TableOptions{})
	if strings.ContainsAny(got, "\x1b\r") || !strings.Contains(got, "warning      host [2Jsays boo\n") {
		t.Errorf("control characters reached the terminal: %q", got)
	}
}

func TestTableColorChangesNoText(t *testing.T) {
	for name := range stories() {
		d := finishedStory(t, name)
		plain, color := table(t, d, TableOptions{Columns: 120}), table(t, d, TableOptions{Columns: 120, Color: true})
		stripped := color
		for _, s := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"} {
			stripped = strings.ReplaceAll(stripped, s, "")
		}
		if stripped != plain {
			t.Errorf("%s: colour changes the text", name)
		}
		if stripped == color {
			t.Errorf("%s: no colour", name)
		}
	}
}
