package junk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Flood sends junk at an even rate to ports that come and go.
type Flood struct {
	Ports func() []Port // asked again and again, less often as nothing changes: looking costs the kernel time
	Kinds []Kind
	Rate  int // connections a second
	Seed  uint64
}

// Sent is what a flood did.
type Sent struct {
	Connected, Refused, Failed, Datagrams int64
	Unfinished                            int64         // not connected yet when the flood ended
	Took                                  time.Duration // with a port to send to
	By                                    map[string]int64
}

// Rate is how many connections a second there were.
func (s Sent) Rate() float64 { return float64(s.Connected) / max(s.Took.Seconds(), 1e-9) }

func (s Sent) String() string {
	return fmt.Sprintf("junk: %d connections in %.2f s (%.0f/s), %d refused, %d failed, %d unfinished, %d datagrams",
		s.Connected, s.Took.Seconds(), s.Rate(), s.Refused, s.Failed, s.Unfinished, s.Datagrams)
}

const (
	longest = 3 * time.Second // that a connection of a flood stays
	most    = 6000            // connections at once
)

// Run sends until ctx is over, and waits for all it has begun.
func (f *Flood) Run(ctx context.Context) Sent {
	var (
		wg                                    sync.WaitGroup
		connected, refused, failed, datagrams atomic.Int64
		unfinished                            atomic.Int64
		slots                                 = make(chan struct{}, most)
		by                                    = make([]atomic.Int64, len(f.Kinds))
		r                                     = rand.New(rand.NewPCG(f.Seed, 1))
		took                                  time.Duration
		owed                                  float64
		known                                 []Port
		asked                                 time.Time
		pause                                 = 50 * time.Millisecond
	)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-tick.C:
		}
		now := time.Now()
		gone := now.Sub(last)
		last = now
		if now.Sub(asked) >= pause {
			before := known
			known, asked = f.Ports(), now
			if slices.Equal(before, known) {
				pause = min(2*pause, 2*time.Second)
			} else {
				pause = 50 * time.Millisecond
			}
		}
		ports := known
		if !slices.ContainsFunc(ports, func(p Port) bool { return p.Network != "udp" }) {
			continue
		}
		took += gone
		owed = min(owed+float64(f.Rate)*gone.Seconds(), float64(f.Rate))
		for ; owed >= 1 && ctx.Err() == nil; owed-- {
			p := ports[r.IntN(len(ports))]
			own := rand.New(rand.NewPCG(f.Seed, r.Uint64()))
			if p.Network == "udp" { // beside the connections
				if c, err := net.Dial("udp", p.Address); err == nil {
					if _, err := c.Write(Datagram(own)); err == nil {
						datagrams.Add(1)
					}
					c.Close()
				}
				owed++
				continue
			}
			i := r.IntN(len(f.Kinds))
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				switch err := f.Kinds[i].Do(ctx, p.Network, p.Address, own, longest); {
				case err == nil:
					connected.Add(1)
					by[i].Add(1)
				case Refused(err):
					refused.Add(1)
				case ctx.Err() == nil:
					failed.Add(1)
				default:
					unfinished.Add(1)
				}
			})
		}
	}
	wg.Wait()
	s := Sent{
		Connected: connected.Load(), Refused: refused.Load(), Failed: failed.Load(), Unfinished: unfinished.Load(), Datagrams: datagrams.Load(),
		Took: took, By: map[string]int64{},
	}
	for i := range f.Kinds {
		s.By[f.Kinds[i].Name] = by[i].Load()
	}
	return s
}
