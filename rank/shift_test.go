package rank

import (
	"slices"
	"testing"
)

func TestShift(t *testing.T) {
	for text, offsets := range map[string]func(w int) []int{
		"":              func(int) []int { return []int{1} },
		"4,2,1":         func(int) []int { return []int{4, 2, 1} },
		"1-4":           func(int) []int { return []int{1, 2, 3, 4} },
		"3, 20,3":       func(int) []int { return []int{3, 20, 3} },
		"0-1000:7":      func(int) []int { return steps(0, 1000, 7) },
		"5-100":         func(int) []int { return steps(5, 100, 1) },
		"all":           func(w int) []int { return steps(1, w-1, 1) },
		"0":             func(int) []int { return nil },
		"2,1000000-1":   nil,
		"1-3,2-5,17-19": func(int) []int { return []int{1, 2, 3, 2, 3, 4, 5, 17, 18, 19} },
	} {
		if offsets == nil {
			if _, err := NewTopology(NewLayout(4, 1), Params{Name: "shift", Offsets: text}); err == nil {
				t.Errorf("offsets %q accepted", text)
			}
			continue
		}
		for _, staged := range []bool{false, true} {
			params := func(w int) (Params, bool) { // many lists: not all sizes with each
				return Params{Name: "shift", Offsets: text, Staged: staged}, w < 6 || w == 8 || w > 15
			}
			checkTopology(t, params, func(j slowJob, r Rank) ([]slowEdge, int) {
				var reduced []int
				for _, o := range offsets(j.w) {
					if o %= j.w; o != 0 && !slices.Contains(reduced, o) {
						reduced = append(reduced, o)
					}
				}
				var edges []slowEdge
				for i, o := range reduced {
					e := slowEdge{to: (r + Rank(o)) % Rank(j.w)}
					if staged || text == "all" {
						e.stage = int32(i)
					}
					if j.selected(r, e.to) {
						edges = append(edges, e)
					}
				}
				return edges, 0
			})
		}
	}
}

func steps(lo, hi, step int) []int {
	var list []int
	for i := lo; i <= hi; i += step {
		list = append(list, i)
	}
	return list
}

func TestShiftStages(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want int
	}{
		{Params{Offsets: "all"}, 6},
		{Params{Offsets: "1,2,8", Staged: true}, 2}, // 8 is 1 again
		{Params{Offsets: "1-6"}, 1},
		{Params{Staged: true}, 1},
		{Params{Offsets: "7", Staged: true}, 1}, // no offset left
	} {
		c.p.Name = "shift"
		if got := mustTopology(t, NewLayout(7, 1), c.p).Stages(); got != c.want {
			t.Errorf("%+v: %d stages, want %d", c.p, got, c.want)
		}
	}
}

// TestShiftHugeOffsets: a range far longer than the job is every residue, and
// costs no more than the job.
func TestShiftHugeOffsets(t *testing.T) {
	for text, want := range map[string]int64{"1-4000000000000": 6 * 7, "0-4000000000000:7": 0, "3-4000000000000:7": 7, "4000000000001": 7} {
		if got := mustTopology(t, NewLayout(7, 1), Params{Name: "shift", Offsets: text}).Count(); got != want {
			t.Errorf("%s: %d edges, want %d", text, got, want)
		}
	}
}
