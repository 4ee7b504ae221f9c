package collect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rankstorm/rank"
)

// Finish completes the document: figures, resources, causes, exit; set Gossip
// and Progress before. What the
// document itself shows wins over a clean code: failed, dead or broken connections and
// leaks make it 1 (see Verdict), so use d.Exit.Code afterwards. Finish may be
// called once; later calls change the exit only.
func (d *Document) Finish(e Exit) {
	if b := d.build; b != nil {
		if d.RoundsRun == 0 { // a job that ended before its first round had a plan all the same
			if c, err := d.plan(d.Connections, 0); err == nil {
				d.Connections = c
			}
		}
		// These two are no slots of the schedule, but take time all the same.
		if g := d.Gossip; g != nil {
			d.Phases = append(d.Phases, outside("gather", g.GatherNS), outside("seal", g.SealNS))
		}
		slices.SortStableFunc(b.phases, func(x, y *phaseBuild) int { return cmp.Compare(x.seq, y.seq) })
		for _, p := range b.phases {
			d.Phases = append(d.Phases, p.finish(b.startNS))
			if n := len(p.missing); n > 0 {
				d.Warn(fmt.Sprintf("%s: figures of %s are missing (%s)", p.doc.Phase, plural(int64(n), "process", "processes"),
					rank.FormatRanks(slices.Collect(maps.Keys(p.missing)))))
			}
		}
		d.finishRanks()
		for _, proc := range slices.Sorted(maps.Keys(b.clocks)) {
			d.Clock = append(d.Clock, b.clocks[proc])
		}
		d.EdgeList = append(d.EdgeList, b.edges...)
		if len(b.edges) > 0 {
			d.EdgesMore = max(0, d.Edges-int64(len(b.edges)))
		}
		d.TargetSums = append(d.TargetSums, b.targets...)
		d.finishPauses()
		d.finishSlots()
		d.finishHeld()
		d.finishResources()
		for i := range b.errors {
			d.Errors = append(d.Errors, errorDoc(&b.errors[i]))
		}
		d.ErrorsMore = b.cut
		d.build = nil
		d.Causes = append(d.Causes, Diagnose(d)...)
	}
	if e.Code == 0 || e.Code == 1 && e.Cause == nil {
		if code, text := d.Verdict(); code != 0 {
			kind := kindNames[rank.KindFailed]
			e.Code, e.Cause, e.Text = code, &kind, text
		}
	}
	d.Exit = &e
}

func outside(phase string, wallNS int64) PhaseDoc {
	return PhaseDoc{Phase: phase, Slots: 1, WallNS: &wallNS, Steps: []StepDoc{}, Ranks: []RankPhaseDoc{}}
}

func (d *Document) finishRanks() {
	late, gap := map[rank.Rank]*int64{}, map[rank.Rank]*int64{}
	for _, p := range d.Phases {
		for _, r := range p.Ranks {
			late[r.Rank] = maxOf(late[r.Rank], r.LateNS)
			gap[r.Rank] = maxOf(gap[r.Rank], r.GapNS)
		}
	}
	for i := range d.Ranks {
		d.Ranks[i].LatenessNS, d.Ranks[i].GapNS = late[d.Ranks[i].Rank], gap[d.Ranks[i].Rank]
	}
}

func (d *Document) finishResources() {
	hosts := d.procHosts()
	procs := map[rank.Proc]bool{}
	b := d.build
	for _, m := range []map[rank.Proc]ProcResources{b.before, b.peak, b.after} {
		for p := range m {
			procs[p] = true
		}
	}
	for _, p := range slices.Sorted(maps.Keys(procs)) {
		d.Resources = append(d.Resources, ResourceDoc{Proc: p, Host: hosts[p], Before: held(b.before, p), Peak: held(b.peak, p), After: held(b.after, p)})
	}
	d.DeviceCounters = b.ports.finish(hosts)
	d.warnOfStrangers()
}

// warnOfStrangers tells how many requests targets turned away, and where most were.
func (d *Document) warnOfStrangers() {
	var foreign, repeated, most int64
	where := ""
	for _, r := range d.Resources {
		var f, p int64
		for _, h := range []*Held{r.Peak, r.After} {
			if h != nil {
				f, p = max(f, h.Foreign), max(p, h.Repeated)
			}
		}
		foreign, repeated = foreign+f, repeated+p
		if f+p > most {
			most, where = f+p, fmt.Sprintf("process %d (%s)", r.Proc, r.Host)
		}
	}
	if most > 0 {
		d.Warn(fmt.Sprintf("connection requests turned away by targets: %d not of this job or forged, %d repeated; most of them, %d, at %s",
			foreign, repeated, most, where))
	}
}

func held(m map[rank.Proc]ProcResources, p rank.Proc) *Held {
	r, ok := m[p]
	if !ok {
		return nil
	}
	known := func(v int64) *int64 {
		if v < 0 {
			return nil
		}
		return &v
	}
	out := &Held{
		FDs: r.FDs, ProcFDs: known(r.ProcFDs), Conns: r.Conns, Listeners: r.Listeners, Goroutines: known(r.Goroutines),
		RSSBytes: known(r.RSSBytes), ListenDrops: known(r.ListenDrops), SYNRetries: known(r.SYNRetries),
		Foreign: r.Foreign, Repeated: r.Repeated, Starved: r.Starved, Cramped: r.Cramped, FDLimit: known(r.FDLimit),
		TimeWait: known(r.TimeWait),
	}
	if r.PortLow > 0 && r.PortHigh >= r.PortLow {
		out.LocalPorts = &[2]int64{r.PortLow, r.PortHigh}
	}
	if h := r.RDMA; h != nil {
		out.IDs, out.QPs, out.CQs, out.MRs = known(h.IDs), known(h.QPs), known(h.CQs), known(h.MRs)
		out.KernelIDs, out.KernelQPs, out.KernelCQs, out.KernelMRs = known(h.KernelIDs), known(h.KernelQPs), known(h.KernelCQs), known(h.KernelMRs)
	}
	return out
}

func (p *phaseBuild) finish(startNS int64) PhaseDoc {
	doc := p.doc
	doc.Steps, doc.Ranks = []StepDoc{}, []RankPhaseDoc{}
	for _, s := range p.steps {
		if s.Total.Count == 0 && len(s.Failures) == 0 {
			continue
		}
		doc.Steps = append(doc.Steps, stepDoc(s, p.walls[[2]string{s.Step, s.Side}], startNS))
	}
	for _, r := range slices.Sorted(maps.Keys(p.ranks)) {
		doc.Ranks = append(doc.Ranks, p.ranks[r])
	}
	return doc
}

func stepDoc(s StepSum, wall, startNS int64) StepDoc {
	out := StepDoc{
		Step: s.Step, Side: s.Side, Count: s.Total.Count, Failures: map[string]int64{},
		Classes: map[string]MomentsDoc{}, Hist: [][2]int64{}, PerRank: []PerRankDoc{},
	}
	for cause, n := range s.Failures {
		out.Failures[cause] = n
		out.Failed += n
	}
	if m := s.Total; m.Count > 0 {
		out.SumNS, out.MinNS, out.MaxNS = &m.SumNS, &m.MinNS, &m.MaxNS
		out.MinEdge, out.MaxEdge = connDoc(m.MinEdge), connDoc(m.MaxEdge)
		if s.Side != SideTarget {
			out.WallNS = &wall
		}
	}
	for _, q := range []struct {
		q  Permille
		to **int64
	}{{P50, &out.P50NS}, {P90, &out.P90NS}, {P99, &out.P99NS}, {P999, &out.P999NS}} {
		if ns, ok := Quantile(s.Hist, q.q, s.Total.MinNS, s.Total.MaxNS); ok {
			*q.to = &ns
		}
	}
	for class, m := range s.Classes {
		if name, ok := classNames[class]; ok && m.Count > 0 {
			out.Classes[name] = MomentsDoc{
				Count: m.Count, SumNS: m.SumNS, MinNS: m.MinNS, MaxNS: m.MaxNS,
				MinEdge: connDoc(m.MinEdge), MaxEdge: connDoc(m.MaxEdge),
			}
		}
	}
	for _, b := range s.Hist {
		out.Hist = append(out.Hist, [2]int64{bucketUpper(b.Index), b.Count})
	}
	for _, r := range s.PerRank {
		one := PerRankDoc{Rank: r.Rank, Count: r.Count, Failed: r.Failed}
		if r.Count > 0 {
			one.SumNS, one.MinNS, one.MaxNS = &r.SumNS, &r.MinNS, &r.MaxNS
			one.MinEdge, one.MaxEdge = connDoc(r.MinEdge), connDoc(r.MaxEdge)
			begin, end := r.FirstBegin-startNS, r.LastEnd-startNS
			one.FirstBeginNS, one.LastEndNS = &begin, &end
		}
		out.PerRank = append(out.PerRank, one)
	}
	return out
}

var classNames = map[Class]string{ClassSameHost: "same_host", ClassOtherHost: "other_host"}

func connDoc(e EdgeConn) *ConnDoc {
	if e.To == rank.None {
		return &ConnDoc{From: e.From}
	}
	return &ConnDoc{From: e.From, To: &e.To, Conn: &e.Conn}
}

func maxOf(a, b *int64) *int64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

func sumOf(a, b *int64) *int64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	sum := *a + *b
	return &sum
}
