package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
)

func defaultArity() int { return phases.DefaultSpec().TreeArity }

func (a *app) planCommand() *cobra.Command {
	var p planFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print what a job would need, without opening a socket",
		Long: `plan prints edges, connections, descriptors, ports, a memory estimate and ideal
bounds of a job: for the ranks with the fewest, the median and the most
connections, and in all. Ranks fill invented hosts n0, n1, … in blocks.

  rankstorm plan --ranks 10000 --topology all_to_all
  rankstorm plan --ranks 64 --ranks-per-host 8 --topology rail --rank 3

Every flag can be given as RANKSTORM_… as well; flags win.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.env.apply("plan", cmd.Flags()); err != nil {
				return err
			}
			f, warnings, err := p.forecast(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			for _, warning := range warnings {
				fmt.Fprintf(a.stderr, "rankstorm: warning: %s\n", warning)
			}
			if p.json {
				return writeJSON(a.text, f)
			}
			return a.print(f.text())
		},
	}
	p.register(cmd.Flags())
	return cmd
}

// forecast checks the flags and computes.
func (p *planFlags) forecast(named func(flag string) bool) (f *forecast, warnings []string, err error) {
	switch {
	case p.ranks == 0 && !named("ranks"):
		return nil, nil, usagef("plan: how many ranks? for instance rankstorm plan --ranks 64")
	case p.ranks < 1:
		return nil, nil, usagef("plan: --ranks %d: give at least 1", p.ranks)
	case p.ranksPerHost < 1:
		return nil, nil, usagef("plan: --ranks-per-host %d: give at least 1", p.ranksPerHost)
	case p.ranksPerProc < 1 || p.ranks%p.ranksPerProc != 0:
		return nil, nil, usagef("plan: --ranks-per-proc %d: give a divisor of the %d ranks", p.ranksPerProc, p.ranks)
	case p.rank >= p.ranks:
		return nil, nil, usagef("plan: --rank %d: ranks are 0 to %d", p.rank, p.ranks-1)
	case named("list") && !named("rank"):
		return nil, nil, usagef("plan: --list belongs to --rank: name a rank")
	case p.list < 0:
		return nil, nil, usagef("plan: --list %d: give 0 or more", p.list)
	case p.threads < 1:
		return nil, nil, usagef("plan: -n/--threads %d: give at least 1", p.threads)
	}
	provider, ok := providers[p.transport]
	if !ok {
		return nil, nil, usagef("plan: --transport %q is not known: use %s", p.transport, strings.Join(providerNames(), " or "))
	}
	params, err := p.params("plan", named)
	if err != nil {
		return nil, nil, err
	}
	view := rank.NewLayout(p.ranks, p.ranksPerHost)
	t, err := rank.NewTopology(view, params)
	if err != nil {
		return nil, nil, inCommand("plan", err)
	}
	f, err = makeForecast(t, view, p, fdCost(provider(), p.threads))
	if err != nil {
		return nil, nil, inCommand("plan", err)
	}
	return f, doubts(t, params.Name, p.ranks, "--ranks"), nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// text prints the forecast, the same facts as its JSON.
func (f *forecast) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s · %s · %s · %s per rank\n\n", f.Topology, count(int64(f.Size), "rank"), count(int64(f.Hosts), "host"), count(int64(f.Threads), "thread"))
	pair := func(name, value, more string) {
		line := fmt.Sprintf("%-12s %15s", name, value)
		if more != "" {
			line += "   " + more
		}
		b.WriteString(line + "\n")
	}
	pair("processes", collect.FormatCount(int64(f.Procs)), count(int64(f.RanksPerProc), "rank")+" each")
	pair("hosts", collect.FormatCount(int64(f.Hosts)), "up to "+count(int64(f.RanksPerHost), "rank")+" each")
	pair("edges", collect.FormatCount(f.Edges), "")
	pair("connections", collect.FormatCount(f.Connections), collect.FormatCount(int64(f.ConnectionsPerEdge))+" per edge, "+f.Transport)
	pair("stages", collect.FormatCount(int64(f.Stages)), "")
	pair("roles", "", fmt.Sprintf("%s, %s, %s, %s idle",
		count(int64(f.Peers), "peer"), count(int64(f.Initiators), "initiator"), count(int64(f.Targets), "target"), collect.FormatCount(int64(f.Idle))))
	b.WriteString("\n")

	f.writeNeeds(&b)
	b.WriteString("\n")
	pair("process fds", collect.FormatCount(f.WorstProcessFDs), "worst: "+f.WorstProcessFDsFormula)
	pair("controller", collect.FormatCount(f.ControllerFDs), "more fds while gathering: one knock per process")
	pair("host ports", collect.FormatCount(f.PortsToOneListener), "at most, towards one listener: "+f.PortsFormula)
	if f.RoundsPerMin != nil {
		pair("rounds", collect.FormatCount(*f.RoundsPerMin), "a minute, at most, where ports are not reused: "+f.RoundsFormula)
	}
	pair("memory", "estimate", f.MemoryFormula)
	pair("ideal", rateText(f.IdealLineRates), "line rates of one rank: "+f.IdealFormula)
	pair("set-ups", collect.FormatCount(f.IdealSetups), "at the busiest rank: "+f.SetupsFormula)
	b.WriteString("\n")
	f.Control.write(pair)
	if f.Rank != nil {
		f.Rank.write(&b)
	}
	return b.String()
}

// writeNeeds is the table of what ranks need: one figure a row, so that it is
// no wider in a large job than a terminal.
func (f *forecast) writeNeeds(b *strings.Builder) {
	needs := []forecastNeed{f.Min, f.Median, f.Max, f.Total}
	tab := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "a rank has\tfewest\tmedian\tmost\tin all\t")
	row := func(name string, figure func(n forecastNeed) string) {
		fmt.Fprintf(tab, "%s\t", name)
		for _, n := range needs {
			fmt.Fprintf(tab, "%s\t", figure(n))
		}
		fmt.Fprintln(tab)
	}
	counts := func(name string, of func(n forecastNeed) int64) {
		row(name, func(n forecastNeed) string { return collect.FormatCount(of(n)) })
	}
	row("rank", func(n forecastNeed) string {
		if n.Rank < 0 {
			return "–"
		}
		return collect.FormatCount(int64(n.Rank))
	})
	counts("edges out", func(n forecastNeed) int64 { return n.OutEdges })
	counts("edges in", func(n forecastNeed) int64 { return n.InEdges })
	counts("out", func(n forecastNeed) int64 { return n.Out })
	counts("in", func(n forecastNeed) int64 { return n.In })
	counts("fds", func(n forecastNeed) int64 { return n.FDs })
	counts("local ports", func(n forecastNeed) int64 { return n.LocalPorts })
	row("memory", func(n forecastNeed) string { return collect.FormatBytes(n.MemoryBytes) })
	_ = tab.Flush() // a strings.Builder takes everything
}

func (r *rankForecast) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nrank %d (%s, local rank %d): %s, %s out, %s in, %s, %s\n", r.Rank, r.Host, r.LocalRank, r.Role,
		count(r.Out, "connection"), collect.FormatCount(r.In), count(r.FDs, "fd"), collect.FormatBytes(r.MemoryBytes))
	for _, e := range r.Plan {
		fmt.Fprintf(b, "  to rank %d (%s)  stage %d  weight %s\n", e.To, e.Host, e.Stage, strconv.FormatFloat(e.Weight, 'g', 6, 64))
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(b, "  and %s more (--list)\n", collect.FormatCount(r.LeftOut))
	}
}

// rateText prints whole rates like counts and others to 4 digits.
func rateText(rate float64) string {
	if rate == math.Trunc(rate) && rate < 1<<53 {
		return collect.FormatCount(int64(rate))
	}
	return strconv.FormatFloat(rate, 'g', 4, 64)
}

// count prints a number with its noun.
func count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return collect.FormatCount(n) + " " + noun
}
