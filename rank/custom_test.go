package rank

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// customCase is a file for w ranks and, per initiator, its targets with raw
// weights in file order.
type customCase struct {
	w    int
	text string
	want map[Rank][]slowEdge
}

var customCases = []customCase{
	{4, "0: 1, 2*3\n\n# comment\n3: 0-3 # but itself\n", map[Rank][]slowEdge{
		0: {{to: 1, weight: 1}, {to: 2, weight: 3}},
		3: {{to: 0, weight: 1}, {to: 1, weight: 1}, {to: 2, weight: 1}},
	}},
	{6, "0-4:2: 1-5:2*2\r\n5 : 0", map[Rank][]slowEdge{
		0: {{to: 1, weight: 2}, {to: 3, weight: 2}, {to: 5, weight: 2}},
		2: {{to: 1, weight: 2}, {to: 3, weight: 2}, {to: 5, weight: 2}},
		4: {{to: 1, weight: 2}, {to: 3, weight: 2}, {to: 5, weight: 2}},
		5: {{to: 0, weight: 1}},
	}},
	{4, "0:1\n0:3,2*2\n", map[Rank][]slowEdge{0: {{to: 1, weight: 1}, {to: 3, weight: 1}, {to: 2, weight: 2}}}},
	{3, "1: *\n", map[Rank][]slowEdge{1: {{to: 0, weight: 1}, {to: 2, weight: 1}}}},
	{4, "0-1: 2*0.5,3*1.5, 1*0\n2: **2", map[Rank][]slowEdge{
		0: {{to: 2, weight: 0.5}, {to: 3, weight: 1.5}},
		1: {{to: 2, weight: 0.5}, {to: 3, weight: 1.5}},
		2: {{to: 0, weight: 2}, {to: 1, weight: 2}, {to: 3, weight: 2}},
	}},
	{3, "0: 1 * 2.5, 2 *1e3", map[Rank][]slowEdge{0: {{to: 1, weight: 2.5}, {to: 2, weight: 1000}}}},
	{3, "0 1K 2\n0.5 7 1M\n0,0,0\n", map[Rank][]slowEdge{
		0: {{to: 1, weight: 1024}, {to: 2, weight: 2}},
		1: {{to: 0, weight: 0.5}, {to: 2, weight: 1 << 20}},
	}},
	{2, "# bytes\n0, 1g ,\n\n2T\t0\n", map[Rank][]slowEdge{0: {{to: 1, weight: 1 << 30}}, 1: {{to: 0, weight: 2 << 40}}}},
	{1, "0\n", map[Rank][]slowEdge{}},
}

func TestCustom(t *testing.T) {
	for _, c := range customCases {
		for name, v := range views(t, c.w) {
			for _, p := range variants(Params{Name: "custom", File: "f", Custom: []byte(c.text)}, c.w) {
				checkOne(t, fmt.Sprintf("%q, %s", c.text, name), v, p, func(j slowJob, r Rank) ([]slowEdge, int) {
					number := 0 // initiators before r that have an edge
					for other := range r {
						if slices.ContainsFunc(c.want[other], func(e slowEdge) bool { return j.keeps(other, e.to) }) {
							number++
						}
					}
					return c.want[r], number
				})
			}
		}
	}
}

// TestCustomHosts: patterns on both sides, with and without weight.
func TestCustomHosts(t *testing.T) {
	top := mustTopology(t, NewLayout(8, 2), Params{Name: "custom", Custom: []byte("n[0-1]: n2, n3*3\n")})
	for r := range Rank(4) {
		want := []Edge{{From: r, To: 4, Weight: 0.125}, {From: r, To: 5, Weight: 0.125}, {From: r, To: 6, Weight: 0.375}, {From: r, To: 7, Weight: 0.375}}
		k := int(r) % 4
		want = append(slices.Clone(want[k:]), want[:k]...)
		if got := slices.Collect(top.Edges(r)); !sameEdges(got, want) {
			t.Errorf("%d: %v, want %v", r, got, want)
		}
	}
	if top.Count() != 16 {
		t.Errorf("%d edges", top.Count())
	}
}

func TestCustomBound(t *testing.T) {
	for _, c := range []struct {
		text  string
		bound float64
		with  string
	}{
		{"0 3 1\n0 0 2\n0 0 0", 1.5, "bytes of the matrix: 6 in all ÷ 4"}, // rows 4, 2, 0; columns 0, 3, 3
		{"0 0 1\n0 0 2\n0 0 0", 1, "bytes of the matrix: 3 in all ÷ 3"},
		{"0: 2\n1: 2", 1, "shares"},
		{"0: 1\n1: 2\n2: 0", 3, "shares"},
	} {
		top := mustTopology(t, NewLayout(3, 1), Params{Name: "custom", Custom: []byte(c.text)})
		got, formula := Bound(top)
		if math.Abs(got-c.bound) > 1e-9 || !strings.Contains(formula, c.with) {
			t.Errorf("%q: %g (%s), want %g (%s)", c.text, got, formula, c.bound, c.with)
		}
	}
}

func TestCustomErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"\n# nothing\n", "f.txt:2: no edges and no matrix, only blank lines and comments"},
		{"0: 1\n\n2: 4\n", `f.txt:3: target: "4" is outside the job: ranks are 0-3`},
		{"4: 1\n", `f.txt:1: source: "4" is outside the job: ranks are 0-3`},
		{"gpu*: 1\n", `f.txt:1: source: "gpu*" matches no host: hosts are n0, n1; ranks are 0-3`},
		{"0: 1*-2\n", `f.txt:1: weight "-2" of "1*-2": give 0 or a number from 1e-09 to 1e+18`},
		{"0: 1*NaN\n", `f.txt:1: weight "NaN" of "1*NaN": give 0 or a number from 1e-09 to 1e+18`},
		{"0: 1*inf\n", `f.txt:1: weight "inf" of "1*inf": give 0 or a number from 1e-09 to 1e+18`},
		{"0: 1*1e999\n", `f.txt:1: weight "1e999" of "1*1e999": give 0 or a number from 1e-09 to 1e+18`},
		{"0: 1*1e-200\n", `f.txt:1: weight "1e-200" of "1*1e-200": give 0 or a number from 1e-09 to 1e+18`},
		{"0: 1*x\n", `f.txt:1: weight "x" of "1*x" is no number`},
		{"0: 1*\n", `f.txt:1: weight "" of "1*" is no number`},
		{"0: 1, ,2\n", `f.txt:1: target: empty word in a selection: give ranks (0-3), ranges or host names`},
		{"0: 1*0, 2*0\n", "f.txt:1: rank 0 has no target but itself or all its weights are 0: name another or remove it"},
		{"1: 0\n0-1: 1\n", "f.txt:2: rank 1 has no target but itself or all its weights are 0: name another or remove it"},
		{"0-1:\n", "f.txt:1: ranks 0-1 have no targets: name some or remove the line"},
		{"0: 1\n1 2\n", `f.txt:2: no colon: write "src: dst, dst", and a blank after the colon`},
		{"0: 1\n2: 1\n0: 2,1\n", "f.txt:3: edge 0 → 1 is already given on line 1: give each edge once"},
		{"3: 2\n0: 1-2,1\n3: 2", "f.txt:2: edge 0 → 1 is already given on line 2: give each edge once"},
		{"0 1 1 1\n1 0 1 1\n", "f.txt:2: the matrix has 2 rows, needs 4: one per rank"},
		{"0 1 1\n", "f.txt:1: row 0 has 3 columns, needs 4: one per rank; if this is an edge list, write \"src: dst, dst\""},
		{"0 1 1 1 1\n", "f.txt:1: row 0 has 5 columns, needs 4: one per rank; if this is an edge list, write \"src: dst, dst\""},
		{"0 1 1 1\n0 0 0 0\n0,1,,0\n", "f.txt:3: row 2 has an empty cell: write 0 for no bytes"},
		{strings.Repeat("0 1 1 1\n", 5), "f.txt:5: the matrix has more than 4 rows: one per rank"},
		{strings.Repeat("0 0 0 0\n", 4), "f.txt:4: the matrix has no bytes between different ranks"},
		{"0 1 -1 1\n", `f.txt:1: row 0, column 2: "-1" is no number of bytes: write 0 or a number from 1e-09 to 1e+18, K, M, G, T for powers of 1024`},
		{"0 1 nan 1\n", `f.txt:1: row 0, column 2: "nan" is no number of bytes: write 0 or a number from 1e-09 to 1e+18, K, M, G, T for powers of 1024`},
		{"0 1 5X 1\n", `f.txt:1: row 0, column 2: "5X" is no number of bytes: write 0 or a number from 1e-09 to 1e+18, K, M, G, T for powers of 1024`},
		{"0 1 K 1\n", `f.txt:1: row 0, column 2: "K" is no number of bytes: write 0 or a number from 1e-09 to 1e+18, K, M, G, T for powers of 1024`},
		{"0 1 1 1\n0: 1\n", `f.txt:2: row 1 has 2 columns, needs 4: one per rank`},
	} {
		_, err := NewTopology(NewLayout(4, 2), Params{Name: "custom", File: "f.txt", Custom: []byte(c.text)})
		checkError(t, fmt.Sprintf("%q", c.text), err, KindUsage, c.want)
	}
	_, err := NewTopology(NewLayout(2, 1), Params{Name: "custom", Custom: []byte("x")})
	checkError(t, "no name", err, KindUsage, "custom file:1: row 0 has 1 columns, needs 2: one per rank; if this is an edge list, write \"src: dst, dst\"")
	_, err = NewTopology(NewLayout(10_000, 1), Params{Name: "custom", File: "f.txt", Custom: []byte("*: *")})
	checkError(t, "many", err, KindUsage, "f.txt:1: more than 4194304 edges: use a topology with a rule, such as all_to_all")
}

// FuzzCustom: whatever the file says, an accepted one keeps the promises of a
// topology and a refused one names file and line.
func FuzzCustom(f *testing.F) {
	for _, c := range customCases {
		f.Add([]byte(c.text), false)
	}
	f.Add([]byte("0: 1*1e300,2*1e-300"), true)
	f.Add([]byte("0 1 2 3 4\n1K 0 0 0 0"), true)
	v := NewLayout(5, 2)
	f.Fuzz(func(t *testing.T, content []byte, exclude bool) {
		top, err := NewTopology(v, Params{Name: "custom", File: "f", Custom: content, ExcludeSameHost: exclude})
		if err != nil {
			if ExitCode(err) != 2 || len(content) > 0 && !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("%v", err)
			}
			return
		}
		count, in := int64(0), int64(0)
		for r := range Rank(5) {
			sum := 0.0
			for e := range top.Edges(r) {
				if e.From != r || e.To == r || e.To < 0 || e.To > 4 || !(e.Weight > 0) {
					t.Fatalf("edge %+v", e)
				}
				sum += e.Weight
				count++
			}
			if top.Out(r) > 0 && math.Abs(sum-1) > 1e-9 {
				t.Fatalf("weights of %d sum to %g", r, sum)
			}
			in += int64(len(slices.Collect(top.Sources(r))))
		}
		if count != top.Count() || in != count {
			t.Fatalf("%d edges out, %d in, count %d", count, in, top.Count())
		}
		if bound, _ := Bound(top); !(bound >= 0 && bound <= 5+1e-9) {
			t.Fatalf("bound %g", bound)
		}
	})
}

func TestCustomWithByteOrderMark(t *testing.T) {
	top, err := NewTopology(NewLayout(4, 2), Params{Name: "custom", File: "f.txt", Custom: []byte("\ufeff0: 1\r\n2: 3\r\n")})
	if err != nil || top.Count() != 2 {
		t.Errorf("%v, want 2 edges", err)
	}
}
