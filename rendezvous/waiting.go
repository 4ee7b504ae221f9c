package rendezvous

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rankstorm/rank"
)

// Fan-outs that launchers stop at unless told otherwise: those who wait for
// each other then never get everybody.
const (
	pdshFanOut  = 32
	clushFanOut = 64
)

const (
	stuckAfter  = 5 * time.Second // without an arrival, before a likely cause is named
	mostNames   = 16              // hosts or processes in a line
	mostRefused = 64              // different refusals that are kept apart
	mostGone    = 4096            // departures that are kept
)

// waitingFacts is what the controller knows while it waits. All times are since
// the gathering began.
type waitingFacts struct {
	procs   int           // P
	addr    string        // of the controller, as the others must have it
	now     time.Duration // since the gathering began
	present []arrival     // let in and still connected, the controller itself among them
	left    int           // let in and gone again
	gone    []departure   // of them those whose place is empty, some if they are many
	trouble []string      // what processes lack
	refused []refusal     // first one first
	launch  Launch        // what the controller's launcher said
	over    bool          // nobody is waited for any more: what is likely is told however short the wait was
}

// arrival of a process.
type arrival struct {
	record   *rank.Record
	at       time.Duration
	gossiped bool // gossip has brought its record
}

// departure of a process before the seal.
type departure struct {
	record *rank.Record
	silent time.Duration // 0: it closed its link
}

// takenBy says that this process is the departed one, or came in its place.
func (d departure) takenBy(r *rank.Record) bool {
	return d.record.Nonce == r.Nonce || r.LauncherProc >= 0 && d.record.LauncherProc == r.LauncherProc
}

// String names the process by all that is known of it.
func (d departure) String() string {
	if n := d.record.LauncherProc; n >= 0 {
		return fmt.Sprintf("process %d (%s) pid %d", n, d.record.Host, d.record.PID)
	}
	return fmt.Sprintf("a process (%s) pid %d", d.record.Host, d.record.PID)
}

// refusal of processes for the same reason.
type refusal struct {
	mismatch
	count int
	who   string // the first of them
}

// waitingLines says who is missing, where and since when, and then, one a line,
// what the likely causes are; the surest first. No line: nobody is missing.
func waitingLines(f *waitingFacts) []string {
	missing := f.procs - len(f.present)
	if missing <= 0 {
		return f.gossipLines()
	}
	hosts := f.hostCounts()
	have := make([]string, 0, len(hosts))
	for _, h := range hosts {
		have = append(have, fmt.Sprintf("%s×%d", h.Name, h.Procs))
	}
	state := fmt.Sprintf("waiting for %d of %d processes for %d s: have %s", missing, f.procs, seconds(f.now), shorten(have))
	if numbers := f.missingNumbers(); numbers != "" {
		state += "; missing process numbers " + numbers
	}
	empty, short, known := f.missingHosts(hosts)
	if known && len(short) > 0 {
		state += "; missing on " + shorten(short)
	}
	quiet := f.quiet()
	if len(f.present) > 1 && quiet >= stuckAfter {
		state += fmt.Sprintf("; nobody came for %d s", seconds(quiet))
	}
	lines := append([]string{state}, f.trouble...)
	lines = append(lines, f.lost()...)
	lines = append(lines, f.refusedCauses()...)
	if quiet < stuckAfter && !f.over {
		return lines
	}
	if f.launch.Launched > 0 && f.launch.Launched < f.procs {
		lines = append(lines, fmt.Sprintf("%s started %d of the %d processes that -P says: are the others started too?", f.launch.Family, f.launch.Launched, f.procs))
	}
	switch n := len(f.present); {
	case n == 1 && f.left == 0 && len(f.refused) == 0:
		lines = append(lines, fmt.Sprintf("nobody but this process has come to %s: start the others with the same -C, and let no firewall block that TCP port", f.addr))
	case n == pdshFanOut && f.launch.Family == "":
		lines = append(lines, fmt.Sprintf("exactly 32 came: pdsh starts only 32 at a time by default: use pdsh -f %d", f.procs))
	case n == clushFanOut && f.launch.Family == "":
		lines = append(lines, fmt.Sprintf("exactly 64 came: clush starts only 64 at a time by default, and pdsh as many as its -f says: use -f %d", f.procs))
	case len(empty) == 1 && len(short) == 1:
		lines = append(lines, fmt.Sprintf("all of the missing belong to %s: is that host up, and can it reach %s?", empty[0], f.addr))
	case len(short) == 1:
		lines = append(lines, fmt.Sprintf("all of the missing belong to %s: look at the output of its processes", shortHost(short[0])))
	}
	return lines
}

// lost names those who came and went, and the hosts of many.
func (f *waitingFacts) lost() (lines []string) {
	var silent, ended, hosts []string
	longest := time.Duration(0)
	for _, d := range f.gone {
		if d.silent == 0 {
			ended = append(ended, d.String())
			continue
		}
		silent = append(silent, d.String())
		longest = max(longest, d.silent)
		if !slices.Contains(hosts, d.record.Host) {
			hosts = append(hosts, d.record.Host)
		}
	}
	if len(silent) > 0 {
		slices.SortFunc(silent, rank.CompareNatural)
		slices.SortFunc(hosts, rank.CompareNatural)
		on := ""
		if len(silent) > mostNames {
			on = ", on " + shorten(hosts)
		}
		lines = append(lines, fmt.Sprintf("lost, silent for %v: %s%s: are they stopped, or cut off from %s?", longest, shorten(silent), on, f.addr))
	}
	if len(ended) > 0 {
		slices.SortFunc(ended, rank.CompareNatural)
		lines = append(lines, fmt.Sprintf("came and ended again: %s: their own output says why", shorten(ended)))
	}
	return lines
}

func seconds(d time.Duration) int { return int(d.Round(time.Second) / time.Second) }

// quiet is how long nobody has come.
func (f *waitingFacts) quiet() time.Duration {
	last := time.Duration(0)
	for _, a := range f.present {
		last = max(last, a.at)
	}
	return f.now - last
}

// hostCounts of those who are there, in natural order of the names.
func (f *waitingFacts) hostCounts() []LaunchHost {
	counts := map[string]int{}
	for _, a := range f.present {
		counts[a.record.Host]++
	}
	hosts := make([]LaunchHost, 0, len(counts))
	for h, n := range counts {
		hosts = append(hosts, LaunchHost{h, n})
	}
	slices.SortFunc(hosts, func(a, b LaunchHost) int { return rank.CompareNatural(a.Name, b.Name) })
	return hosts
}

// missingNumbers lists the launcher's numbers that nobody has; "" if somebody
// has no number.
func (f *waitingFacts) missingNumbers() string {
	taken := make([]bool, f.procs)
	for _, a := range f.present {
		n := a.record.LauncherProc
		if n < 0 || n >= f.procs {
			return ""
		}
		taken[n] = true
	}
	var free []rank.Rank
	for i, t := range taken {
		if !t {
			free = append(free, rank.Rank(i))
		}
	}
	const most = 200 // characters; every second process of 10,000 may be missing
	text := rank.FormatRanks(free)
	if len(text) > most {
		text = text[:strings.LastIndexByte(text[:most], ',')] + ",…"
	}
	return text
}

// missingHosts says which hosts lack processes: those that nobody came from,
// and all of them with their counts. It follows from the launcher's list; where
// there is none, from the pattern: several hosts with the same count and one
// with fewer. known: the list is the launcher's.
func (f *waitingFacts) missingHosts(have []LaunchHost) (empty, short []string, known bool) {
	count := map[string]int{}
	for _, h := range have {
		count[bareHost(h.Name)] += h.Procs
	}
	want := map[string]int{}
	var order []string
	counted := true
	for _, h := range f.launch.Hosts {
		name := bareHost(h.Name)
		if _, again := want[name]; !again {
			order = append(order, name)
		}
		want[name] += h.Procs
		counted = counted && h.Procs > 0
	}
	for name := range count {
		if _, listed := want[name]; !listed {
			order = nil // the launcher calls its hosts otherwise
			break
		}
	}
	if order != nil {
		for _, name := range order {
			switch n := count[name]; {
			case n == 0 && counted:
				empty = append(empty, name)
				short = append(short, fmt.Sprintf("%s (%d of %d)", name, want[name], want[name]))
			case n == 0:
				empty = append(empty, name)
				short = append(short, name)
			case counted && n < want[name]:
				short = append(short, fmt.Sprintf("%s (%d of %d)", name, want[name]-n, want[name]))
			}
		}
		return empty, short, true
	}
	if len(have) < 3 {
		return nil, nil, false
	}
	byCount := slices.Clone(have)
	slices.SortStableFunc(byCount, func(a, b LaunchHost) int { return a.Procs - b.Procs })
	least, most := byCount[0], byCount[len(byCount)-1]
	if byCount[1].Procs == most.Procs && most.Procs-least.Procs == f.procs-len(f.present) && least.Procs < most.Procs {
		short = []string{least.Name}
	}
	return nil, short, false
}

// bareHost is a host's name without its domain; addresses stay whole.
func bareHost(name string) string {
	if strings.Trim(name, "0123456789.") == "" {
		return name
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// shortHost is the name in an entry of missingHosts.
func shortHost(entry string) string {
	name, _, _ := strings.Cut(entry, " ")
	return name
}

// refusedCauses says what was refused; each was told when it happened, but the
// user may look only now.
func (f *waitingFacts) refusedCauses() []string {
	var lines []string
	for _, r := range f.refused {
		which := fmt.Sprintf("%d were refused, the first one was %s", r.count, r.who)
		if r.count == 1 {
			which = r.who + " was refused"
		}
		if r.theirs == "" && r.ours == "" {
			lines = append(lines, which+": "+r.rest)
		} else {
			lines = append(lines, fmt.Sprintf("%s: %s is %s there, %s here%s", which, r.what, r.theirs, r.ours, r.rest))
		}
	}
	const most = 4
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more reasons why processes were refused", len(lines)-most))
	}
	return lines
}

// gossipLines: everybody is there, but gossip has not brought all records.
func (f *waitingFacts) gossipLines() []string {
	var silent []string
	for _, a := range f.present {
		if !a.gossiped {
			silent = append(silent, who(a.record))
		}
	}
	if len(silent) == 0 {
		return nil
	}
	slices.SortFunc(silent, rank.CompareNatural)
	lines := []string{fmt.Sprintf("waiting for gossip from %d of %d processes for %d s: %s", len(silent), f.procs, seconds(f.now), shorten(silent))}
	lines = append(lines, f.trouble...)
	if f.quiet() >= stuckAfter && len(f.trouble) == 0 {
		lines = append(lines, "gossip needs TCP and UDP between all processes on the ports they took: does a firewall stand between?")
	}
	return lines
}

// shorten keeps a list on a line.
func shorten(names []string) string {
	if len(names) > mostNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), len(names)-mostNames)
	}
	return strings.Join(names, ", ")
}
