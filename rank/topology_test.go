package rank

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"
)

// slowJob is what the slow versions of the topologies know.
type slowJob struct {
	View
	w        int
	p        Params
	from, to []Rank // what is selected, nil if nothing
}

// keeps is the common rule: no self edge, none inside a host if asked.
func (j slowJob) keeps(a, b Rank) bool {
	return a != b && (!j.p.ExcludeSameHost || j.HostOf(a) != j.HostOf(b))
}

// selected keeps the edges between selected ranks.
func (j slowJob) selected(a, b Rank) bool {
	return (j.from == nil || slices.Contains(j.from, a)) && (j.to == nil || slices.Contains(j.to, b))
}

func (j slowJob) all() []Rank { return ranksUpTo(j.w) }

func ranksUpTo(w int) []Rank {
	all := make([]Rank, w)
	for i := range all {
		all[i] = Rank(i)
	}
	return all
}

func either(a, b []Rank) []Rank {
	if a != nil {
		return a
	}
	return b
}

// slowEdge is an edge of one initiator before anything is dropped.
type slowEdge struct {
	to     Rank
	stage  int32
	weight float64 // 0 everywhere: all the same
}

// to makes slow edges of stage 0.
func to(ranks ...Rank) []slowEdge {
	edges := make([]slowEdge, len(ranks))
	for i, r := range ranks {
		edges[i].to = r
	}
	return edges
}

// slowPlan is an obvious version of a topology: the edges of one initiator
// before dropping, and its number for the rotation.
type slowPlan func(j slowJob, r Rank) (edges []slowEdge, number int)

// views of a size: even and uneven hosts, hosts in blocks and in turns, and
// several ranks per process.
func views(t *testing.T, w int) map[string]View {
	t.Helper()
	table := func(k int, host func(p int) string) View {
		recs := make([]Record, w/k)
		for p := range recs {
			recs[p] = Record{Nonce: [16]byte{byte(p), byte(p >> 8), 1}, Host: host(p), PID: p, LauncherProc: p, LocalIndex: -1}
		}
		tab, err := Build(recs, k, "run")
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	v := map[string]View{
		"one per host": NewLayout(w, 1),
		"four a host":  NewLayout(w, 4),
		"one host":     NewLayout(w, w),
		"in turns":     table(1, func(p int) string { return fmt.Sprint("h", p%3) }),
		"uneven":       table(1, func(p int) string { return fmt.Sprint("u", min(p/2, p%5)) }),
	}
	if w%2 == 0 {
		v["two a process"] = table(2, func(p int) string { return fmt.Sprint("h", p%2) })
	}
	return v
}

// variants of parameters that fit the topology at a size.
func variants(p Params, w int) []Params {
	list := []Params{p}
	if findKind(p.Name).takes&takesSelection != 0 {
		with := func(from, to string) {
			q := p
			q.Initiators, q.Targets = from, to
			list = append(list, q)
		}
		last := w - 1
		with(fmt.Sprintf("0-%d:2", last), "")
		with("", fmt.Sprintf("%d-%d", w/2, last))
		with(fmt.Sprintf("%d,0", last), fmt.Sprintf("%d-%d:3", w/3, last))
	}
	for _, q := range list {
		q.ExcludeSameHost = true
		list = append(list, q)
	}
	for _, q := range list {
		q.NoRotate = true
		list = append(list, q)
	}
	return list
}

// checkTopology compares a topology with its slow version at sizes 1 … 17 on
// all views with all variants. Parameters may depend on the size; ok false
// skips one.
func checkTopology(t *testing.T, params func(w int) (p Params, ok bool), slow slowPlan) {
	t.Helper()
	checked := 0
	for w := 1; w <= 17; w++ {
		base, ok := params(w)
		if !ok {
			continue
		}
		for name, v := range views(t, w) {
			for _, p := range variants(base, w) {
				if !takesVariant(p) {
					continue
				}
				checked++
				checkOne(t, fmt.Sprintf("%d ranks, %s, %+v", w, name, p), v, p, slow)
				if t.Failed() {
					return
				}
			}
		}
	}
	if checked == 0 {
		t.Fatal("nothing checked")
	}
}

// takesVariant leaves out what a topology refuses: M and N beside a selection.
func takesVariant(p Params) bool {
	return (p.M == 0 || p.Initiators == "") && (p.N == 0 || p.Targets == "")
}

func always(p Params) func(int) (Params, bool) {
	return func(int) (Params, bool) { return p, true }
}

func newSlowJob(t *testing.T, v View, p Params) slowJob {
	t.Helper()
	j := slowJob{View: v, w: v.Size(), p: p}
	for _, s := range []struct {
		text string
		into *[]Rank
	}{{p.Initiators, &j.from}, {p.Targets, &j.to}} {
		if s.text == "" {
			continue
		}
		ranks, err := ParseSelection(s.text, v)
		if err != nil {
			t.Fatal(err)
		}
		*s.into = ranks
	}
	return j
}

// expand is the plan of r by the slow version: dropped, rotated, weighed.
func expand(j slowJob, r Rank, slow slowPlan) []Edge {
	raw, number := slow(j, r)
	var edges []Edge
	sum := 0.0
	for _, e := range raw {
		if j.keeps(r, e.to) {
			edges = append(edges, Edge{From: r, To: e.to, Stage: e.stage, Weight: e.weight})
			sum += e.weight
		}
	}
	for i := range edges {
		if sum == 0 {
			edges[i].Weight = 1 / float64(len(edges))
		} else {
			edges[i].Weight /= sum
		}
	}
	if n := len(edges); n > 0 && !j.p.NoRotate {
		edges = append(slices.Clone(edges[number%n:]), edges[:number%n]...)
	}
	return edges
}

func sameEdges(a, b []Edge) bool {
	return slices.EqualFunc(a, b, func(x, y Edge) bool {
		return x.From == y.From && x.To == y.To && x.Stage == y.Stage && math.Abs(x.Weight-y.Weight) < 1e-12
	})
}

func checkOne(t *testing.T, what string, v View, p Params, slow slowPlan) {
	t.Helper()
	top, err := NewTopology(v, p)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if top.Name() != p.Name {
		t.Errorf("%s: Name %q", what, top.Name())
	}
	if top.Stages() < 1 {
		t.Errorf("%s: %d stages", what, top.Stages())
	}
	j := newSlowJob(t, v, p)
	incoming := make([][]Edge, j.w)
	count := int64(0)
	for r := range Rank(j.w) {
		want := expand(j, r, slow)
		got := slices.Collect(top.Edges(r))
		if !sameEdges(got, want) {
			t.Errorf("%s: Edges(%d)\n got %v\nwant %v", what, r, got, want)
			return
		}
		sum := 0.0
		for _, e := range want {
			if e.From == e.To || e.Weight <= 0 || e.Stage < 0 || int(e.Stage) >= top.Stages() {
				t.Errorf("%s: bad edge %+v", what, e)
			}
			sum += e.Weight
			incoming[e.To] = append(incoming[e.To], e)
		}
		if len(want) > 0 && math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: weights of rank %d sum to %g", what, r, sum)
		}
		if top.Out(r) != int64(len(want)) {
			t.Errorf("%s: Out(%d) = %d, want %d", what, r, top.Out(r), len(want))
		}
		count += int64(len(want))
		checkFirst(t, what, top.Edges(r), want)
	}
	for r := range Rank(j.w) {
		got := slices.Collect(top.Sources(r))
		if !sameEdges(got, incoming[r]) { // ascending initiators by construction
			t.Errorf("%s: Sources(%d)\n got %v\nwant %v", what, r, got, incoming[r])
			return
		}
		if top.In(r) != int64(len(incoming[r])) {
			t.Errorf("%s: In(%d) = %d, want %d", what, r, top.In(r), len(incoming[r]))
		}
		checkFirst(t, what, top.Sources(r), incoming[r])
	}
	if top.Count() != count {
		t.Errorf("%s: Count = %d, want %d", what, top.Count(), count)
	}
	checkPlans(t, what, top, j.w)
	checkBound(t, what, top, incoming, j.w)
	checkNeeds(t, what, top, j.w)
}

// checkFirst breaks off after the first edge: an iterator that goes on panics.
func checkFirst(t *testing.T, what string, seq iter.Seq[Edge], want []Edge) {
	t.Helper()
	for e := range seq {
		if !sameEdges([]Edge{e}, want[:1]) {
			t.Errorf("%s: first edge %v, want %v", what, e, want[0])
		}
		break
	}
}

// checkBound: the bound is not below what the plan carries when every
// initiator sends at the same rate and the busiest target is just full.
func checkBound(t *testing.T, what string, top Topology, incoming [][]Edge, w int) {
	t.Helper()
	senders, busiest := 0.0, 1.0
	for r := range w {
		if top.Out(Rank(r)) > 0 {
			senders++
		}
		load := 0.0
		for _, e := range incoming[r] {
			load += e.Weight
		}
		busiest = max(busiest, load)
	}
	if c, ok := top.(*custom); ok && c.matrix {
		senders = 0 // its bound counts bytes, see TestCustomBound
	}
	bound, formula := Bound(top)
	if bound < senders/busiest-1e-9 || bound > float64(w) || formula == "" {
		t.Errorf("%s: bound %g (%s), %g line rates are possible", what, bound, formula, senders/busiest)
	}
	if top.Count() == 0 && bound != 0 {
		t.Errorf("%s: bound %g without edges", what, bound)
	}
}

func TestTopologiesAreSorted(t *testing.T) {
	names := TopologyNames()
	if !slices.IsSorted(names) {
		t.Errorf("not sorted: %v", names)
	}
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("repeated name: %v", names)
	}
	for _, name := range names {
		if s := TopologySummary(name); s == "" || len(s) > 90 {
			t.Errorf("%s: summary %q", name, s)
		}
	}
	if s := TopologySummary("nothing"); s != "" {
		t.Errorf("summary of an unknown topology: %q", s)
	}
}

// sized is a View of a size only.
type sized struct {
	View
	n int
}

func (s sized) Size() int { return s.n }

func TestNewTopologyErrors(t *testing.T) {
	four := NewLayout(4, 2)
	for _, c := range []struct {
		p    Params
		v    View
		want string
	}{
		{p: Params{Name: "al-to-all"}, want: `unknown topology "al-to-all": did you mean all_to_all? there are ` + joined()},
		{p: Params{Name: "INCAST"}, want: `unknown topology "INCAST": did you mean incast? there are ` + joined()},
		{p: Params{Name: "alltoall"}, want: `unknown topology "alltoall": did you mean all_to_all? there are ` + joined()},
		{p: Params{Name: "ring", M: 2}, want: "topology ring does not take --m2n: leave that out, or use m2n"},
		{p: Params{Name: "ring", N: -2}, want: "topology ring does not take --m2n: leave that out, or use m2n"},
		{p: Params{Name: "ring", Offsets: "2"}, want: "topology ring does not take --offsets: leave that out, or use shift"},
		{p: Params{Name: "m2n", Staged: true}, want: "topology m2n does not take --staged: leave that out, or use shift"},
		{p: Params{Name: "m2n", Hot: "0"}, want: "topology m2n does not take --hot: leave that out, or use hotspot"},
		{p: Params{HotShare: 0.5}, want: "topology all_to_all does not take --hot-share: leave that out, or use hotspot"},
		{p: Params{File: "x"}, want: "topology all_to_all does not take --custom: leave that out, or use custom"},
		{p: Params{Name: "custom", Initiators: "0"}, want: "topology custom does not take --initiators: leave that out, or use " + selecting()},
		{p: Params{Name: "custom", Targets: "0"}, want: "topology custom does not take --targets: leave that out, or use " + selecting()},
		{p: Params{Name: "custom"}, want: "topology custom needs a file that is not empty: give one with edges or a matrix"},
		{p: Params{Initiators: "0-4"}, want: `--initiators: "0-4" is outside the job: ranks are 0-3`},
		{p: Params{Targets: "gpu*"}, want: `--targets: "gpu*" matches no host: hosts are n0, n1; ranks are 0-3`},
		{p: Params{Name: "m2n", M: 3, N: 2}, want: "topology m2n: M=3 and N=2 need 5 ranks, the job has 4: lower M or N"},
		{p: Params{Name: "m2n", M: 3}, want: "topology m2n: M=3 and N=2 need 5 ranks, the job has 4: lower M or N"},
		{p: Params{Name: "m2n", M: math.MaxInt, N: 2}, want: "topology m2n: M=9223372036854775807 and N=2 need too many ranks, the job has 4: lower M or N"},
		{p: Params{Name: "m2n", M: -1, N: 2}, want: "topology m2n: M=-1, N=2: give counts of at least 1"},
		{p: Params{Name: "m2n", M: 1, Initiators: "0"}, want: "topology m2n: M=1 and initiators 0 both say who initiates: give one"},
		{p: Params{Name: "m2n", N: 1, Targets: "0"}, want: "topology m2n: N=1 and targets 0 both say who is reached: give one"},
		{p: Params{Name: "hotspot", HotShare: 1}, want: "--hot-share 1: give more than 0 and less than 1"},
		{p: Params{Name: "hotspot", HotShare: math.NaN()}, want: "--hot-share NaN: give more than 0 and less than 1"},
		{p: Params{Name: "hotspot", Hot: "9"}, want: `--hot: "9" is outside the job: ranks are 0-3`},
		{p: Params{Name: "hotspot", Hot: "1-2", Targets: "2-3"}, want: "topology hotspot: hot rank 1 is not among the targets 2-3"},
		{p: Params{Name: "shift", Offsets: "1,-2"}, want: `topology shift: offsets "1,-2": "-2" is no offset: give numbers and ranges such as 1,2,4 or 1-4, or all`},
		{p: Params{Name: "shift", Offsets: "all,1"}, want: `topology shift: offsets "all,1": "all" is no offset: give numbers and ranges such as 1,2,4 or 1-4, or all`},
		{p: Params{Name: "shift", Offsets: "4-1"}, want: `topology shift: offsets "4-1": "4-1" is no offset: give numbers and ranges such as 1,2,4 or 1-4, or all`},
		{p: Params{Name: "shift", Offsets: "1-4:0"}, want: `topology shift: offsets "1-4:0": "1-4:0" is no offset: give numbers and ranges such as 1,2,4 or 1-4, or all`},
		{p: Params{Name: "shift", Offsets: "1,,2"}, want: `topology shift: offsets "1,,2": "" is no offset: give numbers and ranges such as 1,2,4 or 1-4, or all`},
		{p: Params{Name: "shift", Offsets: "99999999999999999999"}, want: `topology shift: offsets "99999999999999999999": "99999999999999999999" is no offset: give numbers and ranges such as 1,2,4 or 1-4, or all`},
		{v: sized{n: 0}, want: "topology all_to_all: 0 ranks: give 1-67108864"},
		{v: NewLayout(-3, 0), want: "topology all_to_all: 0 ranks: give 1-67108864"},
		{v: NewLayout(5_000_000_000, 1), p: Params{Name: "ring"}, want: "topology ring: 5000000000 ranks: give 1-67108864"},
	} {
		v := c.v
		if v == nil {
			v = four
		}
		_, err := NewTopology(v, c.p)
		checkError(t, fmt.Sprintf("%+v", c.p), err, KindUsage, c.want)
	}
}

// checkError wants an error of a kind with exactly that text.
func checkError(t *testing.T, what string, err error, kind Kind, want string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s: error %v, want %q", what, err, want)
		return
	}
	if e.Kind != kind || e.Error() != want {
		t.Errorf("%s: kind %d\n got %q\nwant %q (kind %d)", what, e.Kind, e.Error(), want, kind)
	}
}

func joined() string {
	text := ""
	for i, name := range TopologyNames() {
		if i > 0 {
			text += ", "
		}
		text += name
	}
	return text
}

// selecting is the list of topologies that take a selection, as in messages.
func selecting() string {
	var names []string
	for _, k := range topologies {
		if k.takes&takesSelection != 0 {
			names = append(names, k.name)
		}
	}
	return orList(names)
}

// TestHugeCounts: invented sizes are counted in closed form.
func TestHugeCounts(t *testing.T) {
	for _, c := range []struct {
		ranks, perHost int
		p              Params
		count          int64
		bound          float64
	}{
		{10_000, 8, Params{Name: "all_to_all"}, 99_990_000, 10_000},
		{10_000, 8, Params{Name: "all_to_all", ExcludeSameHost: true}, 10_000 * 9_992, 10_000},
		{10_000, 8, Params{Name: "hotspot"}, 99_990_000, 1/0.8 + 1},
		{10_000, 8, Params{Name: "shift", Offsets: "all"}, 99_990_000, 10_000},
		{10_000, 8, Params{Name: "shift", Offsets: "all", ExcludeSameHost: true}, 10_000 * 9_992, 10_000},
		{1_000_000, 8, Params{Name: "all_to_all"}, 999_999_000_000, 1_000_000},
		{1_000_000, 8, Params{Name: "shift", Offsets: "1-4"}, 4_000_000, 1_000_000},
		{1_000_000, 8, Params{Name: "incast"}, 999_999, 1},
		{1_000_000, 8, Params{Name: "fanout"}, 999_999, 1},
		{1_000_000, 8, Params{Name: "m2n"}, 250_000_000_000, 500_000},
		{1_000_000, 8, Params{Name: "permutation", Seed: 7}, 1_000_000, 1_000_000},
		{1 << 20, 8, Params{Name: "hypercube"}, 20 << 20, 1 << 20},
	} {
		top, err := NewTopology(NewLayout(c.ranks, c.perHost), c.p)
		if err != nil {
			t.Errorf("%+v: %v", c.p, err)
			continue
		}
		bound, _ := Bound(top)
		if top.Count() != c.count || bound != c.bound {
			t.Errorf("%+v at %d ranks: count %d, bound %g, want %d, %g", c.p, c.ranks, top.Count(), bound, c.count, c.bound)
		}
	}
	all := mustTopology(t, NewLayout(MaxSize, 1), Params{})
	if want := int64(MaxSize) * (MaxSize - 1); all.Count() != want {
		t.Errorf("all_to_all at the greatest size: %d, want %d", all.Count(), want)
	}
	_, err := CheckConnections(all, 1<<20)
	checkError(t, "connections", err, KindUsage,
		"topology all_to_all: 4503599560261632 edges with 1048576 connections each are too many to count: lower the connections")
}

func BenchmarkPlanMillion(b *testing.B) {
	for _, p := range []Params{{Name: "shift"}, {Name: "hypercube"}, {Name: "permutation"}, {Name: "all_to_all"}} {
		b.Run(p.Name, func(b *testing.B) {
			for b.Loop() {
				top, err := NewTopology(NewLayout(1_000_000, 8), p)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := NeedsOf(top, 1, FDCost{PerOut: 1, PerIn: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
