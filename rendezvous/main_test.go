package rendezvous

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"rankstorm/rank"
)

// TestMain lets this binary play the child of Spawn: then its argument is the
// part it has.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "spawned" {
		os.Exit(spawnedChild(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// spawnedChild joins the job of its parent and then plays its part:
//
//	join            leave with code 0
//	code N          leave with code N
//	die P           process P kills itself after the seal, the others leave with 1
//	die-early P     process P kills itself before it joins
//	fail-early P N  process P leaves with code N before it joins
//	stop P          process P stops itself after the seal, the others leave with 0
//	wait            until SIGINT or SIGTERM: leave with 128 + its number
//	deaf            note SIGINT and SIGTERM, and stay
//	orphan FILE     wait for the end of the parent and note it in FILE.<proc>
func spawnedChild(args []string) int {
	in, err := Inherited()
	if err != nil || in == nil {
		fmt.Fprintln(os.Stderr, "not spawned:", err)
		return 90
	}
	defer in.Close()
	me := func(i int) bool { n, err := strconv.Atoi(args[i]); return err == nil && n == in.Launch.Proc }
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	switch {
	case args[0] == "die-early" && me(1):
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case args[0] == "fail-early" && me(1):
		code, _ := strconv.Atoi(args[2])
		return code
	case args[0] == "orphan":
		<-in.Parent
		if err := os.WriteFile(args[1]+"."+strconv.Itoa(in.Launch.Proc), nil, 0o600); err != nil {
			return 91
		}
		return 0
	}
	for _, kv := range os.Environ() {
		if len(kv) > 10 && kv[:10] == ownPrefix {
			fmt.Fprintln(os.Stderr, "inherited", kv)
			return 92
		}
	}
	rec := ThisProcess()
	rec.LauncherProc, rec.LocalIndex = in.Launch.Proc, in.Launch.LocalIndex
	if in.Host != "" {
		rec.Host = in.Host
	}
	ctx, cancel := in.JoinContext(context.Background())
	g, err := Join(ctx, Config{
		Controller: in.Launch.Controller, Procs: in.Launch.Procs, K: 1, JobKey: in.Launch.JobKey, Record: rec,
		Listener: in.Listener, Packet: in.Packet,
	})
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, in.Launch.Proc, err)
		return rank.ExitCode(err)
	}
	defer g.Close()
	switch args[0] {
	case "join":
		fmt.Printf("%d %d %s %d\n", g.Self(), len(g.Table().Procs), g.Table().HostOf(rank.Rank(g.Self())), len(in.Secret))
	case "code":
		code, _ := strconv.Atoi(args[1])
		return code
	case "die":
		if me(1) {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		time.Sleep(200 * time.Millisecond)
		return 1
	case "stop":
		if me(1) {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
	case "deaf":
		fmt.Println("ready")
		for range signals {
			fmt.Println("not yet")
		}
	case "wait":
		fmt.Println("ready")
		sig := <-signals
		return 128 + int(sig.(syscall.Signal))
	}
	return 0
}

// errorKind finds the kind of an error.
func errorKind(err error) rank.Kind { return rank.AsError(err, rank.KindInternal).Kind }
