package collect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rankstorm/rank"
)

// Messages of the InfiniBand CM that a job's connections exchange, in the order
// of their life.
var cmMessages = []string{"req", "mra", "rej", "rep", "rtu", "dreq", "drep"}

// The timers of RDMA CM in Linux: a REQ is sent again, at most 15 times, after
// 2 × 2^(packet life time − 8) + 2^(20 − 8) ms (drivers/infiniband/core/cm.c). The packet
// life time of RoCE is 18 up to Linux 6.1 and 16 in later kernels.
var reqTimers = []retryTimer{{firstNS: 6_144e6, flat: 15, tries: 15}, {firstNS: 4_608e6, flat: 15, tries: 15}}

// cmTotals are counters by name, summed over phases.
type cmTotals map[string]int64

func sumPhases(phases []PortPhaseDoc) cmTotals {
	out := cmTotals{}
	for _, p := range phases {
		for name, n := range p.Counts {
			out[name] += n
		}
	}
	return out
}

// lost are the messages that some port sent and none received, by message:
// Σ sent − Σ received over all ports of the job. Sent ones include those that were
// sent again.
func (t cmTotals) lost() (total int64, text string) {
	var parts []string
	for _, m := range cmMessages {
		if n := t["cm_tx_msgs/"+m] - t["cm_rx_msgs/"+m]; n > 0 {
			total += n
			parts = append(parts, m+" "+FormatCount(n))
		}
	}
	return total, strings.Join(parts, ", ")
}

// of all messages in one direction: "cm_tx_msgs", "cm_tx_retries" …
func (t cmTotals) all(group string) (total int64, text string) {
	var parts []string
	for _, m := range cmMessages {
		if n := t[group+"/"+m]; n > 0 {
			total += n
			parts = append(parts, m+" "+FormatCount(n))
		}
	}
	return total, strings.Join(parts, ", ")
}

// communication finds what the counters of the InfiniBand CM tell: requests that
// a full backlog dropped, targets that accepted too slowly, messages that were
// lost. Counters of a machine cannot be told apart by process: other jobs on the
// same ports count as well.
func communication(d *Document) []Cause {
	c := d.DeviceCounters
	if c == nil {
		return nil
	}
	var out []Cause
	taken := d.taken()
	for _, p := range c.List {
		out = append(out, dropped(p, taken)...)
	}
	slices.SortStableFunc(out, func(x, y Cause) int { return cmp.Compare(*y.Count, *x.Count) })
	out = shorten(out, "ports dropped requests")
	var slow []Cause
	for _, p := range c.List {
		slow = append(slow, slowAccept(p)...)
	}
	slices.SortStableFunc(slow, func(x, y Cause) int { return cmp.Compare(*y.Count, *x.Count) })
	out = append(out, shorten(slow, "ports whose targets accepted slowly")...)
	out = append(out, lostMessages(c)...)

	// What the initiators waited for belongs to the first of them, or stands alone.
	reqs := comb{}
	if p := d.phase("connect"); p != nil {
		if s := p.step("connect"); s != nil {
			reqs = combOf(s, reqTimers, func(int64) bool { return false })
		}
	}
	retries := sumPhases(c.Phases)["cm_tx_retries/req"]
	if retries == 0 || reqs.total == 0 {
		return out
	}
	waited := fmt.Sprintf("%s waited for the REQ timer (%s)", plural(reqs.total, "connect", "connects"), reqs.text())
	if len(out) > 0 {
		out[0].Evidence = strings.Replace(out[0].Evidence, "connect: ", "connect: "+waited+": ", 1)
		return out
	}
	return append(out, Cause{
		Kind: "comb", Phase: "connect", Count: &reqs.total,
		Evidence: fmt.Sprintf("connect: %s, %s sent again; neither a full backlog nor lost messages are seen at the ports", waited, plural(retries, "request", "requests")),
		Fix:      "look for requests that were lost outside the CM's counters: rx_missed of the ports, pause frames, the switch",
	})
}

// taken are the requests that each rank took as a target; ranks whose process
// gave no figures of the connect phase are not there.
func (d *Document) taken() map[rank.Rank]int64 {
	out := map[rank.Rank]int64{}
	p := d.phase("connect")
	if p == nil {
		return out
	}
	for _, r := range p.Ranks {
		out[r.Rank] = 0
	}
	for _, s := range p.Steps {
		if s.Step == "accept" && s.Side == SideTarget {
			for _, r := range s.PerRank {
				out[r.Rank] += r.Count + r.Failed
			}
		}
	}
	return out
}

// dropped tells of requests that came to a port and that nobody took: received −
// taken − rejected − received twice.
func dropped(p PortDoc, taken map[rank.Rank]int64) []Cause {
	t := sumPhases(p.Phases)
	received, twice, rejected := t["cm_rx_msgs/req"], t["cm_rx_duplicates/req"], t["cm_tx_msgs/rej"]
	var accepted int64
	for _, r := range p.Ranks {
		of, known := taken[r]
		if !known {
			return nil // the figures of its process are missing
		}
		accepted += of
	}
	n := received - accepted - rejected - twice
	if n <= 0 || len(p.Ranks) == 0 {
		return nil
	}
	c := p.cause("backlog", n)
	c.Evidence = fmt.Sprintf("connect: backlog drops at %s: %s (%s received, %s accepted, %s rejected, %s received twice)",
		p.who(), FormatCount(n), plural(received, "request", "requests"), FormatCount(accepted), FormatCount(rejected), FormatCount(twice))
	c.Fix = "raise net.rdma_ucm.max_backlog and --backlog on " + p.Host + ", or pace the storm with --connect parallel=W or rate=R"
	return []Cause{c}
}

// slowAccept tells of targets that had not answered when a request came again:
// then the kernel asks the initiator for patience (MRA).
func slowAccept(p PortDoc) []Cause {
	t := sumPhases(p.Phases)
	twice, mra := t["cm_rx_duplicates/req"], t["cm_tx_msgs/mra"]
	if twice == 0 || mra == 0 || len(p.Ranks) == 0 {
		return nil
	}
	c := p.cause("slow_accept", twice)
	c.Evidence = fmt.Sprintf("connect: %s accepted slower than the REQ timer: %s came again before the answer, initiators were asked %s for patience (MRA)",
		p.who(), plural(twice, "request", "requests"), plural(mra, "time", "times"))
	c.Fix = "give the targets on " + p.Host + " more threads (-n) or CPUs, or pace the storm with --connect parallel=W or rate=R"
	return []Cause{c}
}

// lostMessages needs both signs: fewer received than sent, and some sent again.
func lostMessages(c *DeviceCountersDoc) []Cause {
	t := sumPhases(c.Phases)
	lost, which := t.lost()
	again, _ := t.all("cm_tx_retries")
	if lost == 0 || again == 0 || c.LeftOut > 0 {
		return nil
	}
	sent, _ := t.all("cm_tx_msgs")
	out := Cause{
		Kind: "lost_mads", Phase: "connect", Count: &lost,
		Evidence: fmt.Sprintf("connect: %s lost between the ports (%s): %s sent, %s of them again", plural(lost, "CM message", "CM messages"), which,
			FormatCount(sent), FormatCount(again)),
		Fix: "raise the module parameters ib_core.recv_queue_size and send_queue_size (see rankstorm devices), or pace the storm; look at drops of the links",
	}
	// Where most of all that came was received, the queue was fullest.
	var all, most int64
	busiest := -1
	for i, p := range c.List {
		n, _ := sumPhases(p.Phases).all("cm_rx_msgs")
		all += n
		if n > most {
			most, busiest = n, i
		}
	}
	if p := busiest; p >= 0 && 2*most > all && len(c.List) > 1 {
		where := c.List[p].cause("", 0)
		out.Rank, out.Proc, out.Host = where.Rank, where.Proc, where.Host
		out.Evidence += fmt.Sprintf("; %s received %d %% of what came", c.List[p].who(), 100*most/all)
	}
	return []Cause{out}
}

// cause of something at this port.
func (p PortDoc) cause(kind string, n int64) Cause {
	proc := p.Proc
	c := Cause{Kind: kind, Proc: &proc, Host: p.Host, Phase: "connect", Count: &n}
	if len(p.Ranks) == 1 {
		c.Rank = &p.Ranks[0]
	}
	return c
}

// who is behind the port: "rank 3 (n0, mlx5_0 port 1)".
func (p PortDoc) who() string {
	name := fmt.Sprintf("port %d of %s (%s)", p.Port, p.Device, p.Host)
	if len(p.Ranks) == 0 {
		return name
	}
	label := "ranks"
	if len(p.Ranks) == 1 {
		label = "rank"
	}
	return fmt.Sprintf("%s %s (%s, %s port %d)", label, rank.FormatRanks(p.Ranks), p.Host, p.Device, p.Port)
}
