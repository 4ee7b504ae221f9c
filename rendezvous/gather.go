package rendezvous

import (
	"fmt"
	"slices"
	"strings"
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
	seen    map[[16]byte]bool         // brought by gossip
}

func newGathering(own knock, runID string) *gathering {
	return &gathering{own: own, runID: runID, present: map[[16]byte]*rank.Record{}, seen: map[[16]byte]bool{}}
}

// admit lets a process in, or says why not. The same process may knock again.
func (g *gathering) admit(k *knock) (mismatch, bool) {
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
		return refuse("the job has already started with %d processes (run %s); it comes too late or is one too many", procs, g.runID)
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
		return refuse("there are already %d of %d processes; it is one too many", len(g.present), procs)
	}
	g.present[rec.Nonce] = rec
	return mismatch{}, true
}

// leave takes out a process whose link ended.
func (g *gathering) leave(nonce [16]byte) {
	if !g.sealed {
		delete(g.present, nonce)
	}
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

// pdshFanOut is pdsh's default number of commands at a time.
const pdshFanOut = 32

// missing says in one line who is there, who is not, and why that may be.
func (g *gathering) missing(waited time.Duration) string {
	procs := g.own.Procs
	hosts := map[string]int{}
	for _, r := range g.present {
		hosts[r.Host]++
	}
	have := make([]string, 0, len(hosts))
	for h, n := range hosts {
		have = append(have, fmt.Sprintf("%s×%d", h, n))
	}
	slices.Sort(have)
	const most = 16
	if len(have) > most {
		have = append(have[:most], fmt.Sprintf("%d more hosts", len(have)-most))
	}
	seconds := int(waited.Round(time.Second) / time.Second)
	if len(g.present) == procs {
		var silent []string
		for nonce, r := range g.present {
			if !g.seen[nonce] {
				silent = append(silent, who(r))
			}
		}
		slices.Sort(silent)
		n := len(silent)
		if n > most {
			silent = append(silent[:most], "…")
		}
		return fmt.Sprintf("waiting for gossip from %d of %d processes for %d s: %s", n, procs, seconds, strings.Join(silent, ", "))
	}
	text := fmt.Sprintf("waiting for %d of %d processes for %d s: have %s", procs-len(g.present), procs, seconds, strings.Join(have, ", "))
	if numbers := g.missingNumbers(); numbers != "" {
		text += "; missing process numbers " + numbers
	}
	if len(g.present) == pdshFanOut {
		text += "; exactly 32 came: pdsh starts 32 at a time unless told otherwise (-f)"
	}
	return text
}

// missingNumbers lists the launcher's numbers that nobody has; "" if somebody
// has no number.
func (g *gathering) missingNumbers() string {
	taken := make([]bool, g.own.Procs)
	for _, r := range g.present {
		if r.LauncherProc < 0 {
			return ""
		}
		taken[r.LauncherProc] = true
	}
	var free []rank.Rank
	for i, t := range taken {
		if !t {
			free = append(free, rank.Rank(i))
		}
	}
	return rank.FormatRanks(free)
}
