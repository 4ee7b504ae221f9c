package runner

import (
	"rankstorm/rank"
)

// storms says, per stage, how many edges every rank initiates: what a
// paced storm needs to interleave all initiators without talking to them.
// 8 bytes per rank and stage; made only for rate=R.
type storms struct {
	stages [][]int64 // stage → rank → edges
}

func newStorms(t rank.Topology, size int) *storms {
	s := &storms{stages: make([][]int64, t.Stages())}
	for i := range s.stages {
		s.stages[i] = make([]int64, size)
	}
	for r := range rank.Rank(size) {
		if len(s.stages) == 1 {
			s.stages[0][r] = t.Out(r)
			continue
		}
		for e := range t.Edges(r) {
			s.stages[e.Stage][r]++
		}
	}
	return s
}

// place is a rank's position among the initiators of a stage, how many there are, and what they initiate together.
func (s *storms) place(stage int32, r rank.Rank) (position, initiators, total int64) {
	for i, n := range s.stages[stage] {
		if n == 0 {
			continue
		}
		if rank.Rank(i) < r {
			position++
		}
		initiators++
		total += n
	}
	return position, max(1, initiators), total
}
