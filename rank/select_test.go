package rank

import (
	"slices"
	"strings"
	"testing"
)

func selectionView(t testing.TB) View {
	t.Helper()
	var recs []Record
	for i, h := range []string{"n1", "n2", "n10", "n01", "gpu-a", "gpu-b", "n1", "n15"} {
		recs = append(recs, Record{Nonce: [16]byte{byte(i + 1)}, Host: h, LauncherProc: i})
	}
	table, err := Build(recs, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestParseSelection(t *testing.T) {
	v := selectionView(t)
	for text, want := range map[string]string{
		"3":                    "3",
		"0-3,7":                "0-3,7",
		" 7 , 0 - 3 ":          `"0 - 3" matches no host: hosts are n1, n2, n10, n01, gpu-a, gpu-b, n15; ranks are 0-7`,
		" 7 ,0-3 ":             "0-3,7",
		"0-7:2":                "0,2,4,6",
		"1-6:4":                "1,5",
		"0-7:100":              "0",
		"2,1,2,1-2":            "1-2",
		"n1":                   "0,6",
		"gpu*":                 "4-5",
		"gpu-[ab]":             "4-5",
		"gpu-[^a]":             "5",
		"gpu-[a-c],0":          "0,4-5",
		"n?":                   "0-1,6",
		"n[0-2]*":              "0-3,6-7",
		"n[2-15]":              "1-2,7",
		"n[1,10,15]":           "0,2,6-7",
		"n[01-16]":             "2-3,7",
		"n[1-2]":               "0-1,6",
		"*":                    "0-7",
		"*-*":                  "4-5",
		"**1***":               "0,2-3,6-7",
		"8":                    `"8" is outside the job: ranks are 0-7`,
		"0-8":                  `"0-8" is outside the job: ranks are 0-7`,
		"5-2":                  `range "5-2" runs backwards: write 2-5`,
		"-1":                   `"-1" is no rank or range: write 7, 0-3 or 0-15:2; ranks are 0-7`,
		"1-":                   `"1-" is no rank or range: write 7, 0-3 or 0-15:2; ranks are 0-7`,
		"0-7:0":                `"0-7:0" is no rank or range: write 7, 0-3 or 0-15:2; ranks are 0-7`,
		"3:2":                  `"3:2" is no rank or range: write 7, 0-3 or 0-15:2; ranks are 0-7`,
		"9999999999999":        `"9999999999999" is outside the job: ranks are 0-7`,
		"99999999999999999999": `"99999999999999999999" is no rank or range: write 7, 0-3 or 0-15:2; ranks are 0-7`,
		"":                     "empty word in a selection: give ranks (0-7), ranges or host names",
		"1,,2":                 "empty word in a selection: give ranks (0-7), ranges or host names",
		"n3":                   `"n3" matches no host: hosts are n1, n2, n10, n01, gpu-a, gpu-b, n15; ranks are 0-7`,
		"n[20-30]":             `"n[20-30]" matches no host: hosts are n1, n2, n10, n01, gpu-a, gpu-b, n15; ranks are 0-7`,
		"n[1":                  `"n[1" is no host pattern: a bracket is not closed or empty`,
		"n[]":                  `"n[]" is no host pattern: a bracket is not closed or empty`,
		"n[^]":                 `"n[^]" is no host pattern: a bracket is not closed or empty`,
	} {
		ranks, err := ParseSelection(text, v)
		if err != nil {
			checkError(t, text, err, KindUsage, want)
			continue
		}
		if got := FormatRanks(ranks); got != want {
			t.Errorf("%q selects %s, want %s", text, got, want)
		}
		if !slices.IsSorted(ranks) {
			t.Errorf("%q: %v is not sorted", text, ranks)
		}
	}
	_, err := ParseSelection("1", NewLayout(1, 1))
	checkError(t, "one rank", err, KindUsage, `"1" is outside the job: ranks are 0`)
}

// TestPatternIsNotExponential: a pattern of many stars that fails at the end
// would take years if every star tried every place.
func TestPatternIsNotExponential(t *testing.T) {
	p, ok := parsePattern(strings.Repeat("*a", 60) + "b")
	if !ok || p.match(strings.Repeat("a", 120)) {
		t.Error("matched")
	}
	if !p.match(strings.Repeat("a", 119) + "b") {
		t.Error("not matched")
	}
}

func FuzzParseSelection(f *testing.F) {
	for _, s := range []string{"0-3,7", "0-7:2", "gpu*", "n[0-15]", "n[^a-]", "[", "*?["} {
		f.Add(s)
	}
	v := selectionView(f)
	f.Fuzz(func(t *testing.T, text string) {
		ranks, err := ParseSelection(text, v)
		if err != nil {
			if ExitCode(err) != 2 {
				t.Fatalf("%q: exit code %d", text, ExitCode(err))
			}
			return
		}
		if len(ranks) == 0 || !slices.IsSorted(ranks) || ranks[0] < 0 || int(ranks[len(ranks)-1]) >= v.Size() {
			t.Fatalf("%q: %v", text, ranks)
		}
	})
}
