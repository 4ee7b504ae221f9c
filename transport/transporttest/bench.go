package transporttest

import (
	"testing"

	"rankstorm/transport"
)

// Bench measures set-ups per second through a harness: one initiator and one
// target on one goroutine, at most window connects under way, from connect to
// the answer. The steps before and after are not timed.
func Bench(b *testing.B, h Harness) {
	const round, window = 4096, 256
	if h.Begin != nil {
		h.Begin(b)
	}
	k := &kit{t: b, h: &h, rule: "benchmark", ev: make([]transport.Event, 256)}
	defer k.close()
	from, to := k.open("from", 1), k.open("to", 1)
	f, t := from.sides[0], to.sides[0]
	var busy int64
	total := 0
	for b.Loop() {
		b.StopTimer()
		total += round
		t.reserve(0, round)
		f.reserve(round, 0)
		f.prepare(0, round, to.addr)
		b.StartTimer()
		begin := from.clk.Now()
		for next := 0; f.done[transport.StepFullConnect] < round; {
			if n := min(window-(next-f.done[transport.StepFullConnect]), round-next); n > 0 {
				f.begin(transport.StepConnect, next, n, nil)
				next += n
			}
			k.poll()
		}
		busy += from.clk.Now() - begin
		b.StopTimer()
		k.until("accept", func() bool { return t.done[transport.StepAccept] == round })
		f.run(transport.StepDisconnect, 0, round)
		k.until("the peer's disconnect", func() bool { return t.done[transport.StepPeerDisconnect] == round })
		f.destroy(0, round)
		t.destroy(0, round)
		b.StartTimer()
	}
	b.ReportMetric(float64(total)/(float64(busy)/1e9), "connections/s")
}
