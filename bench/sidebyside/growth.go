package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"rankstorm/rendezvous"
)

// grown is what the growth of a job reads of a result document.
type grown struct {
	document
	Gossip struct {
		Members  int   `json:"members"`
		GatherNS int64 `json:"gather_ns"`
		SealNS   int64 `json:"seal_ns"`
	} `json:"gossip"`
	Control struct {
		Messages     int64 `json:"messages"`
		MostMessages int64 `json:"most_messages"`
		MostBytes    int64 `json:"most_bytes"`
	} `json:"control"`
}

// growth measures real processes on this machine at growing sizes and puts the
// model beside them: measured up to 256, modelled up to 100,000 on hosts of 8.
// The table goes to growth.dat, from which growth.gp draws the picture.
func growth() error {
	var out strings.Builder
	fmt.Fprintln(&out, "# processes hosts measured gather_ms seal_ms barrier_ms messages_per_process_and_slot most_messages most_bytes")
	rates := rendezvous.TypicalRates
	rates.CPUs = runtime.NumCPU()
	for _, n := range []int{8, 16, 32, 64, 128, 256} {
		path := filepath.Join(*dir, "result.json")
		if _, _, err := job("--spawn", fmt.Sprint(n), "--topology", "ring", "--rounds", "10"); err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var d grown
		if err := json.Unmarshal(b, &d); err != nil {
			return err
		}
		var barriers sample
		for _, b := range d.Barriers {
			if b.BarrierNS != nil {
				barriers = append(barriers, float64(*b.BarrierNS)/1e6)
			}
		}
		fmt.Fprintf(&out, "%d 1 1 %.2f %.2f %.3f %.2f %d %d\n", n, float64(d.Gossip.GatherNS)/1e6, float64(d.Gossip.SealNS)/1e6, barriers.median(),
			float64(d.Control.Messages)/float64(n)/float64(len(d.Barriers)), d.Control.MostMessages, d.Control.MostBytes)
		model(&out, n, n, rates)
	}
	for _, n := range []int{10, 100, 1000, 10_000, 100_000} {
		model(&out, n, 8, rates)
	}
	fmt.Print(out.String())
	return os.WriteFile(filepath.Join(*dir, "growth.dat"), []byte(out.String()), 0o644)
}

// model is the same row from the shape alone.
func model(out *strings.Builder, procs, perHost int, r rendezvous.Rates) {
	c := rendezvous.CostOf(rendezvous.Shape{Procs: procs, ProcsPerHost: perHost, TreeArity: 16, ProcsPerAgent: 64, AgentsAbove: rendezvous.DefaultAgentsAbove})
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	fmt.Fprintf(out, "%d %d 0 %.2f %.2f %.3f %.2f %d %d\n", procs, c.Hosts, ms(c.Gather(r)), ms(c.Seal(r)), ms(c.Barrier(r)),
		float64(c.SlotMessages)/float64(procs), 6*c.MostLinks, int64(procs)*rendezvous.SummaryBytesPerRank+int64(c.MostLinks)*rendezvous.SummaryBytesFixed)
}
