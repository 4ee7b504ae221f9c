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

// answers are messages that are sent again only when what they answer comes again.
var answers = map[string]bool{"mra": true, "rtu": true, "drep": true}

// sent are the messages of one kind that left the ports, those that were sent again
// included. The kernel counts an answer that it gives again as two sent ones, one of
// them sent again (cm_send_handler in drivers/infiniband/core/cm.c), but sends one.
func (t cmTotals) sent(message string) int64 {
	n := t["cm_tx_msgs/"+message]
	if answers[message] {
		n -= t["cm_tx_retries/"+message]
	}
	return n
}

// missing are messages of one kind that were sent and not received.
func (t cmTotals) missing(message string) int64 {
	return max(0, t.sent(message)-t["cm_rx_msgs/"+message])
}

// lost are the messages that some port sent and none received, by message:
// Σ sent − Σ received over all ports of the job.
func (t cmTotals) lost() (total int64, text string) {
	var parts []string
	for _, m := range cmMessages {
		if n := t.missing(m); n > 0 {
			total += n
			parts = append(parts, m+" "+FormatCount(n))
		}
	}
	return total, strings.Join(parts, ", ")
}

// again are the messages that were sent again, by message.
func (t cmTotals) again() (total int64, text string) {
	var parts []string
	for _, m := range cmMessages {
		if n := t["cm_tx_retries/"+m]; n > 0 {
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
		out = append(out, dropped(d, p, taken)...)
	}
	slices.SortStableFunc(out, func(x, y Cause) int { return cmp.Compare(*y.Count, *x.Count) })
	out = shorten(out, "port dropped requests", "ports dropped requests")
	var slow []Cause
	for _, p := range c.List {
		slow = append(slow, slowAccept(p)...)
	}
	slices.SortStableFunc(slow, func(x, y Cause) int { return cmp.Compare(*y.Count, *x.Count) })
	out = append(out, shorten(slow, "port whose targets accepted slowly", "ports whose targets accepted slowly")...)
	out = append(out, lostMessages(d, taken)...)

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
		if rest, ok := strings.CutPrefix(out[0].Evidence, "connect: "); ok {
			out[0].Evidence = "connect: " + waited + ": " + rest
		} else {
			out[0].Evidence += "; " + waited
		}
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
// taken − rejected − received twice. What is rejected was read, or found no
// listener; the kernel sends no rejection for what it drops, so that it may come
// again. A request whose accept failed may have been rejected as well, and ranks
// that connect reject answers: then too few drops are told rather than too many.
func dropped(d *Document, p PortDoc, taken map[rank.Rank]int64) []Cause {
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
	if len(d.EdgeList) > 0 && d.EdgesMore == 0 && d.reach(p.Ranks) == 0 {
		return nil // nobody connects to them: the requests were not for their listeners
	}
	c := p.cause("backlog", n)
	c.Evidence = fmt.Sprintf("connect: backlog drops at %s: %s (%s received, %s accepted, %s rejected, %s received twice)",
		p.who(), FormatCount(n), plural(received, "request", "requests"), FormatCount(accepted), FormatCount(rejected), FormatCount(twice))
	c.Fix = "raise net.rdma_ucm.max_backlog" + d.has("rdma_max_backlog") + " and --backlog on " + p.Host + ", or pace the storm with --connect parallel=W or rate=R"
	return []Cause{c}
}

// slowAccept tells of targets that had not answered when a request came again:
// then the kernel asks the initiator for patience (MRA).
func slowAccept(p PortDoc) []Cause {
	t := sumPhases(p.Phases)
	twice, mra := t["cm_rx_duplicates/req"], t.sent("mra")
	if twice == 0 || mra == 0 || len(p.Ranks) == 0 {
		return nil
	}
	c := p.cause("slow_accept", twice)
	c.Evidence = fmt.Sprintf("connect: %s accepted slower than the REQ timer: %s came again before the answer, initiators were asked %s for patience (MRA)",
		p.who(), plural(twice, "request", "requests"), plural(mra, "time", "times"))
	c.Fix = "give the targets on " + p.Host + " more threads (-n) or CPUs, or pace the storm with --connect parallel=W or rate=R"
	return []Cause{c}
}

// towardsTargets are the messages that initiators send; the others go the other way.
var towardsTargets = map[string]bool{"req": true, "rtu": true, "dreq": true}

// lostMessages needs both signs: fewer received than sent, and some sent again.
func lostMessages(d *Document, taken map[rank.Rank]int64) []Cause {
	c := d.DeviceCounters
	t := sumPhases(c.Phases)
	lost, which := t.lost()
	again, resent := t.again()
	if lost == 0 || again == 0 || c.LeftOut > 0 {
		return nil
	}
	var sent int64
	for _, m := range cmMessages {
		sent += t.sent(m)
	}
	out := Cause{Kind: "lost_mads", Phase: "connect", Count: &lost}
	if 2*(t.missing("dreq")+t.missing("drep")) > lost {
		out.Phase = "disconnect"
	}
	out.Evidence = fmt.Sprintf("%s: %s lost between the ports (%s): %s sent, %s of them again (CM retries: %s)", out.Phase, plural(lost, "CM message", "CM messages"), which,
		FormatCount(sent), FormatCount(again), resent)
	if p, how := whereLost(d, t, taken); p != nil {
		where := p.cause("", 0)
		out.Rank, out.Proc, out.Host = where.Rank, where.Proc, where.Host
		out.Evidence += "; " + p.who() + " " + how
	}
	queues := "the module parameters ib_core.recv_queue_size" + d.has("rdma_recv_queue") + " and send_queue_size" + d.has("rdma_send_queue")
	if out.Host != "" {
		queues += " on " + out.Host
	}
	raise := "raise " + queues + ", or pace the storm with --connect parallel=W or rate=R"
	out.Fix = raise + "; look at drops of the links"
	// Soft-RoCE counts the packets that it sends and those that come to a port: a message that came and was
	// not received found the queue of the port full.
	if packets, came := t["hw/sent_pkts"], t["hw/rcvd_pkts"]; packets > 0 && came > 0 {
		if gone := packets - came; 2*gone < lost {
			out.Evidence += fmt.Sprintf("; %s packets were sent and %s came to a port: the ports' receive queues were full", FormatCount(packets), FormatCount(came))
			out.Fix = raise
		} else {
			out.Evidence += fmt.Sprintf("; %s of %s packets did not come to any port", FormatCount(gone), FormatCount(packets))
			out.Fix = "look at drops and errors of the links between the ports: packets of the data are lost as well"
		}
	}
	return []Cause{out}
}

// has says how large a limit is where the root runs; "" if it is not known.
func (d *Document) has(limit string) string {
	if n := d.Limits[limit]; n > 0 {
		return fmt.Sprintf(" (%d at rank 0)", n)
	}
	return ""
}

// whereLost finds the port that most of the lost messages were on their way to,
// and says why it must be that: of two ports the one that received less than the
// other sent, else the only one that such messages go to, or the one to which more
// came than to all others. Counters do not tell from which port a message came, so
// where all ports are alike nobody is named.
func whereLost(d *Document, t cmTotals, taken map[rank.Rank]int64) (*PortDoc, string) {
	var there, back int64 // lost on the way to targets, to initiators
	for _, m := range cmMessages {
		if towardsTargets[m] {
			there += t.missing(m)
		} else {
			back += t.missing(m)
		}
	}
	list := d.DeviceCounters.List
	if len(list) == 2 && len(list[0].Ranks) == 1 && len(list[1].Ranks) == 1 {
		// All that one sent was for the other.
		n := [2]int64{lostBetween(list[1], list[0]), lostBetween(list[0], list[1])}
		i := 0
		if n[1] > n[0] {
			i = 1
		}
		if n[i] > n[1-i] {
			return &list[i], fmt.Sprintf("did not receive %s of them", FormatCount(n[i]))
		}
		return nil, ""
	}
	if there == back {
		return nil, ""
	}
	name, gets := "initiators", d.initiated()
	if there > back {
		name, gets = "targets", taken
	}
	var ends []int // ports of ranks that such messages go to
	var all, most int64
	busiest := -1
	for i, p := range list {
		if !slices.ContainsFunc(p.Ranks, func(r rank.Rank) bool { return gets[r] > 0 }) {
			continue
		}
		ends = append(ends, i)
		sum := sumPhases(p.Phases)
		var n int64
		for _, m := range cmMessages {
			if towardsTargets[m] == (there > back) {
				n += sum["cm_rx_msgs/"+m]
			}
		}
		all += n
		if n > most {
			most, busiest = n, i
		}
	}
	switch {
	case len(list) < 2 || busiest < 0 || 2*most <= all:
		return nil, ""
	case len(ends) == 1:
		return &list[busiest], fmt.Sprintf("is the port of all %s, to which %s of them were on their way", name, FormatCount(max(there, back)))
	}
	return &list[busiest], fmt.Sprintf("received %d %% of what came to %s, to which %s of them were on their way", 100*most/all, name, FormatCount(max(there, back)))
}

// lostBetween are the messages that one port sent and the other did not receive.
func lostBetween(from, to PortDoc) (n int64) {
	sent, received := sumPhases(from.Phases), sumPhases(to.Phases)
	for _, m := range cmMessages {
		n += max(0, sent.sent(m)-received["cm_rx_msgs/"+m])
	}
	return n
}

// initiated are the connects that each rank began.
func (d *Document) initiated() map[rank.Rank]int64 {
	out := map[rank.Rank]int64{}
	if p := d.phase("connect"); p != nil {
		if s := p.step("connect"); s != nil {
			for _, r := range s.PerRank {
				out[r.Rank] += r.Count + r.Failed
			}
		}
	}
	return out
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
