package collect

import (
	"errors"
	"slices"

	"rankstorm/rank"
)

// Owners of goroutines, as RoundHeld counts them.
var Owners = [...]string{"runner", "rendezvous", "gossip", "transport", "other"}

// Level is one figure of several processes at one moment.
type Level struct {
	Sum     int64     `msgpack:"s" json:"sum"`
	Max     int64     `msgpack:"m" json:"max"`
	MaxProc rank.Proc `msgpack:"p" json:"max_proc"` // the lowest on a tie
}

// LevelOf one process.
func LevelOf(p rank.Proc, v int64) Level { return Level{Sum: v, Max: v, MaxProc: p} }

func (l Level) plus(o Level) Level {
	sum := Level{Sum: l.Sum + o.Sum, Max: l.Max, MaxProc: l.MaxProc}
	if o.Max > l.Max || o.Max == l.Max && o.MaxProc < l.MaxProc {
		sum.Max, sum.MaxProc = o.Max, o.MaxProc
	}
	return sum
}

// RoundHeld is what processes hold when a round is over and nothing of it is left.
type RoundHeld struct {
	Procs      int64              `msgpack:"n"`  // that looked
	AtNS       int64              `msgpack:"at"` // when the last of them looked, root's clock
	FDs        Level              `msgpack:"f"`  // own descriptors less what the control plane accepted
	Goroutines Level              `msgpack:"g"`
	RSSBytes   Level              `msgpack:"r"`
	HeapBytes  Level              `msgpack:"h"`  // in use when the garbage collector last looked
	Owned      [len(Owners)]Level `msgpack:"o"`  // goroutines by owner, in the order of Owners
	TimeWait   int64              `msgpack:"tw"` // sockets in TIME_WAIT of the network namespace that has most; -1 not known
}

func (h *RoundHeld) plus(o *RoundHeld) *RoundHeld {
	switch {
	case h == nil && o == nil:
		return nil
	case h == nil:
		one := *o
		return &one
	case o == nil:
		one := *h
		return &one
	}
	sum := RoundHeld{
		Procs: h.Procs + o.Procs, AtNS: max(h.AtNS, o.AtNS), FDs: h.FDs.plus(o.FDs), Goroutines: h.Goroutines.plus(o.Goroutines),
		RSSBytes: h.RSSBytes.plus(o.RSSBytes), HeapBytes: h.HeapBytes.plus(o.HeapBytes), TimeWait: max(h.TimeWait, o.TimeWait),
	}
	for i := range sum.Owned {
		sum.Owned[i] = h.Owned[i].plus(o.Owned[i])
	}
	return &sum
}

// maxLevel is more than any figure of all processes can be; a slope per 1,000 rounds still fits.
const maxLevel = 1 << 53

func (h *RoundHeld) validate() error {
	if h.Procs < 1 || h.Procs > maxLevel || h.TimeWait < -1 || h.TimeWait > maxLevel {
		return errors.New("what was held after the round is out of range")
	}
	for _, l := range append(h.Owned[:], h.FDs, h.Goroutines, h.RSSBytes, h.HeapBytes) {
		if l.Max < 0 || l.Sum < l.Max || l.Sum > maxLevel || l.MaxProc < 0 {
			return errors.New("what was held after the round is out of range")
		}
	}
	return nil
}

// RoundHeldDoc is what all processes together, and the one with most, held after a round.
type RoundHeldDoc struct {
	Round      int32            `json:"round"`
	AtNS       int64            `json:"at_ns"`
	Conns      int64            `json:"connections"` // established so far
	Procs      int64            `json:"procs"`       // that were counted
	FDs        Level            `json:"fds"`
	Goroutines Level            `json:"goroutines"`
	Owned      map[string]Level `json:"goroutines_by_owner"`
	RSSBytes   Level            `json:"rss_bytes"`
	HeapBytes  Level            `json:"heap_bytes"`
	TimeWait   *int64           `json:"time_wait"` // sockets of the network namespace that has most
}

// GrowthDoc is how much more all processes together held per 1,000 rounds, without the first quarter of the rounds: the
// median of the slopes between all pairs of points (Theil and Sen), which a few odd points do not move.
type GrowthDoc struct {
	FromRound  int32 `json:"from_round"`
	ToRound    int32 `json:"to_round"`
	Points     int64 `json:"points"`
	FDs        int64 `json:"fds_per_1000_rounds"`
	Goroutines int64 `json:"goroutines_per_1000_rounds"`
	RSSBytes   int64 `json:"rss_bytes_per_1000_rounds"`
	HeapBytes  int64 `json:"heap_bytes_per_1000_rounds"`
}

// What a slope needs to mean something: in fewer rounds a process still finds its size.
const (
	growthPoints = 16
	growthRounds = 100
)

// addHeld keeps what was held after a round, if somebody looked.
func (d *Document) addHeld(s *Summary) {
	h := s.Held
	if h == nil {
		return
	}
	out := RoundHeldDoc{
		Round: s.Round, AtNS: h.AtNS - d.build.startNS, Conns: d.Connections.Established, Procs: h.Procs,
		FDs: h.FDs, Goroutines: h.Goroutines, RSSBytes: h.RSSBytes, HeapBytes: h.HeapBytes, Owned: map[string]Level{},
	}
	for i, name := range Owners {
		if h.Owned[i].Sum > 0 {
			out.Owned[name] = h.Owned[i]
		}
	}
	if h.TimeWait >= 0 {
		out.TimeWait = &h.TimeWait
	}
	d.build.held.add("", out)
}

func (d *Document) finishHeld() {
	d.RoundsHeld, d.HeldMore = d.build.held.list()
	d.Growth = growthOf(d.RoundsHeld)
}

// growthOf looks at the points after the first quarter of the rounds that counted as many processes as the last one.
func growthOf(points []RoundHeldDoc) *GrowthDoc {
	if len(points) == 0 {
		return nil
	}
	last := points[len(points)-1]
	points = slices.DeleteFunc(slices.Clone(points), func(p RoundHeldDoc) bool {
		return int64(p.Round) < int64(last.Round)/4 || p.Procs != last.Procs
	})
	if len(points) < growthPoints || last.Round-points[0].Round < growthRounds {
		return nil
	}
	slope := func(of func(RoundHeldDoc) Level) int64 {
		var all []int64
		for i, p := range points {
			for _, q := range points[i+1:] {
				more, rounds := of(q).Sum-of(p).Sum, int64(q.Round-p.Round)
				all = append(all, more/rounds*1000+more%rounds*1000/rounds)
			}
		}
		slices.Sort(all)
		return all[(len(all)-1)/2]
	}
	return &GrowthDoc{
		FromRound: points[0].Round, ToRound: last.Round, Points: int64(len(points)),
		FDs:        slope(func(p RoundHeldDoc) Level { return p.FDs }),
		Goroutines: slope(func(p RoundHeldDoc) Level { return p.Goroutines }),
		RSSBytes:   slope(func(p RoundHeldDoc) Level { return p.RSSBytes }),
		HeapBytes:  slope(func(p RoundHeldDoc) Level { return p.HeapBytes }),
	}
}
