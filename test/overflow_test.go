package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/need"
)

// overflowed is an incast whose target comes 1.5 s late with a queue of eight, alone in a network namespace, and what the
// namespace's own counters say of it.
type overflowed struct {
	code           int
	stdout, stderr string
	path           string
	drops          int64 // ListenDrops after less before
	overflows      int64
	doc            struct {
		Connections struct{ Planned, Established, Dead, Failed int64 }
		Phases      []struct {
			Phase string
			Ranks []struct {
				Rank   int
				LateNS int64 `json:"late_ns"`
				GapNS  int64 `json:"gap_ns"`
			}
			Steps []struct {
				Step     string
				Side     string
				Hist     [][2]int64
				Failures map[string]int64
			}
		}
		Causes []struct {
			Kind, Evidence, Fix string
			Rank                *int
			Count               *int64
		}
	}
}

func overflow(t *testing.T, conns int, args ...string) overflowed {
	t.Helper()
	if out, err := exec.Command("unshare", "-n", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		need.Absent(t, "netns", "no network namespace of its own: %v: %s", err, out)
	}
	dir := t.TempDir()
	o := overflowed{path: filepath.Join(dir, "result.json")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args = append([]string{
		"-c", `ip link set lo up && cat /proc/net/netstat > before && { "$@"; code=$?; cat /proc/net/netstat > after; exit $code; }`, "sh",
		binary, "run", "--spawn", "5", "--topology", "incast", "-c", fmt.Sprint(conns / 4),
		"--delay", "rank=0,phase=connect,ms=1500", "--backlog", "8", "-o", o.path,
	}, args...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o.code, o.stdout, o.stderr = exitCode(err), stdout.String(), stderr.String()
	b, err := os.ReadFile(o.path)
	if err != nil {
		t.Fatalf("%v\n%s", err, o.stderr)
	}
	if err := json.Unmarshal(b, &o.doc); err != nil {
		t.Fatal(err)
	}
	before, after := netstat(t, filepath.Join(dir, "before")), netstat(t, filepath.Join(dir, "after"))
	o.drops, o.overflows = after["ListenDrops"]-before["ListenDrops"], after["ListenOverflows"]-before["ListenOverflows"]
	return o
}

// netstat reads the TcpExt counters of a copy of /proc/net/netstat.
func netstat(t *testing.T, path string) map[string]int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	out := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case f[0] != "TcpExt:":
		case names == nil:
			names = f
		default:
			for i := 1; i < len(f); i++ {
				var n int64
				if _, err := fmt.Sscan(f[i], &n); err != nil {
					t.Fatal(err)
				}
				out[names[i]] = n
			}
		}
	}
	return out
}

// durations of a step of the initiators in connect, and the longest that an initiator stood still there.
func (o *overflowed) durations(step string) (hist [][2]int64, gapNS, lateNS int64) {
	for _, p := range o.doc.Phases {
		if p.Phase != "connect" {
			continue
		}
		for _, r := range p.Ranks {
			if r.Rank == 0 {
				lateNS = r.LateNS
			} else {
				gapNS = max(gapNS, r.GapNS)
			}
		}
		for _, s := range p.Steps {
			if s.Step == step && s.Side == "initiator" {
				hist = s.Hist
			}
		}
	}
	return hist, gapNS, lateNS
}

// teeth counts durations at the moments ns, which a kernel timer is late for by up to an eighth.
func teeth(hist [][2]int64, slackNS int64, moments ...int64) (at map[int64]int64, off [][2]int64) {
	at = map[int64]int64{}
	for _, b := range hist {
		found := false
		for _, m := range moments {
			if b[0] >= m && b[0] <= m+m/8+slackNS {
				at[m] += b[1]
				found = true
				break
			}
		}
		if !found {
			off = append(off, b)
		}
	}
	return at, off
}

func (o *overflowed) cause(kind string) (evidence, fix string, count int64, rank int) {
	rank = -1
	for _, c := range o.doc.Causes {
		if c.Kind == kind {
			if c.Count != nil {
				count = *c.Count
			}
			if c.Rank != nil {
				rank = *c.Rank
			}
			return c.Evidence, c.Fix, count, rank
		}
	}
	return "", "", 0, rank
}

// judge what holds whatever becomes of the connections: the drops are those of the namespace, most of them as the queue was
// full, and the fix is named once.
func (o *overflowed) judge(t *testing.T, conns int) {
	t.Helper()
	evidence, _, count, rank := o.cause("drops")
	if o.drops == 0 || count != o.drops || o.overflows == 0 || o.overflows > o.drops || rank != 0 {
		t.Errorf("drops named: %d of rank %d; the namespace counts %d drops, %d overflows: %s", count, rank, o.drops, o.overflows, evidence)
	}
	fix := fmt.Sprintf("the listen queue of rank 0 has --backlog 8 and %d connections may reach it at once: set --backlog %d (net.core.somaxconn allows", conns, conns)
	named := 0
	for _, c := range o.doc.Causes {
		if strings.HasPrefix(c.Fix, fix) {
			named++
		}
	}
	if named != 1 {
		t.Errorf("the fix is named %d times, want once: %s\n%s", named, fix, o.stdout)
	}
}

// With few connections all finish, and each waited for the kernel's own timers: SYNs for 1, 2, 3, 4, 5 s and doubling
// then (net.ipv4.tcp_syn_linear_timeouts, 1, 3, 7 s without), hellos for 200 ms, once more for the tail loss probe and
// doubling then, or for the target itself.
func TestOverflowStandsAtTheTimersOfTheKernel(t *testing.T) {
	o := overflow(t, 40)
	c := o.doc.Connections
	if o.code != 0 || c.Planned != 40 || c.Established != 40 || c.Dead+c.Failed != 0 {
		t.Fatalf("exit %d, connections %+v, want all of 40\n%s", o.code, c, o.stderr)
	}
	o.judge(t, 40)
	evidence, _, _, _ := o.cause("drops")
	const ms = int64(time.Millisecond)
	syn := []int64{1000 * ms, 3000 * ms, 7000 * ms, 15000 * ms}
	if b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_syn_linear_timeouts"); err == nil && strings.TrimSpace(string(b)) == "4" {
		syn = []int64{1000 * ms, 2000 * ms, 3000 * ms, 4000 * ms, 5000 * ms, 7000 * ms, 11000 * ms, 19000 * ms}
	}
	connect, gap, _ := o.durations("connect")
	slack := 20*ms + gap
	at, off := teeth(connect, slack, syn...)
	var waited int64
	for _, n := range at {
		waited += n
	}
	for _, b := range off {
		if b[0] > 100*ms+gap { // taken at once, as the queue had room
			t.Errorf("%d connects took %d ns, which is no tooth of %v", b[1], b[0], syn)
		}
	}
	if waited < 10 || at[1000*ms] > 0 {
		t.Errorf("teeth %v: of 40 at most 9 + 8 have room before the target wakes at 1.5 s, and none at 1 s", at)
	}
	if want := fmt.Sprintf("%d connects waited for SYN retransmissions (", waited); slack < 50*ms && !strings.Contains(evidence, want) {
		t.Errorf("%q lacks %q", evidence, want)
	}
	establish, _, late := o.durations("establish")
	hello, off := teeth(establish, slack, 200*ms, 400*ms, 800*ms, 1600*ms, 600*ms, 1400*ms, 3000*ms, 3200*ms, 6200*ms, 6400*ms)
	for _, b := range off {
		if b[0] > 100*ms+gap && (b[0] < late-100*ms-gap || b[0] > late+100*ms+slack) {
			t.Errorf("%d hellos took %d ns, which is neither a tooth nor the target's %d ns", b[1], b[0], late)
		}
	}
	t.Logf("%s; connect %v, establish %v, slack %v", evidence, at, hello, time.Duration(slack))
}

// With many connections and 10 s, the kernel lets some come up that the target never sees: they are dead, not failed.
func TestUnansweredConnectionsAreDead(t *testing.T) {
	o := overflow(t, 300, "--phase-timeout", "10s")
	c := o.doc.Connections
	if o.code != 1 || c.Planned != 300 || c.Dead == 0 || c.Established+c.Dead+c.Failed != 300 {
		t.Fatalf("exit %d, connections %+v, want 1 and unanswered ones\n%s", o.code, c, o.stderr)
	}
	o.judge(t, 300)
	var connect, unanswered int64
	for _, p := range o.doc.Phases {
		for _, s := range p.Steps {
			switch {
			case p.Phase == "connect" && s.Step == "connect":
				for _, b := range s.Hist {
					connect += b[1]
				}
			case p.Phase == "connect" && s.Step == "establish":
				unanswered = s.Failures["timeout"]
			}
		}
	}
	if unanswered != c.Dead || connect != c.Established+c.Dead {
		t.Errorf("%d connects answered, %d of them never by the target; connections %+v", connect, unanswered, c)
	}
	evidence, fix, count, rank := o.cause("dead")
	if count != c.Dead || rank != 0 || !strings.Contains(fix, "--backlog 8") {
		t.Errorf("the dead are told as %d of rank %d: %q, %q", count, rank, evidence, fix)
	}
	recompute(t, ended{stdout: o.stdout, path: o.path})
	t.Logf("%+v, %d drops: %s", c, o.drops, evidence)
}
