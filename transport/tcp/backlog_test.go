package tcp

import (
	"testing"

	"rankstorm/transport"
)

// A full backlog drops requests; the initiator sends its SYN again after a
// second. Both must show in the counters, and in the stamps.
func TestOverflowIsCounted(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	r.to.Close()
	r.to = open(t, config("127.0.0.1"))
	r.tw = r.to.Worker(0)
	addr, _, _, err := r.to.Listen(1)
	if err != nil {
		t.Fatal(err)
	}
	r.addr = addr
	r.tw.Accepting(false)
	const n = 8
	r.prepare(n)
	r.start(r.fw, transport.StepConnect, 0, n)
	r.until("drops", func() bool { return r.to.Counters().ListenDrops > 0 })
	drops := r.to.Counters().ListenDrops
	r.tw.Accepting(true)
	r.until("answers", func() bool { return r.results(transport.StepFullConnect) == n })
	if len(r.failed) > 0 {
		t.Errorf("failures %v", r.failed)
	}
	r.step(transport.StepProbe, n)
	if got := r.from.Counters().SYNRetries; got < 1 {
		t.Errorf("%d packets sent again after %d drops", got, drops)
	}
	r.to.Close()
	if got := r.to.Counters().ListenDrops; got < drops {
		t.Errorf("%d drops after close, %d before", got, drops)
	}
}

func TestWorkersShareTheListener(t *testing.T) {
	from, to := config("127.0.0.1"), config("127.0.0.1")
	to.Workers = 3
	r := newRig(t, from, to)
	const n = 200
	for i := range 3 {
		if err := r.to.Worker(i).Reserve(0, n); err != nil {
			t.Fatal(err)
		}
	}
	r.prepare(n)
	turn := func() {
		for i := range 3 {
			r.tw = r.to.Worker(i)
			r.turn()
		}
	}
	r.tw.Accepting(false) // the first takes none
	for first := 0; first < n; first += 20 {
		if k, err := r.fw.Start(transport.StepConnect, transport.Conn(first), 20, nil); k != 20 || err != nil {
			t.Fatal(k, err)
		}
		turn()
	}
	r.until("answers", func() bool { turn(); return r.results(transport.StepFullConnect) == n })
	var accepted [3]int
	for i := range accepted {
		accepted[i] = r.to.Worker(i).(*worker).accepted
	}
	if accepted[0] != 0 || accepted[0]+accepted[1]+accepted[2] != n {
		t.Errorf("the workers took %v of %d, the first was told to take none", accepted, n)
	}
	if len(r.failed) > 0 {
		t.Errorf("failures %v", r.failed)
	}
}

// Due moments in the past make full connect longer than connect.
func TestDueIsTheBeginOfFullConnect(t *testing.T) {
	r := newRig(t, config("127.0.0.1"), config("127.0.0.1"))
	r.prepare(2)
	due := []int64{r.clock.Now() - 5_000_000, r.clock.Now() - 7_000_000}
	if k, err := r.fw.Start(transport.StepConnect, 0, 2, due); k != 2 || err != nil {
		t.Fatal(k, err)
	}
	var begins [transport.StepCount][2]int64
	var ends [transport.StepCount][2]int64
	for seen := 0; seen < 6; {
		n := r.fw.Poll(r.ev)
		for _, e := range r.ev[:n] {
			begins[e.Step][e.Conn], ends[e.Step][e.Conn] = e.Begin, e.End
			seen++
		}
		n = r.tw.Poll(r.ev)
		for _, e := range r.ev[:n] {
			if e.Kind == transport.EventRequest {
				if err := r.tw.Answer(e.Conn, true, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for c := range 2 {
		if begins[transport.StepFullConnect][c] != due[c] {
			t.Errorf("full connect of %d begins at %d, due was %d", c, begins[transport.StepFullConnect][c], due[c])
		}
		if begins[transport.StepConnect][c] <= due[c] {
			t.Errorf("connect of %d begins at its due moment, not at the call", c)
		}
		if begins[transport.StepEstablish][c] != ends[transport.StepConnect][c] || ends[transport.StepEstablish][c] != ends[transport.StepFullConnect][c] {
			t.Errorf("establish of %d does not lie between connect and the answer", c)
		}
	}
}
