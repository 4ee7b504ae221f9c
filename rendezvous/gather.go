package rendezvous

import (
	"fmt"
	"slices"
	"time"

	"rankstorm/rank"
)

// gathering is what the controller knows before the seal: who knocked and was
// let in, and whose record gossip has brought. It decides who is let in and
// when the table can be made. It is pure: no clock, no sockets.
type gathering struct {
	own     knock // the controller's; the reference for all others
	runID   string
	sealed  bool
	present map[[16]byte]*rank.Record // let in and still connected
	came    map[[16]byte]time.Duration
	seen    map[[16]byte]bool // brought by gossip
	gone    []departure       // were let in and went before the seal, and nobody came in their place
	left    int               // how many went
	refused []refusal
	trouble []string // what processes said they lack
}

func newGathering(own knock, runID string) *gathering {
	return &gathering{own: own, runID: runID, present: map[[16]byte]*rank.Record{}, came: map[[16]byte]time.Duration{}, seen: map[[16]byte]bool{}}
}

// admit lets a process in, or says why not; at is the time since gathering
// began. The same process may knock again.
func (g *gathering) admit(k *knock, at time.Duration) (mismatch, bool) {
	m, ok := g.judge(k)
	switch {
	case !ok:
		g.noteRefusal(m, who(&k.Record))
	case !g.sealed:
		if _, again := g.came[k.Record.Nonce]; !again {
			g.came[k.Record.Nonce] = at
		}
		g.gone = slices.DeleteFunc(g.gone, func(d departure) bool { return d.takenBy(&k.Record) })
	}
	return m, ok
}

// noteRefusal counts refusals by their reason.
func (g *gathering) noteRefusal(m mismatch, who string) {
	for i := range g.refused {
		if g.refused[i].mismatch == m {
			g.refused[i].count++
			return
		}
	}
	if len(g.refused) < mostRefused {
		g.refused = append(g.refused, refusal{m, 1, who})
	}
}

func (g *gathering) judge(k *knock) (mismatch, bool) {
	refuse := func(format string, args ...any) (mismatch, bool) {
		return mismatch{rest: fmt.Sprintf(format, args...)}, false
	}
	if m, differs := compare(k, &g.own); differs {
		return m, false
	}
	rec := &k.Record
	if _, again := g.present[rec.Nonce]; again && !g.sealed {
		g.present[rec.Nonce] = rec
		return mismatch{}, true
	}
	procs := g.own.Procs
	switch {
	case g.sealed:
		return refuse("the job has already started with -P %d (run %s); it comes too late or is one too many", procs, g.runID)
	case rec.LauncherProc >= procs:
		return refuse("its process number %d is outside 0 … %d", rec.LauncherProc, procs-1)
	}
	if rec.LauncherProc >= 0 {
		for _, other := range g.present {
			if other.LauncherProc == rec.LauncherProc {
				return refuse("process number %d is taken by %s; give every process its own number (--rank)", rec.LauncherProc, who(other))
			}
		}
	}
	if len(g.present) >= procs {
		return refuse("nobody is missing any more (-P %d); it is one too many", procs)
	}
	g.present[rec.Nonce] = rec
	return mismatch{}, true
}

// leave takes out a process whose link ended; silent is for how long it said
// nothing, 0: it closed the link.
func (g *gathering) leave(nonce [16]byte, silent time.Duration) {
	r := g.present[nonce]
	if g.sealed || r == nil {
		return
	}
	g.left++
	if len(g.gone) < mostGone {
		g.gone = append(g.gone, departure{r, silent})
	}
	delete(g.present, nonce)
	delete(g.came, nonce)
}

// troubled notes what a process lacks; false: it is known, or too much is.
func (g *gathering) troubled(line string) bool {
	if slices.Contains(g.trouble, line) || len(g.trouble) >= mostNames {
		return false
	}
	g.trouble = append(g.trouble, line)
	return true
}

// gossiped notes that gossip brought a record.
func (g *gathering) gossiped(nonce [16]byte) { g.seen[nonce] = true }

// complete says that everybody is let in and known through gossip.
func (g *gathering) complete() bool {
	if len(g.present) < g.own.Procs {
		return false
	}
	for nonce := range g.present {
		if !g.seen[nonce] {
			return false
		}
	}
	return true
}

// seal ends the gathering and gives the records for the table.
func (g *gathering) seal() []rank.Record {
	g.sealed = true
	records := make([]rank.Record, 0, len(g.present))
	for _, r := range g.present {
		records = append(records, *r)
	}
	return records
}

// waiting says who is missing and why that may be, now after gathering began.
func (g *gathering) waiting(now time.Duration, addr string, launch Launch, over bool) []string {
	f := waitingFacts{over: over, procs: g.own.Procs, addr: addr, now: now, left: g.left, gone: g.gone, trouble: g.trouble, refused: g.refused, launch: launch}
	for nonce, r := range g.present {
		f.present = append(f.present, arrival{record: r, at: g.came[nonce], gossiped: g.seen[nonce]})
	}
	return waitingLines(&f)
}
