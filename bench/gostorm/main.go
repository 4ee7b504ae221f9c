// Command gostorm is bench/storm.c over rankstorm's TCP provider: two
// processes, at most a window of connections between connect and answer, and
// the clock from the first connect to the last answer. What is left out is
// everything above the transport, so that the two can be told apart.
package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"time"

	"rankstorm/transport"
	"rankstorm/transport/tcp"
)

func main() {
	var s storm
	flag.IntVar(&s.n, "n", 8000, "connections")
	flag.IntVar(&s.window, "w", 256, "connections between connect and answer, 0: all at once")
	flag.IntVar(&s.rounds, "r", 1, "rounds")
	flag.StringVar(&s.addr, "addr", "127.0.0.1", "address of the listener")
	flag.DurationVar(&s.busy, "busy", 0, "poll this long before sleeping")
	flag.BoolVar(&s.create, "create", false, "sockets are made within the measured time, not before")
	profile := flag.String("profile", "", "CPU profile of this side")
	target := flag.Bool("target", false, "be the target (internal)")
	flag.Parse()
	run := s.initiate
	if *target {
		run = s.serve
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			fatal(err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	runtime.LockOSThread()
	if err := run(); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "gostorm:", err)
	os.Exit(1)
}

type storm struct {
	n, window, rounds int
	addr              string
	busy              time.Duration
	create            bool
	ev                [256]transport.Event
	clock             transport.Clock
}

func (s *storm) open() (transport.Endpoint, error) {
	s.clock = transport.NewClock()
	return tcp.New().Open(transport.Config{Clock: s.clock, Name: "gostorm", Advertise: s.addr, Workers: 1, Busy: s.busy})
}

// serve answers until its standard input ends; its address goes to standard output.
func (s *storm) serve() error {
	ep, err := s.open()
	if err != nil {
		return err
	}
	defer ep.Close()
	w := ep.Worker(0)
	if err := w.Reserve(0, s.n); err != nil {
		return err
	}
	addr, _, _, err := ep.Listen(0)
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(addr))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	runtime.GC()
	first, shut := 0, 0
	for {
		n, err := w.Wait(math.MaxInt64, s.ev[:])
		if err != nil {
			return err
		}
		for i := range s.ev[:n] {
			e := &s.ev[i]
			switch {
			case e.Kind == transport.EventRequest:
				if err := w.Answer(e.Conn, true, 0); err != nil {
					return err
				}
			case e.Step == transport.StepPeerDisconnect:
				shut++
			}
		}
		if shut == s.n {
			for first < s.n {
				k, err := w.Start(transport.StepDestroyID, transport.Conn(first), s.n-first, nil)
				if err != nil && !errors.Is(err, transport.ErrAgain) {
					return err
				}
				first += k
				w.Poll(s.ev[:])
			}
			for w.Poll(s.ev[:]) > 0 {
			}
			first, shut = 0, 0
			if err := w.Reserve(0, s.n); err != nil {
				return err
			}
			fmt.Println("again")
		}
	}
}

func (s *storm) initiate() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "-target", fmt.Sprintf("-n=%d", s.n), "-addr="+s.addr, fmt.Sprintf("-busy=%v", s.busy))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Wait() }() // the target ends when its input does
	defer in.Close()
	line := make([]byte, 512)
	k, err := out.Read(line)
	if err != nil {
		return err
	}
	addr, err := hex.DecodeString(string(bytes.TrimSpace(line[:k])))
	if err != nil {
		return err
	}
	ep, err := s.open()
	if err != nil {
		return err
	}
	defer ep.Close()
	w := ep.Worker(0)
	took := make([]int64, s.n)
	for range s.rounds {
		if err := s.round(w, addr, took); err != nil {
			return err
		}
		if _, err := out.Read(line); err != nil {
			return err
		}
	}
	return nil
}

// before are the steps of phases that end before the storm begins.
var before = []transport.Step{
	transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr,
	transport.StepResolveRoute, transport.StepCreateQP,
}

func (s *storm) round(w transport.Worker, addr transport.Address, took []int64) error {
	if err := w.Reserve(s.n, 0); err != nil {
		return err
	}
	var hello transport.Hello
	if !s.create {
		if err := s.prepare(w, addr, &hello, 0, s.n); err != nil {
			return err
		}
	}
	runtime.GC()
	var mem0, mem1 runtime.MemStats
	runtime.ReadMemStats(&mem0)
	gc := debug.SetGCPercent(-1)
	time.Sleep(20 * time.Millisecond) // the collector's background work ends before the clock starts
	start := s.clock.Now()
	begun, done := 0, 0
	for done < s.n {
		for begun < s.n && (s.window == 0 || begun-done < s.window) {
			n := min(s.n-begun, 64)
			if s.window > 0 {
				n = min(n, s.window-(begun-done))
			}
			if s.create {
				if err := s.prepare(w, addr, &hello, begun, n); err != nil {
					return err
				}
			}
			k, err := w.Start(transport.StepConnect, transport.Conn(begun), n, nil)
			begun += k
			if errors.Is(err, transport.ErrAgain) {
				break
			}
			if err != nil {
				return err
			}
		}
		n, err := w.Wait(math.MaxInt64, s.ev[:])
		if err != nil {
			return err
		}
		for i := range s.ev[:n] {
			switch e := &s.ev[i]; {
			case e.Kind == transport.StepFailed:
				return fmt.Errorf("%v: %v %w", e.Step, e.Cause, e.Err)
			case e.Step == transport.StepFullConnect:
				took[done] = e.End - e.Begin
				done++
			}
		}
	}
	end := s.clock.Now()
	debug.SetGCPercent(gc)
	runtime.ReadMemStats(&mem1)
	slices.Sort(took)
	q := func(p float64) float64 { return float64(took[min(int(float64(s.n)*p), s.n-1)]) / 1e3 }
	fmt.Printf("%.0f connections/s  p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f us  allocations %d\n",
		float64(s.n)/(float64(end-start)/1e9), q(.5), q(.9), q(.99), q(.999), q(1), mem1.Mallocs-mem0.Mallocs)
	for _, st := range []transport.Step{transport.StepDisconnect, transport.StepDestroyQP, transport.StepDestroyID} {
		if err := s.all(w, st, 0, s.n); err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) prepare(w transport.Worker, addr transport.Address, hello *transport.Hello, first, n int) error {
	for _, st := range before {
		if st == transport.StepResolveAddr {
			for i := range n {
				if err := w.Assign(transport.Conn(first+i), addr, hello); err != nil {
					return err
				}
			}
		}
		if s.create {
			// The events are taken with the storm's own.
			if k, err := w.Start(st, transport.Conn(first), n, nil); err != nil {
				return fmt.Errorf("%d of %d begun: %w", k, n, err)
			}
			continue
		}
		if err := s.all(w, st, first, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) all(w transport.Worker, st transport.Step, first, n int) error {
	done := 0
	for end := first + n; done < n; {
		k, err := w.Start(st, transport.Conn(first), end-first, nil)
		if err != nil && !errors.Is(err, transport.ErrAgain) {
			return err
		}
		first += k
		for {
			got := w.Poll(s.ev[:])
			for i := range s.ev[:got] {
				e := &s.ev[i]
				if e.Kind == transport.StepFailed {
					return fmt.Errorf("%v: %v %w", e.Step, e.Cause, e.Err)
				}
				if e.Step == st {
					done++
				}
			}
			if got < len(s.ev) {
				break
			}
		}
		if first == end && done < n {
			// Wait with a bound, so that a lost event shows as a hang here and not as a spin.
			if _, err := w.Wait(s.clock.Now()+int64(time.Millisecond), nil); err != nil {
				return err
			}
		}
	}
	return nil
}
