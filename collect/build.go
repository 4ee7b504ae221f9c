package collect

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"rankstorm/rank"
)

// Meta is what a document says about the job as a whole.
type Meta struct {
	RunID      string
	Digest     string // of the rank table, hex
	JobKey     string
	StartedUTC string // RFC 3339
	StartNS    int64  // start of the run on the root's clock: moments count from here
	Version    string
	BuildID    string
	Args       []string
	Settings   []rank.KV
	Limits     []Limit

	Transport   string
	Connect     string // shape as the flag spells it
	Poll        string // wait policy, "" if there is none
	Topology    rank.Params
	Params      []rank.KV // the topology's parameters as text
	Stages      int
	Edges       int64
	Connections int // per edge
	Rounds      int // asked for, 0 = without end
	// RoundConnections, per edge, of a round where rounds differ; nil: Connections in all of them.
	RoundConnections func(round int32) int
	Threads          int // workers per rank; below 1 counts as 1

	Procs        int
	RanksPerProc int
	Ranks        []RankMeta // ascending, all of them
	Addresses    []AddressDoc
}

// RankMeta places one rank.
type RankMeta struct {
	Rank      rank.Rank
	Proc      rank.Proc
	Host      string
	PID       int
	LocalRank int
	CPUs      int // of the host, 0 unknown
}

// Limit is one limit of the root process, for instance "open_files".
type Limit struct {
	Name  string
	Value int64
}

// builder is the state that AddSlot keeps until Finish.
type builder struct {
	startNS int64
	perEdge func(round int32) int
	phases  []*phaseBuild // in order of their first slot
	clocks  map[rank.Proc]ProcClock
	edges   []EdgeDoc // ascending
	before  map[rank.Proc]ProcResources
	peak    map[rank.Proc]ProcResources
	after   map[rank.Proc]ProcResources
	errors  []rank.Error
	cut     int64
	pauses  []PauseDoc  // the longest first
	targets []TargetSum // ascending

	barriers    thinned[BarrierDoc]
	rounds      thinned[RoundDoc]
	took, skew  figures // of all barriers
	lastBarrier *BarrierDoc
	held        thinned[RoundHeldDoc]
	ports       portBuild
}

// phaseBuild merges the slots of one phase.
type phaseBuild struct {
	doc   PhaseDoc
	seq   int32
	steps []StepSum
	walls map[[2]string]int64 // step, side → Σ over slots
	ranks map[rank.Rank]RankPhaseDoc
	// missing processes, as rank.Rank so that FormatRanks prints them
	missing map[rank.Rank]bool
}

// NewDocument begins a document.
func NewDocument(m Meta) *Document {
	d := &Document{
		Schema: SchemaName, RunID: m.RunID, Digest: m.Digest, JobKey: m.JobKey, StartedUTC: m.StartedUTC,
		Version: m.Version, BuildID: m.BuildID,
		Args: append([]string{}, m.Args...), Settings: toMap(m.Settings), Limits: map[string]int64{},
		Transport: m.Transport, Connect: m.Connect,
		Topology: Topology{Name: m.Topology.Name, Stages: int64(m.Stages), Params: toMap(m.Params)},
		Size:     int64(m.Procs) * int64(m.RanksPerProc), Procs: int64(m.Procs), RanksPerProc: int64(m.RanksPerProc),
		VirtualRanks: m.RanksPerProc > 1,
		Edges:        m.Edges, ConnsPerEdge: int64(m.Connections), RoundsAsked: int64(m.Rounds),
		Hosts: []Host{}, Clock: []ProcClock{}, Barriers: []BarrierDoc{}, RoundsHeld: []RoundHeldDoc{}, Ranks: []RankDoc{},
		Addresses: append([]AddressDoc{}, m.Addresses...), Phases: []PhaseDoc{},
		Rounds: []RoundDoc{}, EdgeList: []EdgeDoc{}, TargetSums: []TargetSum{}, Resources: []ResourceDoc{}, Errors: []ErrorDoc{},
		Causes: []Cause{}, Pauses: []PauseDoc{}, Warnings: []string{}, Losses: []Loss{},
		build: &builder{
			startNS: m.StartNS, perEdge: m.RoundConnections, clocks: map[rank.Proc]ProcClock{},
			before: map[rank.Proc]ProcResources{}, peak: map[rank.Proc]ProcResources{}, after: map[rank.Proc]ProcResources{},
			barriers: thinned[BarrierDoc]{most: MaxBarriers}, rounds: thinned[RoundDoc]{most: MaxRounds}, held: thinned[RoundHeldDoc]{most: MaxRoundsHeld},
		},
	}
	if m.RoundConnections == nil {
		d.build.perEdge = func(int32) int { return m.Connections }
	}
	if m.Poll != "" {
		d.Poll = &m.Poll
	}
	for _, l := range m.Limits {
		d.Limits[l.Name] = l.Value
	}
	index := map[string]int{}
	lastProc := map[string]rank.Proc{}
	for _, r := range m.Ranks {
		d.Ranks = append(d.Ranks, RankDoc{Rank: r.Rank, Proc: r.Proc, Host: r.Host, PID: int64(r.PID), LocalRank: int64(r.LocalRank)})
		i, ok := index[r.Host]
		if !ok {
			i = len(d.Hosts)
			index[r.Host] = i
			d.Hosts = append(d.Hosts, Host{Host: r.Host})
			if cpus := int64(r.CPUs); cpus > 0 {
				d.Hosts[i].CPUs = &cpus
			}
		}
		d.Hosts[i].Ranks++
		d.Hosts[i].Workers += int64(max(m.Threads, 1))
		if last, seen := lastProc[r.Host]; !seen || last != r.Proc {
			d.Hosts[i].Procs++
			lastProc[r.Host] = r.Proc
		}
	}
	return d
}

func toMap(kv []rank.KV) map[string]string {
	m := make(map[string]string, len(kv))
	for _, e := range kv {
		m[e.Key] = e.Value
	}
	return m
}

// Warn adds a line that the reader must see beside the figures.
func (d *Document) Warn(text string) {
	if len(d.Warnings) < MaxWarnings && !slices.Contains(d.Warnings, text) {
		d.Warnings = append(d.Warnings, text)
	}
}

// AddSlot merges the summary of one slot of the schedule. Slots of one phase
// (rounds, stages) are merged. Call it once per slot, in the order of the
// schedule. A summary that contradicts what is there is an error and leaves its
// figures out.
func (d *Document) AddSlot(s *Summary) error {
	b := d.build
	if b == nil {
		return fmt.Errorf("add slot %d (%s): the document is finished", s.Seq, s.Phase)
	}
	conns, err := d.Connections.plus(s.Conns)
	if err == nil {
		conns, err = d.plan(conns, s.Round)
	}
	if err != nil {
		return fmt.Errorf("add slot %d (%s): %w", s.Seq, s.Phase, err)
	}
	i := slices.IndexFunc(b.phases, func(p *phaseBuild) bool { return p.doc.Phase == s.Phase })
	var p *phaseBuild
	if i < 0 {
		round, stage := s.Round, s.Stage
		p = &phaseBuild{
			seq: s.Seq, doc: PhaseDoc{Phase: s.Phase, Round: &round, Stage: &stage},
			walls: map[[2]string]int64{}, ranks: map[rank.Rank]RankPhaseDoc{}, missing: map[rank.Rank]bool{},
		}
	} else {
		p = b.phases[i]
	}
	steps, err := mergeSteps(p.steps, s.Steps, true)
	if err != nil {
		return fmt.Errorf("add slot %d (%s): %w", s.Seq, s.Phase, err)
	}
	targets, err := mergeTargets(b.targets, s.Targets)
	if err != nil {
		return fmt.Errorf("add slot %d (%s): %w", s.Seq, s.Phase, err)
	}
	if i < 0 {
		b.phases = append(b.phases, p)
	}
	p.steps = steps
	b.targets = targets
	d.Connections = conns
	p.add(s, b.startNS)
	for i := range d.Procs {
		if w := i / 64; w >= int64(len(s.Covers)) || s.Covers[w]>>(i%64)&1 == 0 {
			p.missing[rank.Rank(i)] = true
		}
	}
	d.addBarrier(s)
	d.addRound(s)
	d.Control = d.Control.plus(s.Control)
	for _, c := range s.Clocks {
		b.clocks[c.Proc] = c
	}
	b.addEdges(s.Edges)
	b.addResources(s.Resources)
	b.ports.add(s)
	d.RoundsRun = max(d.RoundsRun, int64(s.Round)+1)
	d.addHeld(s)
	d.addPauses(s)
	var cut int64
	b.errors, cut = capErrors(append(b.errors, s.Errors...))
	b.cut += cut + s.ErrorsMore
	return nil
}

// plan adds what the rounds ask for that begin with this one: all of the job's connections, also those of processes that
// never said what became of theirs.
func (d *Document) plan(c Conns, round int32) (Conns, error) {
	for begun := d.RoundsRun; begun <= int64(round); begun++ {
		perEdge := int64(d.build.perEdge(int32(begun)))
		if perEdge > 0 && d.Edges > (math.MaxInt64-c.Planned)/perEdge {
			return c, errors.New("the number of connections overflows")
		}
		c.Planned += d.Edges * perEdge
	}
	return c, nil
}

func (p *phaseBuild) add(s *Summary, startNS int64) {
	if p.doc.Round != nil && *p.doc.Round != s.Round {
		p.doc.Round = nil
	}
	if p.doc.Stage != nil && *p.doc.Stage != s.Stage {
		p.doc.Stage = nil
	}
	p.doc.Slots++
	p.doc.Broken += s.Conns.Broken
	p.seq = min(p.seq, s.Seq)
	if began, wall, ok := s.span(); ok {
		began -= startNS
		if p.doc.BeganNS == nil || began < *p.doc.BeganNS {
			p.doc.BeganNS = &began
		}
		if p.doc.WallNS != nil {
			wall += *p.doc.WallNS
		}
		p.doc.WallNS = &wall
	}
	if p.doc.BoundNS == nil || *p.doc.BoundNS < s.BoundNS {
		bound := s.BoundNS
		p.doc.BoundNS = &bound
	}
	for _, st := range s.Steps {
		if st.Total.Count > 0 {
			p.walls[[2]string{st.Step, st.Side}] += st.LastEnd - st.FirstBegin
		}
	}
	for _, r := range s.Ranks {
		one := RankPhaseDoc{Rank: r.Rank}
		if r.GapNS >= 0 {
			gap := r.GapNS
			one.GapNS = &gap
			if r.GapWaitNS >= 0 && r.GapRunNS >= 0 {
				wait, run := r.GapWaitNS, r.GapRunNS
				one.GapWaitNS, one.GapRunNS = &wait, &run
			}
		}
		if r.ended() {
			busy := r.EndedNS - r.BeganNS
			one.BusyNS = &busy
		}
		if s.Barrier.AtNS != 0 && r.BeganNS != 0 {
			late := r.BeganNS - s.Barrier.AtNS
			one.LateNS = &late
		}
		if old, ok := p.ranks[r.Rank]; ok {
			one.LateNS, one.BusyNS = maxOf(one.LateNS, old.LateNS), maxOf(one.BusyNS, old.BusyNS)
			if old.GapNS != nil && (one.GapNS == nil || *old.GapNS >= *one.GapNS) {
				one.GapNS, one.GapWaitNS, one.GapRunNS = old.GapNS, old.GapWaitNS, old.GapRunNS
			}
		}
		p.ranks[r.Rank] = one
	}
}

// ended says that the rank began the slot and came to its end.
func (r RankPhase) ended() bool { return r.BeganNS != 0 && r.EndedNS >= r.BeganNS }

// span is when the first rank began and how long until the last one ended; ok
// is false if no rank did both.
func (s *Summary) span() (beganNS, wallNS int64, ok bool) {
	var ended int64
	for _, r := range s.Ranks {
		if !r.ended() {
			continue
		}
		if !ok || r.BeganNS < beganNS {
			beganNS = r.BeganNS
		}
		if !ok || r.EndedNS > ended {
			ended = r.EndedNS
		}
		ok = true
	}
	return beganNS, ended - beganNS, ok
}

func (b *builder) addEdges(edges []EdgeSum) {
	if len(edges) == 0 {
		return
	}
	out := make([]EdgeDoc, 0, max(len(b.edges), len(edges)))
	old := b.edges
	key := func(e EdgeDoc) EdgeSum { return EdgeSum{From: e.From, To: e.To, Stage: e.Stage} }
	for _, e := range edges {
		for len(old) > 0 && key(old[0]).compare(e) < 0 {
			out, old = append(out, old[0]), old[1:]
		}
		one := EdgeDoc{
			From: e.From, To: e.To, Stage: e.Stage, Weight: e.Weight, Planned: e.Planned,
			Established: e.Established, Failed: e.Failed, Broken: e.Broken, Rounds: 1,
		}
		if e.Established > 0 {
			one.SumNS, one.MaxNS = &e.SumNS, &e.MaxNS
		}
		if len(old) > 0 && key(old[0]).compare(e) == 0 {
			one.Planned += old[0].Planned
			one.Established += old[0].Established
			one.Failed += old[0].Failed
			one.Broken += old[0].Broken
			one.Rounds += old[0].Rounds
			one.MaxNS = maxOf(one.MaxNS, old[0].MaxNS)
			one.SumNS = sumOf(one.SumNS, old[0].SumNS)
			old = old[1:]
		}
		out = append(out, one)
	}
	b.edges = capEdgeDocs(append(out, old...))
}

// capEdgeDocs applies the cap of summaries to the edges of several slots.
func capEdgeDocs(edges []EdgeDoc) []EdgeDoc {
	if len(edges) <= EdgesFirst+EdgesWorst+EdgesSampled {
		return edges
	}
	sums := make([]EdgeSum, len(edges))
	for i, e := range edges {
		sums[i] = EdgeSum{From: e.From, To: e.To, Stage: e.Stage}
		if e.MaxNS != nil {
			sums[i].MaxNS = *e.MaxNS
		}
	}
	kept, _ := capEdges(sums)
	out := make([]EdgeDoc, 0, len(kept))
	for _, e := range edges {
		if len(kept) > 0 && e.From == kept[0].From && e.To == kept[0].To && e.Stage == kept[0].Stage {
			out, kept = append(out, e), kept[1:]
		}
	}
	return out
}

// addResources keeps the first "before", the largest "peak" of every figure and
// the last "after".
func (b *builder) addResources(list []ProcResources) {
	for _, r := range list {
		switch r.Moment {
		case "before":
			if _, seen := b.before[r.Proc]; !seen {
				b.before[r.Proc] = r
			}
		case "after":
			b.after[r.Proc] = r
		case "peak":
			if old, seen := b.peak[r.Proc]; seen {
				r.FDs, r.ProcFDs, r.Conns = max(r.FDs, old.FDs), max(r.ProcFDs, old.ProcFDs), max(r.Conns, old.Conns)
				r.Listeners, r.Goroutines = max(r.Listeners, old.Listeners), max(r.Goroutines, old.Goroutines)
				r.RSSBytes, r.ListenDrops = max(r.RSSBytes, old.RSSBytes), max(r.ListenDrops, old.ListenDrops)
				r.SYNRetries = max(r.SYNRetries, old.SYNRetries)
				r.Foreign, r.Repeated = max(r.Foreign, old.Foreign), max(r.Repeated, old.Repeated)
				r.Starved, r.Cramped = max(r.Starved, old.Starved), max(r.Cramped, old.Cramped)
				r.TimeWait = max(r.TimeWait, old.TimeWait)
			}
			b.peak[r.Proc] = r
		}
	}
}
