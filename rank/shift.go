package rank

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// shiftKind: r → r+o modulo W for every offset o (default 1), reduced modulo
// W; 0 and repeats are dropped. "all" is every offset, in turns; --staged
// takes turns with any list: one stage per offset. A selection keeps the edges
// between selected ranks.
//
// W edges per offset; ideal total W line rates.
var shiftKind = kind{
	name:    "shift",
	summary: "every rank to the ranks at given offsets, in turns if asked",
	takes:   takesSelection | takesOffsets,
	build: func(v View, p Params, sel selected) (Topology, error) {
		offsets, err := parseOffsets(p.Offsets, v.Size())
		if err != nil {
			return nil, err
		}
		staged := p.Staged || p.Offsets == "all"
		stages := 1
		if staged {
			stages = max(len(offsets), 1)
		}
		return newRelative("shift", v, sel, stages, newShifts(v.Size(), offsets, staged)), nil
	},
}

// parseOffsets reads "1,2,4", "1-4", "0-15:2", "all" or "" (1) and reduces it
// modulo size, in the order given without 0 and repeats.
func parseOffsets(text string, size int) ([]int, error) {
	switch text {
	case "":
		text = "1"
	case "all":
		text = "1-" + strconv.Itoa(size)
	}
	var offsets []int
	seen := make([]bool, size)
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		lo, hi, step, ok := parseRange(word)
		if !ok || lo > hi || step < 1 {
			return nil, Errorf(KindUsage, "topology shift: offsets %q: %q is no offset: give numbers and ranges such as 1,2,4 or 1-4, or all", text, word)
		}
		// Residues repeat after at most size steps.
		o, advance := int(lo%int64(size)), int(step%int64(size))
		for range min((hi-lo)/step, int64(size)-1) + 1 {
			if o != 0 && !seen[o] {
				seen[o] = true
				offsets = append(offsets, o)
			}
			if o += advance; o >= size {
				o -= size
			}
		}
	}
	return offsets, nil
}

// shifts is the rule r → r+o for a list of offsets, 0 < o < size.
type shifts struct {
	size      int
	offsets   []int   // in plan order
	stages    []int32 // by plan order; nil: all 0
	ascending []int32 // indexes of offsets by value
}

func newShifts(size int, offsets []int, staged bool) *shifts {
	if size == 1 {
		offsets = nil
	}
	s := &shifts{size: size, offsets: offsets, ascending: make([]int32, len(offsets))}
	for i := range s.ascending {
		s.ascending[i] = int32(i)
	}
	slices.SortFunc(s.ascending, func(a, b int32) int { return offsets[a] - offsets[b] })
	if staged {
		s.stages = make([]int32, len(offsets))
		for i := range s.stages {
			s.stages[i] = int32(i)
		}
	}
	return s
}

func (s *shifts) stage(i int) int32 {
	if s.stages == nil {
		return 0
	}
	return s.stages[i]
}

func (s *shifts) outs(r Rank, yield func(Rank, int32) bool) {
	for i, o := range s.offsets {
		to := int(r) + o
		if to >= s.size {
			to -= s.size
		}
		if !yield(Rank(to), s.stage(i)) {
			return
		}
	}
}

// ins walks the offsets downwards twice: t−o for those that do not wrap, then
// t−o+size for those that do, which gives ascending ranks.
func (s *shifts) ins(t Rank, yield func(Rank, int32) bool) {
	split, _ := slices.BinarySearchFunc(s.ascending, int(t), func(i int32, v int) int {
		if s.offsets[i] <= v {
			return -1
		}
		return 1
	})
	for k := split - 1; k >= 0; k-- {
		i := int(s.ascending[k])
		if !yield(t-Rank(s.offsets[i]), s.stage(i)) {
			return
		}
	}
	for k := len(s.ascending) - 1; k >= split; k-- {
		i := int(s.ascending[k])
		if !yield(Rank(int(t)-s.offsets[i]+s.size), s.stage(i)) {
			return
		}
	}
}

func (s *shifts) degrees(Rank) (out, in int64) {
	return int64(len(s.offsets)), int64(len(s.offsets))
}

func (s *shifts) edges() int64 { return int64(s.size) * int64(len(s.offsets)) }

// complete: every offset means every ordered pair.
func (s *shifts) complete() bool { return len(s.offsets) == s.size-1 }

// parseRange reads "7", "0-7" or "0-15:2" with non-negative numbers that fit.
func parseRange(word string) (lo, hi, step int64, ok bool) {
	bounds, stride, strided := strings.Cut(word, ":")
	low, high, ranged := strings.Cut(bounds, "-")
	lo, ok = parseCount(low)
	hi, step = lo, 1
	if ok && ranged {
		hi, ok = parseCount(high)
	}
	if ok && strided {
		step, ok = parseCount(stride)
		ok = ok && ranged
	}
	return lo, hi, step, ok
}

// parseCount reads plain decimal digits: no sign, no blank, no underscore.
func parseCount(s string) (int64, bool) {
	if s == "" || digits(s) != len(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= math.MaxInt64/2
}
