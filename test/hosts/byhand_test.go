package hosts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Two terminals on each of four hosts, one line in all of them.
func TestByHand(t *testing.T) {
	hostsUp(t, 4)
	out := resultFile(t)
	var all []*running
	for i := range 8 {
		all = append(all, onHost(t, host(i%4), "run", "-C", "n0", "-P", "8", "-c", "4", "-o", out))
	}
	waitAll(t, all, 0, time.Minute)
	d := clean(t, out, wanted{procs: 8, connections: allToAll(8, 4), perHost: spread(4, 2)})
	// Ranks go by host, and on a host by start.
	for i, r := range d.Ranks {
		if r.Host != host(i/2) {
			t.Errorf("rank %d is on %s, want %s", i, r.Host, host(i/2))
		}
	}
	for i, r := range all {
		if printed := r.stdout.String(); (printed != "") != (r.cmd.Process.Pid == d.Ranks[0].PID) {
			t.Errorf("process %d: only rank 0 prints the table; stdout:\n%s", i, printed)
		}
	}
}

// Everybody is there before the controller's address exists on any host.
func TestControllerLast(t *testing.T) {
	const late = "10.97.1.1"
	hostsUp(t, 4)
	for i := range 4 { // the way to an address that nobody has yet
		do(t, "hosts", "exec", host(i), "ip", "route", "replace", late+"/32", "dev", "eth0")
	}
	t.Cleanup(func() {
		for i := range 4 {
			do(t, "hosts", "exec", host(i), "ip", "route", "flush", late+"/32")
		}
		_ = lab("hosts", "exec", "n2", "ip", "address", "delete", late+"/32", "dev", "eth0").Run()
	})
	out := resultFile(t)
	var all []*running
	for i := range 8 {
		all = append(all, onHost(t, host(i%4), "run", "-C", late, "-P", "8", "-c", "2", "-o", out))
	}
	all[0].says(t, "no controller at "+late, 20*time.Second) // said after 5 s
	do(t, "hosts", "exec", "n2", "ip", "address", "add", late+"/32", "dev", "eth0")
	waitAll(t, all, 0, time.Minute)
	clean(t, out, wanted{procs: 8, connections: allToAll(8, 2), perHost: spread(4, 2)})
}

// The controller is killed while it waits; the other process of its host takes
// over, and one that comes later makes the job complete.
func TestControllerKilledBeforeTheSeal(t *testing.T) {
	hostsUp(t, 4)
	out := resultFile(t)
	line := []string{"run", "-C", "n0", "-P", "8", "-c", "2", "-o", out}
	first := onHost(t, "n0", line...)
	first.says(t, "waiting for 7 of 8 processes", 20*time.Second) // it has the port
	var rest []*running
	for i := range 6 {
		rest = append(rest, onHost(t, host(i%4), line...))
	}
	first.says(t, "waiting for 1 of 8 processes", 20*time.Second)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rest = append(rest, onHost(t, "n1", line...), onHost(t, "n2", line...))
	waitAll(t, rest, 0, time.Minute)
	d := clean(t, out, wanted{procs: 8, connections: allToAll(8, 2), perHost: map[string]int{"n0": 2, "n1": 3, "n2": 2, "n3": 1}})
	for _, r := range d.Ranks {
		if r.PID == first.cmd.Process.Pid {
			t.Errorf("rank %d is the process that was killed", r.Rank)
		}
	}
}

// Eight processes that come in any order, each up to 5 s late, on four hosts:
// the same rank has the same command line each time, whoever gets the
// controller port.
func TestShuffledStartsWithRanks(t *testing.T) {
	shuffled(t, 1, func(t *testing.T, all []*running, d *document) {
		for i, r := range all {
			if pid := d.Ranks[i].PID; pid != r.cmd.Process.Pid {
				t.Errorf("rank %d is pid %d, but --rank %d was given to pid %d", i, pid, i, r.cmd.Process.Pid)
			}
			if d.Ranks[i].Host != r.name {
				t.Errorf("rank %d is on %s in the table, was started on %s", i, d.Ranks[i].Host, r.name)
			}
		}
	}, func(i int) []string { return []string{"--rank", strconv.Itoa(i)} })
}

// Without numbers ranks are dense and go by host. Every connection's hello
// carries the digest of the rank table, so an all_to_all job in which all are
// accepted had the same table everywhere.
func TestShuffledStartsWithoutRanks(t *testing.T) {
	shuffled(t, 5, func(t *testing.T, all []*running, d *document) {
		for i, r := range d.Ranks {
			if r.Host != host(i/2) {
				t.Errorf("rank %d is on %s, want %s", i, r.Host, host(i/2))
			}
			if !slices.ContainsFunc(all, func(a *running) bool { return a.cmd.Process.Pid == r.PID && a.name == r.Host }) {
				t.Errorf("rank %d is pid %d on %s, which was not started", i, r.PID, r.Host)
			}
		}
	}, func(int) []string { return nil })
}

// shuffled runs RANKSTORM_STARTS jobs (5), one in every few of them, each with a
// seed of its own; RANKSTORM_SEED replays one.
func shuffled(t *testing.T, oneIn int, judge func(*testing.T, []*running, *document), own func(process int) []string) {
	hostsUp(t, 4)
	seeds := numberOf(t, "RANKSTORM_STARTS", 5) / oneIn
	first := numberOf(t, "RANKSTORM_SEED", 0)
	if first > 0 {
		seeds = 1
	} else {
		first = 1
	}
	for seed := first; seed < first+max(seeds, 1); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			const procs = 8
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			out := resultFile(t)
			late := make([]time.Duration, procs)
			for i := range late {
				late[i] = time.Duration(rng.Int64N(int64(5 * time.Second)))
			}
			order := rng.Perm(procs)
			slices.SortStableFunc(order, func(a, b int) int { return int(late[a] - late[b]) })
			all := make([]*running, procs)
			begun := time.Now()
			for _, i := range order {
				time.Sleep(time.Until(begun.Add(late[i])))
				all[i] = onHost(t, host(i%4), append([]string{"run", "-C", "n1", "-P", "8", "-o", out}, own(i)...)...)
			}
			waitAll(t, all, 0, time.Minute)
			d := clean(t, out, wanted{procs: procs, connections: allToAll(procs, 1), perHost: spread(4, 2)})
			judge(t, all, d)
			for _, i := range order { // the first on n1 has the port
				if all[i].name == "n1" {
					t.Logf("process %d was the controller", i)
					break
				}
			}
		})
	}
}

// numberOf is a whole number of the environment.
func numberOf(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// One host is stopped with all that runs on it: nobody waits for ever and the
// hosts that live say who is lost.
func TestHostCrashes(t *testing.T) {
	hostsUp(t, 4)
	out := resultFile(t)
	var all []*running
	for i := range 8 {
		all = append(all, onHost(t, host(i%4), "run", "-C", "n0", "-P", "8", "--hold", "connect=60s", "--liveness-timeout", "3s", "-o", out))
	}
	all[0].says(t, "hold", 20*time.Second)
	do(t, "hosts", "kill", "n3")
	var survivors []*running
	for _, r := range all {
		if r.name != "n3" {
			survivors = append(survivors, r)
		}
	}
	waitAll(t, survivors, 1, time.Minute)
	for _, r := range all {
		if r.name == "n3" {
			r.wait(t, 5*time.Second)
			if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
				t.Errorf("a process on n3 ended with %v, want SIGKILL", r.cmd.ProcessState)
			}
		}
	}
	said := survivors[0].stderr.String() + survivors[4].stderr.String()
	if !strings.Contains(said, "n3") {
		t.Errorf("nobody names n3:\n%s", said)
	}
}
