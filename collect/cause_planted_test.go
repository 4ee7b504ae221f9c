package collect

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"rankstorm/rank"
)

// plantedJob is a made-up job whose times are log-normal, with hiccups of 2–4 ms
// now and then, and in which one thing may be wrong.
type plantedJob struct {
	rng   *rand.Rand
	size  int
	per   int // ranks of a host
	conns int

	late, gap []int64 // per rank, connect
	full      [][][]int64
	syn       []int64 // durations of connect
	hello     []int64
	drops     []int64 // per rank
	retries   []int64
}

func (j *plantedJob) host(r int) string { return fmt.Sprintf("n%d", r/j.per) }

// logNormal has that median, ns.
func (j *plantedJob) logNormal(medianNS, sigma float64) int64 {
	return int64(medianNS * math.Exp(sigma*j.rng.NormFloat64()))
}

// cleanJob is an all-to-all storm of 8 to 24 ranks.
func cleanJob(seed uint64) *plantedJob {
	rng := rand.New(rand.NewPCG(seed, 11))
	j := &plantedJob{rng: rng, per: 1 + rng.IntN(4), conns: 4 + rng.IntN(13)}
	j.size = j.per * max(4+rng.IntN(3), (8+j.per-1)/j.per)
	typical := 200e3 * math.Exp(4.6*rng.Float64()) // 0.2 … 20 ms
	hiccup := func() int64 {
		if rng.IntN(100) > 0 {
			return 0
		}
		return 2_000_000 + rng.Int64N(2_000_000)
	}
	hiccups := make([]int64, j.size) // a rank that stands still holds up what is under way there
	pace := make([]float64, j.size)  // no two ranks are alike
	for r := range j.size {
		pace[r] = math.Exp(0.2 * rng.NormFloat64())
		hiccups[r] = hiccup()
		j.late = append(j.late, j.logNormal(20e3, 0.8)+hiccup())
		j.gap = append(j.gap, j.logNormal(40e3, 0.8)+hiccups[r])
	}
	j.drops, j.retries = make([]int64, j.size), make([]int64, j.size)
	j.full = make([][][]int64, j.size)
	for a := range j.size {
		j.full[a] = make([][]int64, j.size)
		for b := range j.size {
			if a == b {
				continue
			}
			path := typical
			if j.host(a) == j.host(b) {
				path /= 3
			}
			for range j.conns {
				j.full[a][b] = append(j.full[a][b], j.logNormal(path*pace[a]*pace[b], 0.5)+hiccup()+max(hiccups[a], hiccups[b]))
			}
		}
	}
	return j
}

// scale makes the connections of the edges that of chooses slower by factor and 6 ms.
func (j *plantedJob) scale(factor float64, of func(a, b int) bool) {
	for a := range j.size {
		for b := range j.size {
			if of(a, b) {
				for i, ns := range j.full[a][b] {
					j.full[a][b][i] = int64(float64(ns)*factor) + 6_000_000
				}
			}
		}
	}
}

func (j *plantedJob) document() *Document {
	d := &Document{Size: int64(j.size), Procs: int64(j.size), RanksPerProc: 1, Transport: "tcp"}
	bound, zero := int64(30_000), int64(0)
	p := PhaseDoc{Phase: "connect", BoundNS: &bound}
	cpus := int64(j.per)
	for r := range j.size {
		d.Ranks = append(d.Ranks, RankDoc{Rank: rank.Rank(r), Proc: rank.Proc(r), Host: j.host(r)})
		if r%j.per == 0 {
			d.Hosts = append(d.Hosts, Host{Host: j.host(r), Ranks: int64(j.per), Procs: int64(j.per), Workers: int64(j.per), CPUs: &cpus})
		}
		p.Ranks = append(p.Ranks, RankPhaseDoc{Rank: rank.Rank(r), LateNS: &j.late[r], GapNS: &j.gap[r]})
		d.Resources = append(d.Resources, ResourceDoc{
			Proc: rank.Proc(r), Host: j.host(r),
			Before: &Held{ListenDrops: &zero, SYNRetries: &zero}, After: &Held{ListenDrops: &j.drops[r], SYNRetries: &j.retries[r]},
		})
	}
	for a := range j.size {
		for b := range j.size {
			list := j.full[a][b]
			if a == b {
				continue
			}
			e := EdgeDoc{From: rank.Rank(a), To: rank.Rank(b), Planned: int64(len(list)), Established: int64(len(list)), Rounds: 1}
			var sum, most int64
			for _, ns := range list {
				sum, most = sum+ns, max(most, ns)
				if ns < 1e9 {
					j.syn = append(j.syn, ns/2)
					j.hello = append(j.hello, ns/2)
				}
			}
			e.SumNS, e.MaxNS = &sum, &most
			d.EdgeList = append(d.EdgeList, e)
		}
	}
	p.Steps = []StepDoc{histStep("connect", j.syn), histStep("establish", j.hello)}
	d.Phases = []PhaseDoc{p}
	return d
}

func histStep(name string, values []int64) StepDoc {
	var list indexList
	for _, ns := range values {
		if err := list.Record(ns); err != nil {
			panic(err)
		}
	}
	s := StepDoc{Step: name, Side: SideInitiator, Count: int64(len(values))}
	for _, b := range list.Buckets() {
		s.Hist = append(s.Hist, [2]int64{bucketUpper(b.Index), b.Count})
	}
	return s
}

// plants are the things that can be wrong. Each changes the job and says which
// causes name it: a kind, and the rank or host (the fix is judged elsewhere).
var plants = []struct {
	name  string
	plant func(j *plantedJob) (named func(Cause) bool)
}{
	{"slow rank", func(j *plantedJob) func(Cause) bool {
		r := j.rng.IntN(j.size)
		switch j.rng.IntN(3) {
		case 0:
			j.late[r] += 40_000_000 + j.rng.Int64N(400_000_000)
		case 1:
			j.gap[r] += 40_000_000 + j.rng.Int64N(400_000_000)
		case 2:
			j.scale(6, func(a, b int) bool { return a == r || b == r })
		}
		return namesRank(r, j.host(r), "straggler", "stall", "slow_rank", "slow_host")
	}},
	{"slow target", func(j *plantedJob) func(Cause) bool {
		r := j.rng.IntN(j.size)
		j.scale(4+6*j.rng.Float64(), func(_, b int) bool { return b == r })
		return namesRank(r, j.host(r), "slow_target")
	}},
	{"slow initiator", func(j *plantedJob) func(Cause) bool {
		r := j.rng.IntN(j.size)
		j.scale(4+6*j.rng.Float64(), func(a, _ int) bool { return a == r })
		return namesRank(r, j.host(r), "slow_initiator")
	}},
	{"slow edge", func(j *plantedJob) func(Cause) bool {
		from := j.rng.IntN(j.size)
		to := (from + 1 + j.rng.IntN(j.size-1)) % j.size
		j.scale(8+10*j.rng.Float64(), func(a, b int) bool { return a == from && b == to })
		want := fmt.Sprintf("connect: %d (%s) → %d (%s) is ", from, j.host(from), to, j.host(to))
		return func(c Cause) bool { return c.Kind == "slow_edge" && strings.HasPrefix(c.Evidence, want) }
	}},
	{"overflow", func(j *plantedJob) func(Cause) bool {
		r := j.rng.IntN(j.size)
		timer := synTimers[j.rng.IntN(len(synTimers))]
		var waiting int64
		for a := range j.size {
			for i := range j.full[a][r] {
				if j.rng.IntN(3) > 0 {
					continue
				}
				k := j.rng.IntN(2)
				at := timer.teeth()[k] + j.rng.Int64N(40_000_000)
				j.syn = append(j.syn, at)
				j.full[a][r][i] += at
				j.retries[a] += int64(k) + 1
				j.drops[r] += int64(k) + 1
				waiting++
			}
		}
		want := fmt.Sprintf("%s waited for SYN retransmissions", plural(waiting, "connect", "connects"))
		return func(c Cause) bool {
			return c.Kind == "drops" && *c.Rank == rank.Rank(r) && *c.Count == j.drops[r] && strings.Contains(c.Evidence, want) && strings.Contains(c.Fix, "--backlog")
		}
	}},
	{"starved CPU", func(j *plantedJob) func(Cause) bool {
		j.regroup(4)
		h := j.rng.IntN(j.size / j.per)
		for r := h * j.per; r < (h+1)*j.per; r++ {
			if r%j.per > 0 || j.rng.IntN(2) == 0 {
				j.gap[r] += 15_000_000 + j.rng.Int64N(150_000_000)
			}
		}
		return func(c Cause) bool { return c.Kind == "starved" && c.Host == j.host(h*j.per) }
	}},
	{"uneven start", func(j *plantedJob) func(Cause) bool {
		for r := range j.size {
			if r%2 == 0 || j.rng.IntN(3) == 0 {
				j.late[r] += 20_000_000 + j.rng.Int64N(300_000_000)
			}
		}
		return func(c Cause) bool { return c.Kind == "uneven" && c.Phase == "connect" }
	}},
}

// regroup puts at least n ranks on a host; the times within hosts stay as they are.
func (j *plantedJob) regroup(n int) {
	for j.per < n || j.size%j.per != 0 || j.size/j.per < 2 {
		j.per++
		if j.per > j.size/2 {
			j.per = j.size / 2
			for j.size%j.per != 0 {
				j.per--
			}
			return
		}
	}
}

func namesRank(r int, host string, kinds ...string) func(Cause) bool {
	return func(c Cause) bool {
		return slices.Contains(kinds, c.Kind) && c.Host == host && c.Rank != nil && *c.Rank == rank.Rank(r)
	}
}

// Twenty of each planted cause are named, and clean jobs are not accused; -v
// prints what was said of what.
func TestPlantedCausesAreNamed(t *testing.T) {
	const each, clean = 20, 200
	said := map[string]map[string]int{}
	count := func(row, kind string) {
		if said[row] == nil {
			said[row] = map[string]int{}
		}
		said[row][kind]++
	}
	wrong := 0
	for i, p := range plants {
		named := 0
		for k := range each {
			seed := uint64(1000*(i+1) + k)
			j := cleanJob(seed)
			is := p.plant(j)
			causes := Diagnose(j.document())
			if slices.ContainsFunc(causes, is) {
				named++
			} else {
				t.Logf("%s, seed %d: %d ranks, %d a host, %d connections: not named in %+v", p.name, seed, j.size, j.per, j.conns, causes)
			}
			for _, c := range causes {
				if is(c) {
					count(p.name, c.Kind)
				} else {
					count(p.name, "wrong "+c.Kind)
					wrong++
					t.Logf("%s, seed %d: beside it %s", p.name, seed, c.Evidence)
				}
			}
		}
		count(p.name, "jobs named")
		said[p.name]["jobs named"] = named
		if 100*named < 95*each {
			t.Errorf("%s: %d of %d named, want 95 %%", p.name, named, each)
		}
	}
	accused := 0
	for k := range clean {
		causes := Diagnose(cleanJob(uint64(50_000 + k)).document())
		for _, c := range causes {
			count("clean", c.Kind)
			t.Logf("clean, seed %d: %s", 50_000+k, c.Evidence)
		}
		if len(causes) > 0 {
			accused++
		}
	}
	count("clean", "jobs accused")
	said["clean"]["jobs accused"] = accused
	if 100*accused > 2*clean {
		t.Errorf("%d of %d clean jobs are accused, want at most 2 %%", accused, clean)
	}
	if 100*wrong > 5*each*len(plants) {
		t.Errorf("%d wrong causes beside the right ones in %d jobs", wrong, each*len(plants))
	}
	t.Log(confusion(said))
}

// confusion is the table of what was said (columns) of what was planted (rows).
func confusion(said map[string]map[string]int) string {
	columns := map[string]bool{}
	for _, kinds := range said {
		for kind := range kinds {
			columns[kind] = true
		}
	}
	var b strings.Builder
	order := slices.SortedFunc(maps.Keys(columns), func(x, y string) int {
		return cmp.Or(cmp.Compare(strings.Count(x, " "), strings.Count(y, " ")), cmp.Compare(x, y))
	})
	fmt.Fprintf(&b, "\n%-14s", "planted")
	for _, c := range order {
		fmt.Fprintf(&b, "  %s", c)
	}
	for _, row := range slices.Sorted(maps.Keys(said)) {
		fmt.Fprintf(&b, "\n%-14s", row)
		for _, c := range order {
			fmt.Fprintf(&b, "  %*d", len(c), said[row][c])
		}
	}
	return b.String()
}
