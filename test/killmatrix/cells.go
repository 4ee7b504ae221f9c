package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// cell is one job to which one thing happens.
type cell struct {
	mode   string // hand, spawn or hosts (by hand, over several hosts)
	fault  string
	victim string // role
	phase  string

	// Of a random cell; its phase is "random".
	seed   uint64
	number int           // of the victim
	moment time.Duration // after the start of the job
}

func (c cell) String() string {
	if c.phase == anyMoment {
		return fmt.Sprintf("%s/%s/process-%d/at-%v/seed-%d", c.mode, c.fault, c.number, c.moment, c.seed)
	}
	return fmt.Sprintf("%s/%s/%s/%s", c.mode, c.fault, c.victim, c.phase)
}

const anyMoment = "random"

var (
	phaseTokens = []string{
		"gather", "seal", "clock", "create", "bind", "listen", "publish", "resolve", "qp", "connect", "probe", "disconnect", "destroy",
	}
	victims = []string{"controller", "root", "interior", "leaf", "agent", "parent"}
	faults  = []string{"kill", "stop", "fds", "cut", "drop", "loss", "rate", "crash"}
)

// linkFaults happen to the link of a host.
var linkFaults = map[string]bool{"cut": true, "drop": true, "loss": true, "rate": true, "crash": true}

// wayOf is how the job of a cell is started; why says, if it is "", why the
// cell makes no sense. start is hand or spawn.
func wayOf(start, fault, victim string) (mode, why string) {
	switch {
	case start == "hand" && victim == "parent":
		return "", "who starts processes by hand is none of the job's: no spawn parent"
	case start == "spawn" && linkFaults[fault]:
		return "", "the processes of --spawn talk over the loopback of one host: no link to cut"
	case start == "spawn" && victim == "controller":
		return "", "with --spawn the controller is process 0: the same process as the root"
	case linkFaults[fault]:
		return "hosts", ""
	}
	return start, ""
}

// cells is the whole matrix.
func cells() (all []cell) {
	each(func(start, fault, victim, phase string) {
		if mode, _ := wayOf(start, fault, victim); mode != "" {
			all = append(all, cell{mode: mode, fault: fault, victim: victim, phase: phase})
		}
	})
	return all
}

func each(do func(start, fault, victim, phase string)) {
	for _, start := range []string{"hand", "spawn"} {
		for _, f := range faults {
			for _, v := range victims {
				for _, p := range phaseTokens {
					do(start, f, v, p)
				}
			}
		}
	}
}

// printLegend says what the words mean, and how many cells there are not.
func printLegend(chosen int) {
	fmt.Print(`faults   kill: kill -9 · stop: SIGSTOP, continued when the job is over · fds: no new file descriptor in later rounds
         cut: link cut, the host sees it · drop: link cut, unseen · loss: 30 % of the frames lost each way
         rate: what the host receives bound to 200 kbit/s · crash: link cut unseen and all processes killed
victims  of cut, drop, loss, rate and crash: the host of that process; agent: the gossip member that speaks for others
starts   hand: every process by itself on this host · spawn: --spawn · hosts: by hand, over 4 network namespaces
`)
	total, counts, order := 0, map[string]int{}, []string{}
	each(func(start, fault, victim, _ string) {
		total++
		if _, why := wayOf(start, fault, victim); why != "" {
			if counts[why] == 0 {
				order = append(order, why)
			}
			counts[why]++
		}
	})
	fmt.Printf("cells    %d faults × %d victims × %d phases × 2 starts = %d", len(faults), len(victims), len(phaseTokens), total)
	for _, why := range order {
		fmt.Printf("\n         −%d: %s", counts[why], why)
		total -= counts[why]
	}
	fmt.Printf("\n         = %d, of which %d are run now\n\n", total, chosen)
}

// quick is one cell of each kind that a change is likely to break.
var quick = []string{
	"hand/kill/controller/gather", "hand/kill/root/connect", "hand/kill/interior/connect", "hand/stop/root/probe", "hand/stop/leaf/publish",
	"hand/fds/interior/connect", "hand/kill/agent/seal", "spawn/kill/root/create", "spawn/kill/parent/connect", "spawn/stop/interior/disconnect",
	"spawn/kill/leaf/gather", "hosts/drop/root/connect", "hosts/cut/interior/connect",
}

// drawn are the faults that end a job at any moment; bad links do not.
var drawn = []string{"kill", "stop", "fds", "cut", "drop", "crash"}

// randomCells draws victim, fault and moment; the same seed draws the same.
func randomCells(n int, first uint64) (list []cell) {
	for seed := first; seed < first+uint64(n); seed++ {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := cell{mode: []string{"hand", "spawn"}[rng.IntN(2)], fault: drawn[rng.IntN(len(drawn))], victim: anyMoment, phase: anyMoment, seed: seed}
		c.number = rng.IntN(handProcs)
		if linkFaults[c.fault] {
			c.mode, c.number = "hosts", rng.IntN(hostCount*perHost)
		}
		most := 2500 * time.Millisecond
		if rng.IntN(2) == 0 { // half of the moments fall where the job forms
			most = 600 * time.Millisecond
		}
		c.moment = time.Duration(rng.Int64N(int64(most))).Round(time.Millisecond)
		list = append(list, c)
	}
	return list
}
