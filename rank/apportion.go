package rank

import (
	"math"
	"slices"
)

// remainderGrain is how close two remainders must be to count as equal: it
// hides the rounding of weights such as 0.1.
const remainderGrain = 1e-9

// LargestRemainder splits n things over weights: each gets the whole part of
// its share n·w/Σw, and what is left goes to the largest fractional parts, ties
// to the earlier. The result sums to n. Weights that are not above 0 (NaN and
// infinities too) get nothing; if no weight is above 0, or n < 1, all get 0.
func LargestRemainder(weights []float64, n int) []int {
	parts := make([]int, len(weights))
	sum := totalWeight(weights)
	if n < 1 || sum == 0 {
		return parts
	}
	remainder := make([]float64, len(weights))
	order := make([]int, 0, len(weights))
	left := n
	for i, w := range weights {
		if !counts(w) {
			continue
		}
		share := w / sum * float64(n)
		whole := math.Floor(share)
		// Never more than there is: float64 cannot hold every big n.
		parts[i] = left
		if whole < float64(left) {
			parts[i] = int(whole)
		}
		left -= parts[i]
		remainder[i] = math.Round((share - whole) / remainderGrain)
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case remainder[a] > remainder[b]:
			return -1
		case remainder[a] < remainder[b]:
			return 1
		}
		return 0
	})
	// Usually left < len(order). A huge n leaves more: all get the same again.
	for i := range order {
		extra := left / len(order)
		if i < left%len(order) {
			extra++
		}
		parts[order[i]] += extra
	}
	return parts
}

// counts tells whether a weight takes part.
func counts(w float64) bool { return w > 0 && !math.IsInf(w, 1) }

func totalWeight(weights []float64) float64 {
	sum := 0.0
	for _, w := range weights {
		if counts(w) {
			sum += w
		}
	}
	return sum
}

// SWRR picks from a weighted list by smooth weighted round robin: every pick
// adds each weight to its credit, takes the greatest credit and charges it the
// sum of weights, so that picks of one entry are spread out evenly. It is
// deterministic. Not for concurrent use.
type SWRR struct {
	weights []float64 // above 0 and finite, the others left out
	entry   []int     // their places in the caller's list
	credit  []float64
	sum     float64
	equal   bool // plain round robin, O(1) per pick
	next    int  // where looking begins: ties go to the first from here
}

// NewSWRR starts at an offset: of equally good entries the first from place
// offset modulo the length is taken, so equal weights begin there. Weights that
// are not above 0 are never picked.
func NewSWRR(weights []float64, offset int) *SWRR {
	s := &SWRR{equal: true}
	for i, w := range weights {
		if counts(w) {
			s.weights = append(s.weights, w)
			s.entry = append(s.entry, i)
			s.sum += w
			s.equal = s.equal && w == s.weights[0]
		}
	}
	s.credit = make([]float64, len(s.weights))
	if n := len(s.weights); n > 0 {
		s.next = (offset%n + n) % n
	}
	return s
}

// Next picks an entry of the list, -1 if there is none. O(entries) with
// different weights, O(1) with equal ones; no allocation.
func (s *SWRR) Next() int {
	n := len(s.weights)
	if n == 0 {
		return -1
	}
	if s.equal {
		pick := s.next
		if s.next++; s.next == n {
			s.next = 0
		}
		return s.entry[pick]
	}
	best := -1
	for k := range n {
		i := s.next + k
		if i >= n {
			i -= n
		}
		s.credit[i] += s.weights[i]
		// The grain keeps rounding of the credits from deciding a tie.
		if best < 0 || s.credit[i] > s.credit[best]+s.sum*remainderGrain {
			best = i
		}
	}
	s.credit[best] -= s.sum
	return s.entry[best]
}
