// Command cmd sends junk to all ports of the processes of a job, records what is
// said to them so that it can be said again, or takes junk in place of a job.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rankstorm/test/junk"
)

func main() {
	var (
		pids     = flag.String("pids", "", "processes whose ports get the junk, with commas")
		host     = flag.String("host", "127.0.0.1", "their address")
		rate     = flag.Int("rate", 1000, "connections a second")
		length   = flag.Duration("for", time.Minute, "the longest time; a signal or the end of all processes ends it earlier")
		seed     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of all choices")
		recorded = flag.String("recorded", "", "file of an earlier -record: said again, among the rest")
		record   = flag.String("record", "", "send nothing; write what is heard into this file every 100 ms")
		sink     = flag.Int("sink", 0, "send nothing; take what comes at so many ports")
	)
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *length)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *record != "":
		err = listen(ctx, *record)
	case *sink > 0:
		err = swallow(ctx, *sink)
	default:
		err = send(ctx, *pids, *host, *rate, *seed, *recorded)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "junk:", err)
		os.Exit(1)
	}
}

func listen(ctx context.Context, path string) error {
	r, err := junk.Record()
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Println("listening")
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-time.After(100 * time.Millisecond):
		}
		b, err := json.Marshal(r.Recorded())
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+".new", b, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// swallow accepts at n ports, reads once and closes.
func swallow(ctx context.Context, n int) error {
	for range n {
		ln, err := net.Listen("tcp4", ":0")
		if err != nil {
			return err
		}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
					_, _ = conn.Read(make([]byte, 256))
				}()
			}
		}()
	}
	<-ctx.Done()
	return nil
}

func send(ctx context.Context, list, host string, rate int, seed uint64, recorded string) error {
	at, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	var pids []int
	for s := range strings.SplitSeq(list, ",") {
		pid, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("-pids: %w", err)
		}
		pids = append(pids, pid)
	}
	kinds := junk.Kinds
	if recorded != "" {
		b, err := os.ReadFile(recorded)
		if err != nil {
			return err
		}
		var said map[string][][]byte
		if err := json.Unmarshal(b, &said); err != nil {
			return fmt.Errorf("%s: %w", recorded, err)
		}
		var all [][]byte
		for _, s := range said {
			all = append(all, s...)
		}
		if len(all) == 0 {
			return fmt.Errorf("%s: nothing was recorded", recorded)
		}
		fmt.Printf("%d recorded\n", len(all))
		for range len(kinds) / 4 { // a fifth of all
			kinds = append(kinds, junk.Replay(all))
		}
	}
	ctx, over := context.WithCancel(ctx)
	defer over()
	f := junk.Flood{Kinds: kinds, Rate: rate, Seed: seed, Ports: func() (all []junk.Port) {
		living := 0
		for _, pid := range pids {
			list, err := junk.Ports(pid, at)
			if err != nil {
				continue
			}
			living++
			for _, p := range list {
				if p.Network != "unix" { // of that host alone
					all = append(all, p)
				}
			}
		}
		if living == 0 {
			over()
		}
		return all
	}}
	s := f.Run(ctx)
	fmt.Printf("%v; seed %d\n", s, seed)
	for name, n := range s.By {
		fmt.Printf("  %-30s %d\n", name, n)
	}
	return nil
}
