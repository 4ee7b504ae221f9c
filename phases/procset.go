package phases

import (
	"iter"
	"math/bits"
	"slices"

	"rankstorm/rank"
)

// MaxProcs bounds the processes of a job, and with it the size of a decoded
// ProcSet (128 KiB).
const MaxProcs = 1 << 20

// ProcSet is a set of processes: bit p%64 of word p/64. The zero value is the
// empty set; trailing zero words do not matter.
type ProcSet []uint64

// Full is the set of processes 0 … n-1.
func Full(n int) ProcSet {
	if n <= 0 {
		return nil
	}
	s := make(ProcSet, (n+63)/64)
	for i := range s {
		s[i] = ^uint64(0)
	}
	if r := n % 64; r != 0 {
		s[len(s)-1] = 1<<r - 1
	}
	return s
}

// SetOf makes a set of the given processes; negative ones are left out.
func SetOf(procs ...rank.Proc) ProcSet {
	var s ProcSet
	for _, p := range procs {
		s.Add(p)
	}
	return s
}

// Add puts p (≥ 0) into the set. Negative numbers are ignored.
func (s *ProcSet) Add(p rank.Proc) {
	if p < 0 {
		return
	}
	w := int(p) / 64
	if w >= len(*s) {
		*s = append(*s, make(ProcSet, w+1-len(*s))...)
	}
	(*s)[w] |= 1 << (uint(p) % 64)
}

// Has reports membership.
func (s ProcSet) Has(p rank.Proc) bool {
	w := int(p) / 64
	return p >= 0 && w < len(s) && s[w]&(1<<(uint(p)%64)) != 0
}

// Union adds all of o.
func (s *ProcSet) Union(o ProcSet) {
	if len(o) > len(*s) {
		*s = append(*s, make(ProcSet, len(o)-len(*s))...)
	}
	for i, w := range o {
		(*s)[i] |= w
	}
}

// Subtract takes all of o out.
func (s ProcSet) Subtract(o ProcSet) {
	for i := range min(len(s), len(o)) {
		s[i] &^= o[i]
	}
}

// Intersect takes out all that is not in o.
func (s ProcSet) Intersect(o ProcSet) {
	n := min(len(s), len(o))
	for i := range n {
		s[i] &= o[i]
	}
	clear(s[n:])
}

// Intersects says whether the sets share a process.
func (s ProcSet) Intersects(o ProcSet) bool {
	for i := range min(len(s), len(o)) {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// Contains says whether all of o is in s.
func (s ProcSet) Contains(o ProcSet) bool {
	for i, w := range o {
		if i >= len(s) {
			if w != 0 {
				return false
			}
		} else if w&^s[i] != 0 {
			return false
		}
	}
	return true
}

// Len counts the processes.
func (s ProcSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Clone is an independent copy.
func (s ProcSet) Clone() ProcSet { return slices.Clone(s) }

// All yields the processes in ascending order.
func (s ProcSet) All() iter.Seq[rank.Proc] {
	return func(yield func(rank.Proc) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(rank.Proc(i*64 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}
