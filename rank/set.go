package rank

import "slices"

// set is an ordered set of ranks: a contiguous range without storage, or an
// ascending list.
type set struct {
	first Rank
	n     int
	list  []Rank // nil: first … first+n-1
}

// rangeSet holds first … first+n-1.
func rangeSet(first, n int) *set { return &set{first: Rank(first), n: n} }

// listSet holds ascending ranks without repeats.
func listSet(ranks []Rank) *set {
	if n := len(ranks); n > 0 && int(ranks[n-1]-ranks[0]) == n-1 {
		return rangeSet(int(ranks[0]), n)
	}
	return &set{n: len(ranks), list: ranks}
}

// at is the i-th rank, i in 0 … n-1.
func (s *set) at(i int) Rank {
	if s.list != nil {
		return s.list[i]
	}
	return s.first + Rank(i)
}

// find gives the position of r, or where it would be.
func (s *set) find(r Rank) (int, bool) {
	if s.list != nil {
		return slices.BinarySearch(s.list, r)
	}
	i := int(r) - int(s.first)
	return i, i >= 0 && i < s.n
}

func (s *set) has(r Rank) bool {
	_, ok := s.find(r)
	return ok
}

// without is the ranks 0 … size-1 that are not in s. O(size).
func (s *set) without(size int) *set {
	rest := make([]Rank, 0, size-s.n)
	for r := range size {
		if !s.has(Rank(r)) {
			rest = append(rest, Rank(r))
		}
	}
	return listSet(rest)
}

// common counts the ranks in both sets.
func (s *set) common(o *set) int64 {
	small, big := s, o
	if small.n > big.n {
		small, big = big, small
	}
	if small.list == nil && big.list == nil {
		lo := max(small.first, big.first)
		hi := min(int(small.first)+small.n, int(big.first)+big.n)
		return int64(max(hi-int(lo), 0))
	}
	n := int64(0)
	for i := range small.n {
		if big.has(small.at(i)) {
			n++
		}
	}
	return n
}
