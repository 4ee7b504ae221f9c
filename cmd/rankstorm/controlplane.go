package main

import (
	"fmt"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rendezvous"
)

// controlForecast is what the control plane of the job will carry and take;
// the seconds are estimates from rendezvous.TypicalRates.
type controlForecast struct {
	GossipMembers     int    `json:"gossip_members"`
	TreeDepth         int    `json:"tree_depth"`
	RootLinks         int    `json:"root_links"`
	MessagesPerPhase  int64  `json:"messages_per_phase"`
	RootMessages      int64  `json:"root_messages_per_phase"`
	RootSummaryBytes  int64  `json:"root_summary_bytes_per_phase"`
	TableBytes        int64  `json:"table_bytes"`
	RootSealBytes     int64  `json:"root_seal_bytes"`
	EstimateGatherNS  int64  `json:"estimate_gather_ns"`
	EstimateSealNS    int64  `json:"estimate_seal_ns"`
	EstimateBarrierNS int64  `json:"estimate_barrier_ns"`
	EstimateRates     string `json:"estimate_rates"`
}

func controlPlane(procs, procsPerHost, size int) controlForecast {
	d := phases.DefaultSpec()
	c := rendezvous.CostOf(rendezvous.Shape{
		Procs: procs, ProcsPerHost: procsPerHost, TreeArity: d.TreeArity, ProcsPerAgent: d.ProcsPerAgent, AgentsAbove: rendezvous.DefaultAgentsAbove,
	})
	r := rendezvous.TypicalRates
	return controlForecast{
		GossipMembers: c.Members, TreeDepth: c.Depth, RootLinks: c.RootLinks,
		MessagesPerPhase: c.SlotMessages, RootMessages: c.RootMessages, RootSummaryBytes: int64(size) * rendezvous.SummaryBytesPerRank,
		TableBytes: c.TableBytes, RootSealBytes: c.RootSeal,
		EstimateGatherNS: int64(c.Gather(r)), EstimateSealNS: int64(c.Seal(r)), EstimateBarrierNS: int64(c.Barrier(r)),
		EstimateRates: fmt.Sprintf("%s a hop, %s a message, %s a knock, %s a start, %d CPUs a host, %.0f MB/s a link",
			collect.FormatDuration(int64(r.Hop)), collect.FormatDuration(int64(r.Message)), collect.FormatDuration(int64(r.Knock)), collect.FormatDuration(int64(r.Start)), r.CPUs, r.Bytes/1e6),
	}
}

// write adds the control plane's lines.
func (c controlForecast) write(pair func(name, value, more string)) {
	pair("gossip", collect.FormatCount(int64(c.GossipMembers)), "members: every process up to 16, above one agent per host and 64 processes")
	pair("tree", collect.FormatCount(int64(c.TreeDepth)), fmt.Sprintf("links deep, %d at the root", c.RootLinks))
	pair("messages", collect.FormatCount(c.MessagesPerPhase), fmt.Sprintf("per phase, %s of them at the root, with up to %s of figures", collect.FormatCount(c.RootMessages), collect.FormatBytes(c.RootSummaryBytes)))
	pair("rank table", collect.FormatBytes(c.TableBytes), fmt.Sprintf("over every link once, %s from the root", collect.FormatBytes(c.RootSealBytes)))
	pair("gather", collect.FormatDuration(c.EstimateGatherNS), "estimate: processes × a knock, or processes of a host × a start, / CPUs")
	pair("seal", collect.FormatDuration(c.EstimateSealNS), "estimate: table down the tree, acknowledgements up")
	pair("barrier", collect.FormatDuration(c.EstimateBarrierNS), "estimate: last in → last out ("+c.EstimateRates+")")
}
