package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	lack "rankstorm/test/need"
)

// TestGetoptAsOthersReadIt compares with an implementation that has nothing to do
// with this one, Python's, on random command lines: the same letters with the same
// values in the same order, the same words left over, the same ones refused.
func TestGetoptAsOthersReadIt(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		lack.Absent(t, "python3", "no python3: install it (apt-get install python3)")
	}
	const seed, lines = 1, 4000
	rng := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"-", "--", "-L", "-S", "-LS", "-c", "-c10", "-Lc", "-LSc5", "-q", "-L-", "-x", "-Lx", "10", "word", "", "-b", "-bL", "-P2L", "-:", "-c=5", "--"}
	cases := make([][]string, lines)
	for i := range cases {
		cases[i] = []string{}
		for range rng.IntN(7) {
			cases[i] = append(cases[i], pieces[rng.IntN(len(pieces))])
		}
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `
import getopt, json, sys
out = []
for line in json.load(sys.stdin):
    try:
        opts, rest = getopt.gnu_getopt(line, "`+cmtimeOptions+`")
        out.append([[o[1:], v] for o, v in opts] + [["", w] for w in rest])
    except getopt.GetoptError:
        out.append(None)
json.dump(out, sys.stdout)`)
	cmd.Stdin = bytes.NewReader(input)
	answer, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want [][][2]string
	if err := json.Unmarshal(answer, &want); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i, line := range cases {
		var said bytes.Buffer
		g := getopt{name: "cmtime", spec: cmtimeOptions, args: slices.Clone(line), complain: &said}
		got := [][2]string{}
		for {
			o, err := g.next()
			if err != nil {
				got = nil
				refused++
				break
			}
			if o.letter == 0 {
				break
			}
			got = append(got, [2]string{string(rune(o.letter)), o.value})
		}
		if got != nil {
			for _, w := range g.operands {
				got = append(got, [2]string{"", w})
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want[i]) || (got == nil) != (said.Len() > 0) {
			t.Errorf("%q: got %q (said %q), want %q", line, got, strings.TrimSpace(said.String()), want[i])
		}
	}
	if refused == 0 || refused == lines {
		t.Errorf("%d of %d command lines were refused: this says nothing", refused, lines)
	}
}
