package collect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rankstorm/rank"
)

// retryTimer is a rule by which a kernel sends again what was not answered.
type retryTimer struct {
	firstNS int64 // wait before the first sending again
	flat    int   // so many more waits are like the first, then each is twice the one before
	tries   int   // sendings again, at most
}

// teeth are the moments of the sendings again, ns after the first sending: a
// duration that one of them ended stands there, or a little later.
func (t retryTimer) teeth() []int64 {
	out := make([]int64, t.tries)
	wait, at := t.firstNS, int64(0)
	for k := range out {
		if k > t.flat {
			wait *= 2
		}
		at += wait
		out[k] = at
	}
	return out
}

// The timers of TCP in Linux. Which variant holds is seen from the durations.
var (
	// SYN: TCP_TIMEOUT_INIT = 1 s (RFC 6298), net.ipv4.tcp_syn_retries = 6;
	// net.ipv4.tcp_syn_linear_timeouts (4 by default since Linux 6.5) waits do not double.
	synTimers = []retryTimer{{firstNS: 1e9, tries: 6}, {firstNS: 1e9, flat: 4, tries: 6 + 4}}
	// The initiator's hello, when the target had no room for the connection and
	// forgot the last packet of the handshake: TCP_RTO_MIN = 200 ms; a tail loss
	// probe comes after the same wait and does not double it.
	helloTimers = []retryTimer{{firstNS: 200e6, tries: 9}, {firstNS: 200e6, flat: 1, tries: 10}}
)

// tcpTimers are the transports whose connects wait for these timers.
var tcpTimers = map[string]bool{"tcp": true, "sim": true}

// A kernel timer is never early. It is late by up to 1/8 of its wait (the
// levels of the timer wheel), and what it sends takes a moment to be answered.
const (
	wheelShare   = 8
	answerWithin = 5_000_000 // ns
)

// tooth is a moment of a retry timer and how many durations stand at it.
type tooth struct{ atNS, count int64 }

// comb are the teeth at which durations stand, of one timer.
type comb struct {
	total int64
	teeth []tooth
}

// combOf finds the timer that explains most of a step's durations; of equals the
// one with the fewest teeth. explained durations have another reason.
func combOf(s *StepDoc, timers []retryTimer, explained func(ns int64) bool) comb {
	var best comb
	for _, timer := range timers {
		var c comb
		for _, at := range timer.teeth() {
			t := tooth{atNS: at}
			for _, b := range s.Hist {
				if b[0] >= at && b[0] <= at+at/wheelShare+answerWithin && !explained(b[0]) {
					t.count += b[1]
				}
			}
			if t.count > 0 {
				c.total += t.count
				c.teeth = append(c.teeth, t)
			}
		}
		if c.total > best.total || c.total == best.total && len(c.teeth) < len(best.teeth) {
			best = c
		}
	}
	return best
}

// text lists the teeth: "1 s: 20, 3 s: 11".
func (c comb) text() string {
	parts := make([]string, len(c.teeth))
	for i, t := range c.teeth {
		at := strings.ReplaceAll(FormatDuration(t.atNS), ".00", "")
		parts[i] = fmt.Sprintf("%s: %s", at, FormatCount(t.count))
	}
	return strings.Join(parts, ", ")
}

// connectCombs are the durations of the connect phase that ended at a retry
// timer of TCP: connect waits for a SYN to be taken, establish for the hello.
// A hello that waited for a rank which began late stands where that rank began
// and is left out.
func connectCombs(d *Document) (syn, hello comb) {
	p := d.phase("connect")
	if p == nil || !tcpTimers[d.Transport] {
		return syn, hello
	}
	var lates []int64
	for _, r := range p.Ranks {
		for _, ns := range []*int64{r.LateNS, r.GapNS} {
			if ns != nil && *ns >= stragglerFloorNS {
				lates = append(lates, *ns)
			}
		}
	}
	late := func(ns int64) bool {
		return slices.ContainsFunc(lates, func(l int64) bool { return max(ns-l, l-ns) <= max(answerWithin, l/100) })
	}
	never := func(int64) bool { return false }
	if s := p.step("connect"); s != nil {
		syn = combOf(s, synTimers, never)
	}
	if s := p.step("establish"); s != nil {
		hello = combOf(s, helloTimers, late)
	}
	return syn, hello
}

// phase with that token, nil if the job did not come to it.
func (d *Document) phase(name string) *PhaseDoc {
	i := slices.IndexFunc(d.Phases, func(p PhaseDoc) bool { return p.Phase == name })
	if i < 0 {
		return nil
	}
	return &d.Phases[i]
}

// step of the initiators by name, nil if there is none.
func (p *PhaseDoc) step(name string) *StepDoc {
	i := slices.IndexFunc(p.Steps, func(s StepDoc) bool { return s.Step == name && s.Side == SideInitiator })
	if i < 0 {
		return nil
	}
	return &p.Steps[i]
}

// combText says how many connects waited for which timer; "" if none did.
func combText(syn, hello comb) string {
	var parts []string
	if syn.total > 0 {
		parts = append(parts, fmt.Sprintf("%s waited for SYN retransmissions (%s)", plural(syn.total, "connect", "connects"), syn.text()))
	}
	if hello.total > 0 {
		parts = append(parts, fmt.Sprintf("%s waited for data retransmissions (%s)", plural(hello.total, "hello", "hellos"), hello.text()))
	}
	return strings.Join(parts, ", ")
}

// overflow tells which listeners' queues overflowed, from their own counters,
// and what their initiators waited for. Where SYNs were sent again and no queue
// overflowed, packets were lost. Without either counter it is silent.
func overflow(d *Document) []Cause {
	var out []Cause
	var retries int64
	dropsKnown := len(d.Resources) > 0
	ranksOf := d.ranksOf()
	for _, r := range d.Resources {
		retries += max(0, counted(r, func(h *Held) *int64 { return h.SYNRetries }))
		n := counted(r, func(h *Held) *int64 { return h.ListenDrops })
		dropsKnown = dropsKnown && n >= 0
		if n <= 0 {
			continue
		}
		proc := r.Proc
		c := Cause{
			Kind: "drops", Proc: &proc, Host: r.Host, Phase: "connect", Count: &n,
			Fix: d.backlogFix(ranksOf[proc], r.Host),
		}
		who := fmt.Sprintf("queue of process %d (%s)", proc, r.Host)
		if ranks := ranksOf[proc]; len(ranks) == 1 {
			c.Rank, who = &ranks[0], fmt.Sprintf("queue of rank %d (%s)", ranks[0], r.Host)
		} else if len(ranks) > 1 {
			who = fmt.Sprintf("queues of process %d (ranks %s on %s)", proc, rank.FormatRanks(ranks), r.Host)
		}
		c.Evidence = fmt.Sprintf("the listen %s overflowed: %s dropped", who, plural(n, "request", "requests"))
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(x, y Cause) int { return cmp.Compare(*y.Count, *x.Count) })
	syn, hello := connectCombs(d)
	if retries == 0 {
		syn = comb{} // nothing was sent again: something else took that long
	}
	for i := range out {
		if waited := combText(syn, hello); i == 0 && waited != "" {
			out[i].Evidence = waited + ": " + out[i].Evidence
		}
		out[i].Evidence = "connect: " + out[i].Evidence
	}
	if len(out) == 0 && syn.total > 0 {
		c := Cause{
			Kind: "comb", Phase: "connect", Count: &syn.total,
			Evidence: fmt.Sprintf("connect: %s, %s in all", combText(syn, comb{}), plural(retries, "packet sent again", "packets sent again")),
			Fix:      "packets are lost on the way: look at drops of interfaces and switches, conntrack tables and firewalls",
		}
		if dropsKnown {
			c.Evidence += "; no listen queue overflowed"
		}
		out = append(out, c)
	}
	return shorten(out, "process dropped requests", "processes dropped requests")
}

// counted is by how much a counter of a process grew, -1 if it is not known. A
// listener's own counter goes away with it; the peak still has it.
func counted(r ResourceDoc, of func(*Held) *int64) int64 {
	if r.Before == nil || of(r.Before) == nil {
		return -1
	}
	n := int64(-1)
	for _, h := range []*Held{r.Peak, r.After} {
		if h != nil && of(h) != nil {
			n = max(n, *of(h)-*of(r.Before))
		}
	}
	return n
}

// overflowed are the ranks of processes whose listeners dropped requests.
func (d *Document) overflowed() map[rank.Rank]bool {
	dropped := map[rank.Proc]bool{}
	for _, r := range d.Resources {
		dropped[r.Proc] = counted(r, func(h *Held) *int64 { return h.ListenDrops }) > 0
	}
	out := map[rank.Rank]bool{}
	for _, r := range d.Ranks {
		if dropped[r.Proc] {
			out[r.Rank] = true
		}
	}
	return out
}

// ranksOf the processes, ascending.
func (d *Document) ranksOf() map[rank.Proc][]rank.Rank {
	out := map[rank.Proc][]rank.Rank{}
	for _, r := range d.Ranks {
		out[r.Proc] = append(out[r.Proc], r.Rank)
	}
	return out
}
