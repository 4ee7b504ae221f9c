package main

import (
	"rankstorm/rank"
)

// Sizes behind the memory estimate, in bytes, measured on Linux 6.18, amd64, as
// differences between jobs of --spawn 2 held in the probe phase: resident size
// of a process and slab of the machine, -c 1 against -c 5000 (20,000 sockets),
// and one against 65 ranks in a process. It is an estimate for planning and is
// printed as one; the document of a run holds what was measured.
//
//	memory of a rank = (out + in) × (userBytes + kernelBytes) + endpointBytes
//	memory in all    = sum over the ranks + processes × processBytes
//
// userBytes: stamps, state and hello of one side. kernelBytes: one TCP socket
// with empty buffers (tcp_sock, inode, dentry, file, poll set entry).
// endpointBytes: buffers and stamps of a worker, listener, histograms in work.
const (
	userBytes     = 800
	kernelBytes   = 5 << 10
	endpointBytes = 600 << 10
	processBytes  = 15 << 20

	memoryFormula = "(out + in) × (800 B user + 5 KiB kernel) + 600 KiB per rank; in all also 15 MiB per process"
	processFDs    = "fds of its ranks + 24 + links of the control tree (parent and at most 2 × arity children)"
	portsFormula  = "max over targets of min(edges in, ranks per host) × connections per edge"
	roundsFormula = "28,232 local ports / host ports, as each rests for 60 s; as many a second with net.ipv4.tcp_tw_reuse (--spawn: by default)"
)

// forecast is what rankstorm plan prints; its JSON is the documented output of
// --json, with units last in the keys.
type forecast struct {
	Topology     string `json:"topology"`
	Transport    string `json:"transport"`
	Size         int    `json:"size"`
	Procs        int    `json:"procs"`
	RanksPerProc int    `json:"ranks_per_proc"`
	Hosts        int    `json:"hosts"`
	RanksPerHost int    `json:"ranks_per_host"`
	Threads      int    `json:"threads"`

	Edges              int64 `json:"edges"`
	ConnectionsPerEdge int   `json:"connections_per_edge"`
	Connections        int64 `json:"connections"`
	Stages             int   `json:"stages"`
	Initiators         int   `json:"initiators"` // ranks that only initiate
	Targets            int   `json:"targets"`    // ranks that are only reached
	Peers              int   `json:"peers"`      // both
	Idle               int   `json:"idle"`       // neither

	Min    forecastNeed `json:"min_rank"`
	Median forecastNeed `json:"median_rank"`
	Max    forecastNeed `json:"max_rank"`
	Total  forecastNeed `json:"total"`

	WorstProcessFDs        int64  `json:"worst_process_fds"`
	WorstProcessFDsFormula string `json:"worst_process_fds_formula"`
	ControllerFDs          int64  `json:"controller_more_fds"` // one per process that knocks
	PortsToOneListener     int64  `json:"ports_to_one_listener"`
	PortsFormula           string `json:"ports_to_one_listener_formula"`
	RoundsPerMin           *int64 `json:"rounds_by_ports_per_min"` // null: a round takes no port
	RoundsFormula          string `json:"rounds_by_ports_formula"`
	MemoryFormula          string `json:"memory_formula"`

	IdealLineRates float64 `json:"ideal_line_rates"`
	IdealFormula   string  `json:"ideal_formula"`
	IdealSetups    int64   `json:"ideal_setups_per_busiest_rank"`
	SetupsFormula  string  `json:"ideal_setups_formula"`

	Control controlForecast `json:"control_plane"`

	Rank *rankForecast `json:"rank,omitempty"`
}

// forecastNeed is one rank's need, or the sum over all.
type forecastNeed struct {
	Rank        rank.Rank `json:"rank"` // -1 in the total
	OutEdges    int64     `json:"out_edges"`
	InEdges     int64     `json:"in_edges"`
	Out         int64     `json:"out_connections"`
	In          int64     `json:"in_connections"`
	FDs         int64     `json:"fds"`
	LocalPorts  int64     `json:"local_ports"`
	MemoryBytes int64     `json:"memory_bytes"`
}

// rankForecast is the plan of one rank.
type rankForecast struct {
	forecastNeed
	Role      rank.Role  `json:"role"`
	Host      string     `json:"host"`
	LocalRank int        `json:"local_rank"`
	Plan      []planEdge `json:"plan"`
	LeftOut   int64      `json:"plan_left_out"` // edges after those listed
}

type planEdge struct {
	To     rank.Rank `json:"to"`
	Host   string    `json:"host"`
	Stage  int32     `json:"stage"`
	Weight float64   `json:"weight"`
}

// makeForecast works from degrees, which are closed forms; it never walks the
// edges of the job.
func makeForecast(t rank.Topology, view rank.View, p *planFlags, fds rank.FDCost) (*forecast, error) {
	needs, err := rank.NeedsOf(t, p.connections, fds)
	if err != nil {
		return nil, err
	}
	size := view.Size()
	f := &forecast{
		Topology: t.Name(), Transport: p.transport, Size: size, Procs: size / p.ranksPerProc, RanksPerProc: p.ranksPerProc,
		Hosts: (size-1)/p.ranksPerHost + 1, RanksPerHost: p.ranksPerHost, Threads: p.threads,
		Control: controlPlane(size/p.ranksPerProc, max(1, p.ranksPerHost/p.ranksPerProc), size),
		Edges:   t.Count(), ConnectionsPerEdge: p.connections, Connections: needs.Total.Out, Stages: needs.Stages,
		Min: needRow(needs.Least, 1), Median: needRow(needs.Median, 1), Max: needRow(needs.Most, 1),
		Total:         needRow(needs.Total, int64(size)),
		MemoryFormula: memoryFormula, PortsFormula: portsFormula, WorstProcessFDsFormula: processFDs,
		IdealSetups:   needs.Most.Connections(),
		SetupsFormula: "connect takes at least this / set-ups per second of one rank, both sides counted",
	}
	for r := range size {
		switch rank.RoleOf(t, rank.Rank(r)) {
		case rank.Idle:
			f.Idle++
		case rank.Initiator:
			f.Initiators++
		case rank.Target:
			f.Targets++
		case rank.Peer:
			f.Peers++
		}
	}
	f.Total.MemoryBytes += int64(f.Procs) * processBytes
	worst, err := worstNeed(t, size, job{procs: f.Procs, k: p.ranksPerProc, at: evenly(p.ranksPerHost, nil), connections: p.connections, arity: defaultArity()}, fds)
	if err != nil {
		return nil, err
	}
	f.WorstProcessFDs, f.ControllerFDs, f.PortsToOneListener = worst.fds, int64(f.Procs), worst.ports
	f.RoundsFormula = roundsFormula
	if worst.ports > 0 && p.transport == "tcp" {
		perMin := defaultPorts / worst.ports * 60 / timeWait
		f.RoundsPerMin = &perMin
	}
	f.IdealLineRates, f.IdealFormula = rank.Bound(t)
	if p.rank != unset {
		if f.Rank, err = forecastRank(t, view, rank.Rank(p.rank), p, fds); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// needRow adds the memory estimate for that many endpoints.
func needRow(n rank.Need, endpoints int64) forecastNeed {
	return forecastNeed{
		Rank: n.Rank, OutEdges: n.OutEdges, InEdges: n.InEdges, Out: n.Out, In: n.In, FDs: n.FDs, LocalPorts: n.Ports,
		MemoryBytes: n.Connections()*(userBytes+kernelBytes) + endpoints*endpointBytes,
	}
}

func forecastRank(t rank.Topology, view rank.View, r rank.Rank, p *planFlags, fds rank.FDCost) (*rankForecast, error) {
	need, err := rank.NeedOf(t, r, p.connections, fds)
	if err != nil {
		return nil, err
	}
	f := &rankForecast{
		forecastNeed: needRow(need, 1), Role: rank.RoleOf(t, r), Host: view.HostOf(r), LocalRank: view.LocalRank(r),
		Plan: []planEdge{},
	}
	for e := range t.Edges(r) {
		if len(f.Plan) == p.list {
			break
		}
		f.Plan = append(f.Plan, planEdge{To: e.To, Host: view.HostOf(e.To), Stage: e.Stage, Weight: e.Weight})
	}
	f.LeftOut = need.OutEdges - int64(len(f.Plan))
	return f, nil
}
