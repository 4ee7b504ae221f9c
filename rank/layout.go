package rank

import (
	"strconv"
	"strings"
)

// layout is an invented job: hosts n0, n1, … with the same number of ranks
// each, the last one with what is left. It stores no rank and no name.
type layout struct {
	size, perHost int
}

// NewLayout invents a job of that many ranks for planning: ranks fill hosts n0,
// n1, … in blocks of ranksPerHost (< 1 counts as 1). O(1) whatever the size;
// names are made when asked for. Whether the size is possible is NewTopology's
// question.
func NewLayout(ranks int, ranksPerHost int) View {
	return layout{size: max(ranks, 0), perHost: max(ranksPerHost, 1)}
}

func (l layout) Size() int { return l.size }

func (l layout) HostOf(r Rank) string { return "n" + strconv.Itoa(int(r)/l.perHost) }

func (l layout) LocalRank(r Rank) int { return int(r) % l.perHost }

func (l layout) HostRanks(h string) []Rank {
	text, ok := strings.CutPrefix(h, "n")
	i, err := strconv.Atoi(text)
	if !ok || err != nil || i < 0 || strconv.Itoa(i) != text || i >= l.hosts() {
		return nil
	}
	first := i * l.perHost
	ranks := make([]Rank, min(l.perHost, l.size-first))
	for j := range ranks {
		ranks[j] = Rank(first + j)
	}
	return ranks
}

func (l layout) Hosts() []string {
	hosts := make([]string, l.hosts())
	for i := range hosts {
		hosts[i] = "n" + strconv.Itoa(i)
	}
	return hosts
}

// hosts avoids size+perHost-1, which overflows for invented extremes.
func (l layout) hosts() int {
	n := l.size / l.perHost
	if l.size%l.perHost != 0 {
		n++
	}
	return n
}
