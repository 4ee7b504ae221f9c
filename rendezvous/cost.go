package rendezvous

import (
	"net/netip"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/rank"
)

// Shape of a job's control plane: what its cost follows from.
type Shape struct {
	Procs         int
	ProcsPerHost  int // ≥ 1; the last host may have fewer
	TreeArity     int // ≥ 1
	ProcsPerAgent int // ≥ 1
	AgentsAbove   int // processes above which one agent per host gossips
}

// Cost is what the control plane of such a job carries, from its shape alone.
// Messages count at both ends, as the result document does.
type Cost struct {
	Shape
	Hosts        int
	Members      int   // of the gossip
	Depth        int   // links from the root to the farthest process
	Wide         int   // of these between hosts
	RootLinks    int   // children of the root
	MostLinks    int   // children and parent of any process, at most
	RecordBytes  int64 // one process's row of the rank table
	TableBytes   int64 // Procs × RecordBytes: what every link carries at the seal
	SealBytes    int64 // TableBytes × (Procs - 1): over all links
	RootSeal     int64 // TableBytes × RootLinks: sent by the root
	SlotMessages int64 // of all processes in one slot: 6 per link, 2 ends = 12 × (Procs - 1)
	RootMessages int64 // of the root in one slot: 6 × RootLinks
	tree         *tree
}

// perLink are the phase messages of one slot on one link: prepare, go and
// collect down, ready, done and summary up.
const perLink = 6

// SummaryBytesPerRank is what one rank adds to the figures that reach the root
// in the richest slot (connect), measured: about 500 bytes.
const SummaryBytesPerRank = 500

// SummaryBytesFixed is what a summary takes whatever its ranks, per link.
const SummaryBytesFixed = 1500

// CostOf works out the cost of a shape. O(Procs).
func CostOf(s Shape) Cost {
	s.Procs, s.ProcsPerHost = max(s.Procs, 1), max(s.ProcsPerHost, 1)
	hosts := make([]int32, s.Procs)
	for p := range hosts {
		hosts[p] = int32(p / s.ProcsPerHost)
	}
	t := newTree(hosts, s.TreeArity)
	c := Cost{Shape: s, tree: t, Hosts: int(hosts[s.Procs-1]) + 1, RecordBytes: recordBytes()}
	c.Members = s.Procs
	if s.Procs > s.AgentsAbove {
		last := s.Procs - (c.Hosts-1)*s.ProcsPerHost
		agents := func(procs int) int { return (procs + max(s.ProcsPerAgent, 1) - 1) / max(s.ProcsPerAgent, 1) }
		c.Members = (c.Hosts-1)*agents(s.ProcsPerHost) + agents(last)
	}
	wide := make([]int, s.Procs)
	for p := range rank.Proc(s.Procs) {
		links := len(t.children(p))
		if up := t.parents[p]; up >= 0 {
			links++
			wide[p] = wide[up]
			if hosts[up] != hosts[p] {
				wide[p]++
			}
		} else {
			c.RootLinks = links
		}
		c.MostLinks = max(c.MostLinks, links)
		c.Depth = max(c.Depth, int(t.depths[p]))
		c.Wide = max(c.Wide, wide[p])
	}
	n := int64(s.Procs)
	c.TableBytes = n * c.RecordBytes
	c.SealBytes = c.TableBytes * (n - 1)
	c.RootSeal = c.TableBytes * int64(c.RootLinks)
	c.SlotMessages = 2 * perLink * (n - 1)
	c.RootMessages = perLink * int64(c.RootLinks)
	return c
}

// recordBytes is the size of a typical record on the wire.
func recordBytes() int64 {
	b, err := msgpack.Marshal(&rank.Record{
		Host: "node0123", PID: 123456, Start: 1 << 32, LauncherProc: 1234, LocalIndex: 12, CPUs: 64, BuildID: strings.Repeat("b", 40),
		Control: []netip.AddrPort{netip.MustParseAddrPort("10.100.100.100:40000")},
	})
	if err != nil {
		return 0 // plain structs always encode
	}
	return int64(len(b))
}

// Rates of the machines that a Cost is turned into time with.
type Rates struct {
	Hop     time.Duration // one way between two hosts
	Message time.Duration // CPU of one message at one end: call, wake-up, decision
	Knock   time.Duration // CPU of one knock, or of one link at the seal, at one end, handshake included
	Start   time.Duration // CPU of one process from its start to its knock
	CPUs    int           // of a host, ≥ 1
	Bytes   float64       // per second over one link
}

// TypicalRates are the rates of a small virtual machine of 2026 on a 10 Gbit/s
// Ethernet, for a job with a secret; docs/SCALING.md says how they were found.
var TypicalRates = Rates{
	Hop: 50 * time.Microsecond, Message: 25 * time.Microsecond, Knock: 1200 * time.Microsecond, Start: 8 * time.Millisecond, CPUs: 2, Bytes: 1e9,
}

// Barrier is the time from the last process in to the last process out:
//
//	Depth × Message × 2 + Wide × Hop              the last ready on its way to the root
//	+ max over processes of (go reaches it)       each sender serves its children in turn
//
// but at least the CPU that one host needs for its own share,
// 2 × messages of the host × Message / CPUs. The lead that is added on purpose
// before the start is not in it.
func (c Cost) Barrier(r Rates) time.Duration {
	up := time.Duration(2*c.Depth)*r.Message + time.Duration(c.Wide)*r.Hop
	down := c.spread(r, r.Message)
	onHost := min(c.ProcsPerHost, c.Procs)
	busy := time.Duration(2*2*max(onHost-1, 0)) * r.Message / time.Duration(max(r.CPUs, 1))
	return max(up+down, busy)
}

// Seal is the time from the controller having all records to everybody having
// the table acknowledged: the table goes down (each sender serves its children
// in turn, dialling takes a round trip), acknowledgements come up.
func (c Cost) Seal(r Rates) time.Duration {
	table := time.Duration(float64(c.TableBytes) / max(r.Bytes, 1) * 1e9)
	down := c.spread(r, r.Knock+table) + time.Duration(3*c.Wide)*r.Hop
	up := time.Duration(2*c.Depth)*r.Message + time.Duration(c.Wide)*r.Hop
	onHost := min(c.ProcsPerHost, c.Procs)
	busy := time.Duration(2*max(onHost-1, 0)) * r.Knock / time.Duration(max(r.CPUs, 1))
	return max(down+up, busy)
}

// Gather is the least time from the start of all processes to their records at
// the controller: Procs × Knock / CPUs of the controller, or what a host needs
// to start its processes, procs on it × Start / CPUs, whichever is longer.
func (c Cost) Gather(r Rates) time.Duration {
	cpus := time.Duration(max(r.CPUs, 1))
	return max(time.Duration(c.Procs)*r.Knock, time.Duration(min(c.ProcsPerHost, c.Procs))*r.Start) / cpus
}

// spread is when the last process has what the root sends at 0: a sender needs
// each per child, one after the other; a receiver needs Message to wake up.
func (c Cost) spread(r Rates, each time.Duration) time.Duration {
	at := make([]time.Duration, c.Procs)
	var last time.Duration
	for p := range rank.Proc(c.Procs) { // parents have lower numbers
		for i, child := range c.tree.children(p) {
			at[child] = at[p] + time.Duration(i+1)*each + r.Message
			if int(p)/c.ProcsPerHost != int(child)/c.ProcsPerHost {
				at[child] += r.Hop
			}
			last = max(last, at[child])
		}
	}
	return last
}
