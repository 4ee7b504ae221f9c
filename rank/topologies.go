package rank

import (
	"fmt"
	"strings"
)

// topologies is every topology, sorted by name: one line each, the rest is in
// the topology's own file.
var topologies = []kind{
	allToAllKind,
	bisectionKind,
	customKind,
	fanoutKind,
	hotspotKind,
	hypercubeKind,
	incastKind,
	m2nKind,
	pairwiseKind,
	permutationKind,
	railKind,
	ringKind,
	shiftKind,
}

// kind describes one topology for the table above.
type kind struct {
	name    string // as in flags and JSON
	summary string // one line for help
	takes   param  // parameters beyond those that all take
	build   func(v View, p Params, sel selected) (Topology, error)
	bound   func(t Topology) (lineRates float64, formula string) // nil: the common bound, see Bound
}

// param is a set of parameters. ExcludeSameHost, NoRotate and Seed go with
// every topology: the first drops edges anywhere, the second forbids what only
// some do, the third is the seed of the whole job.
type param uint8

const (
	takesSelection param = 1 << iota // Initiators, Targets
	takesMN
	takesOffsets // Offsets, Staged
	takesHot     // Hot, HotShare
	takesFile    // File, Custom
)

// selected is what --initiators, --targets and --exclude-same-host ask for,
// parsed once for all topologies.
type selected struct {
	from, to *set    // nil: the topology's default
	host     []int32 // host number of every rank if edges inside a host are dropped, else nil
}

// MaxSize is the greatest number of ranks that plans are made for. What is
// precomputed per rank fits into memory up to there.
const MaxSize = 1 << 26

// TopologyNames lists the topologies, sorted.
func TopologyNames() []string {
	names := make([]string, len(topologies))
	for i, k := range topologies {
		names[i] = k.name
	}
	return names
}

// TopologySummary is one line about a topology for help texts, "" if there is
// none of that name.
func TopologySummary(name string) string {
	if k := findKind(name); k != nil {
		return k.summary
	}
	return ""
}

func findKind(name string) *kind {
	for i := range topologies {
		if topologies[i].name == name {
			return &topologies[i]
		}
	}
	return nil
}

// NewTopology makes the topology that p asks for over the ranks of v; an empty
// name is all_to_all. It costs at most O(size), for custom the size of the
// file, for a filtered shift O(size × offsets). All errors are *Error of
// KindUsage and say which value to change. One rank has no edges and is no
// error.
//
// Counts do not overflow: sizes above MaxSize are refused here, so no topology
// has more than 2^52 edges; CheckConnections looks at what is multiplied.
func NewTopology(v View, p Params) (Topology, error) {
	name := p.Name
	if name == "" {
		name = allToAllKind.name
	}
	k := findKind(name)
	if k == nil {
		hint := ""
		if near := Nearest(name, TopologyNames()); near != "" {
			hint = " did you mean " + near + "?"
		}
		return nil, Errorf(KindUsage, "unknown topology %q:%s there are %s", p.Name, hint, strings.Join(TopologyNames(), ", "))
	}
	if w := v.Size(); w < 1 || w > MaxSize {
		return nil, Errorf(KindUsage, "topology %s: %d ranks: give 1-%d", name, w, MaxSize)
	}
	if err := k.refuse(p); err != nil {
		return nil, err
	}
	var sel selected
	for _, s := range []struct {
		text, what string
		set        **set
	}{{p.Initiators, "--initiators", &sel.from}, {p.Targets, "--targets", &sel.to}} {
		if s.text == "" {
			continue
		}
		ranks, err := ParseSelection(s.text, v)
		if err != nil {
			return nil, Errorf(KindUsage, "%s: %w", s.what, err)
		}
		*s.set = listSet(ranks)
	}
	if p.ExcludeSameHost {
		sel.host = hostNumbers(v)
	}
	return k.build(v, p, sel)
}

// refuse names the first parameter that does not apply to the topology.
func (k *kind) refuse(p Params) error {
	for _, c := range []struct {
		given bool
		param param
		what  string
	}{
		{p.Initiators != "", takesSelection, "--initiators"},
		{p.Targets != "", takesSelection, "--targets"},
		{p.M != 0, takesMN, "--m2n"},
		{p.N != 0, takesMN, "--m2n"},
		{p.Offsets != "", takesOffsets, "--offsets"},
		{p.Staged, takesOffsets, "--staged"},
		{p.Hot != "", takesHot, "--hot"},
		{p.HotShare != 0, takesHot, "--hot-share"},
		{p.File != "" || len(p.Custom) > 0, takesFile, "--custom"},
	} {
		if !c.given || k.takes&c.param != 0 {
			continue
		}
		var who []string
		for _, other := range topologies {
			if other.takes&c.param != 0 {
				who = append(who, other.name)
			}
		}
		return Errorf(KindUsage, "topology %s does not take %s: leave that out, or use %s", k.name, c.what, orList(who))
	}
	return nil
}

// orList prints "a", "a or b", "a, b or c".
func orList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return fmt.Sprintf("%s or %s", strings.Join(names[:last], ", "), names[last])
}

// Bound is the most that the topology can carry in all, in units of one rank's
// line rate in one direction, if ranks are the only limit, and the formula
// behind it (reference: tebench proposal §4.2, "ideal total"). It is an upper
// bound: a fabric with less bisection carries less. For custom it is the total
// if all initiators keep to the proportions of the file.
//
// The common bound: data cannot flow faster than all ranks that initiate can
// send, nor than all that are reached can receive. O(size) at most.
func Bound(t Topology) (lineRates float64, formula string) {
	if k := findKind(t.Name()); k != nil && k.bound != nil {
		return k.bound(t)
	}
	return commonBound(t)
}

func commonBound(t Topology) (float64, string) {
	senders, receivers := 0, 0
	for r := range sizeOf(t) {
		if t.Out(Rank(r)) > 0 {
			senders++
		}
		if t.In(Rank(r)) > 0 {
			receivers++
		}
	}
	return float64(min(senders, receivers)),
		fmt.Sprintf("min(%d ranks that initiate, %d ranks that are reached) × line rate", senders, receivers)
}

// sizeOf is the number of ranks that a topology was made for.
func sizeOf(t Topology) int { return t.(interface{ size() int }).size() }

// hostNumbers numbers hosts in order of their lowest rank and gives every rank
// the number of its host. O(size).
func hostNumbers(v View) []int32 {
	numbers := make([]int32, v.Size())
	for i, h := range v.Hosts() {
		for _, r := range v.HostRanks(h) {
			numbers[r] = int32(i)
		}
	}
	return numbers
}
