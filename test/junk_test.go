package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rankstorm/test/junk"
	"rankstorm/test/need"
	"rankstorm/test/printed"
)

// watched is a process of a job, and what it prints.
type watched struct {
	cmd    *exec.Cmd
	stderr printed.Text
}

func (v *watched) pid() int { return v.cmd.Process.Pid }

// waitsFor waits until the process has printed a text.
func (v *watched) waitsFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(v.stderr.String(), text); {
		if time.Now().After(end) || !alive(v.pid()) {
			t.Fatalf("process %d does not say %q:\n%s", v.pid(), text, v.stderr.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// holds are the descriptors and the resident memory, in bytes, of a process.
func (v *watched) holds(t *testing.T) (fds int, rss int64) {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.pid()))
	if err != nil {
		t.Fatalf("the job was over before the junk was; %v\n%s", err, v.stderr.String())
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", v.pid()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return len(list), pages * int64(os.Getpagesize())
}

// Every kind of junk at every open port of every process, while a job waits for its last process and while it storms:
// the job is clean, and when the strangers have gone nothing of them is left.
func TestJunkAtEveryPort(t *testing.T) {
	for _, c := range []struct {
		name   string
		procs  int // above 16 a host has an agent, with a socket of its own
		secret bool
	}{{"open", 3, false}, {"secret", 3, true}, {"agent", 18, false}, {"agent with secret", 18, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			junkAtEveryPort(t, c.procs, c.secret)
		})
	}
}

func junkAtEveryPort(t *testing.T, procs int, secret bool) {
	const conns = 8
	recorder, err := junk.Record()
	if err != nil {
		need.Absent(t, "packets", "%v", err)
	}
	defer recorder.Close()
	at := freeAddress(t)
	dir := t.TempDir()
	args := []string{"run", "-C", at, "-P", strconv.Itoa(procs), "-c", strconv.Itoa(conns), "--hold", "connect=10s", "-o", filepath.Join(dir, "r.json")}
	if secret {
		file := filepath.Join(dir, "secret")
		if err := os.WriteFile(file, []byte("what nobody guesses\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--secret-file", file)
	}
	var all []*watched
	start := func() *watched {
		v := &watched{cmd: exec.Command(binary, append(args, "--rank", strconv.Itoa(len(all)))...)}
		v.cmd.Dir, v.cmd.Stderr = dir, &v.stderr
		if err := v.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = v.cmd.Process.Kill() })
		all = append(all, v)
		return v
	}
	start().waitsFor(t, fmt.Sprintf("waiting for %d of %d", procs-1, procs))
	for range procs - 2 {
		start()
	}
	all[0].waitsFor(t, fmt.Sprintf("waiting for 1 of %d", procs))
	if n := molest(t, all, recorder, 1)["unix"]; (n > 0) != (procs > 16) {
		t.Errorf("%d sockets of agents", n)
	}

	start()
	for _, v := range all {
		v.waitsFor(t, "hold")
	}
	molest(t, all, recorder, max(1, 9/procs))
	for i, v := range all {
		if code := exitCode(v.cmd.Wait()); code != 0 {
			t.Errorf("process %d: exit %d, want 0: %s", i, code, v.stderr.String())
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		document
		Warnings []string
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	c := d.Connections
	if want := int64(procs * (procs - 1) * conns); c.Planned != want || c.Started != want || c.Established != want || c.Accepted != want || c.Dead+c.Failed != 0 {
		t.Errorf("connections %+v, want %d", c, want)
	}
	if text := strings.Join(d.Warnings, "\n"); !strings.Contains(text, "not of this job or forged") {
		t.Errorf("the document says nothing of forged requests: %q", d.Warnings)
	}
}

// molest sends every kind, and what was recorded, to every port of every process at once, times over; afterwards the
// processes hold what they held before.
func molest(t *testing.T, all []*watched, recorder *junk.Recorder, times int) (networks map[string]int) {
	t.Helper()
	type holding struct {
		fds int
		rss int64
	}
	before := make([]holding, len(all))
	var ports []junk.Port
	for range 20 { // gossip comes and goes
		for i, v := range all {
			fds, rss := v.holds(t)
			before[i].fds, before[i].rss = max(before[i].fds, fds), max(before[i].rss, rss)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, v := range all {
		list, err := junk.Ports(v.pid(), netip.MustParseAddr("127.0.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, list...)
	}
	var replays [][]byte
	perPort := map[string][][]byte{}
	for to, list := range recorder.Recorded() {
		perPort[to] = list
		replays = append(replays, list...)
	}
	datagrams := recorder.Datagrams()
	gossips := len(all) <= 16 // an agent that speaks for all is the only member
	for end := time.Now().Add(time.Minute); gossips && len(datagrams) == 0 && time.Now().Before(end); datagrams = recorder.Datagrams() {
		time.Sleep(20 * time.Millisecond)
	}
	if len(replays) == 0 || gossips && len(datagrams) == 0 {
		t.Fatalf("%d streams and %d datagrams were recorded", len(replays), len(datagrams))
	}
	networks = map[string]int{}
	var wg sync.WaitGroup
	do := func(p junk.Port, k junk.Kind, seed int) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			_ = k.Do(context.Background(), p.Network, p.Address, r, 1200*time.Millisecond)
		})
	}
	for i, p := range ports {
		networks[p.Network]++
		if p.Network == "udp" {
			c, err := net.Dial("udp", p.Address)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(uint64(i), 7))
			for range 40 * times {
				_, _ = c.Write(junk.Datagram(r))
			}
			for _, b := range datagrams[:min(len(datagrams), 200)] {
				_, _ = c.Write(b)
			}
			c.Close()
			continue
		}
		for n := range times {
			for j, k := range junk.Kinds {
				do(p, k, i<<16|j<<8|n)
			}
			do(p, junk.Replay(replays), i<<16|0xff00|n)
		}
		for j := range perPort[p.Address] { // each that was said here
			do(p, junk.Replay(perPort[p.Address][j:j+1]), j)
		}
	}
	wg.Wait()
	t.Logf("%d kinds, %d recorded streams and %d datagrams at %v", len(junk.Kinds), len(replays), len(datagrams), networks)
	if networks["tcp"] < len(all) || networks["udp"] < len(all) {
		t.Fatalf("ports: %v", ports)
	}
	for i, v := range all {
		fds, rss := v.holds(t)
		for end := time.Now().Add(20 * time.Second); fds > before[i].fds && time.Now().Before(end); fds, rss = v.holds(t) {
			time.Sleep(20 * time.Millisecond)
		}
		if fds > before[i].fds || rss > before[i].rss+32<<20 {
			t.Errorf("process %d holds %d descriptors and %d MB after the junk, before it %d and %d", i, fds, rss>>20, before[i].fds, before[i].rss>>20)
		}
	}
	return networks
}
