package rendezvous

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rankstorm/rank"
)

// crowd is n processes on each host in order, numbered if first ≥ 0, all come
// at the given time.
func crowd(at time.Duration, first int, hosts ...string) []arrival {
	var out []arrival
	for _, h := range hosts {
		name, count, _ := strings.Cut(h, "*")
		for range max(atoi(count), 1) {
			r := &rank.Record{Host: name, PID: 100 + len(out), LauncherProc: -1}
			if first >= 0 {
				r.LauncherProc = first + len(out)
			}
			out = append(out, arrival{record: r, at: at, gossiped: true})
		}
	}
	return out
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("h%d", i))
	}
	return names
}

func TestWaitingLines(t *testing.T) {
	const s = time.Second
	slurm := Launch{Family: "Slurm", Launched: 8, Hosts: []LaunchHost{{"h0", 5}, {"h1", 1}, {"h2", 1}, {"h3.lab", 1}}}
	silent := crowd(s, -1, "h0", "h1", "h2")
	silent[2].gossiped = false
	for _, c := range []struct {
		name  string
		facts waitingFacts
		want  []string
	}{
		{"everybody is there", waitingFacts{procs: 2, now: s, present: crowd(0, -1, "h0", "h1")}, nil},
		{
			"nobody yet, early",
			waitingFacts{procs: 4, now: 2 * s, present: crowd(0, -1, "h0")},
			[]string{"waiting for 3 of 4 processes for 2 s: have h0×1"},
		},
		{
			"nobody but me",
			waitingFacts{procs: 4, now: 7 * s, present: crowd(0, -1, "h0"), addr: "h0:7471"},
			[]string{
				"waiting for 3 of 4 processes for 7 s: have h0×1",
				"nobody but this process has come to h0:7471: start the others with the same -C, and let no firewall block that TCP port",
			},
		},
		{
			"one came and was refused",
			waitingFacts{procs: 2, now: 7 * s, present: crowd(0, -1, "h0"), addr: "h0:7471", refused: []refusal{{mismatch{what: "build id", theirs: "1", ours: "2"}, 1, "h1 pid 7"}}},
			[]string{"waiting for 1 of 2 processes for 7 s: have h0×1", "h1 pid 7 was refused: build id is 1 there, 2 here"},
		},
		{
			"one came and left",
			waitingFacts{procs: 2, now: 7 * s, present: crowd(0, -1, "h0"), addr: "h0:7471", left: 1},
			[]string{"waiting for 1 of 2 processes for 7 s: have h0×1"},
		},
		{
			"nobody but me, and the wait is over",
			waitingFacts{procs: 4, now: 2 * s, present: crowd(0, -1, "h0"), addr: "h0:7471", over: true},
			[]string{
				"waiting for 3 of 4 processes for 2 s: have h0×1",
				"nobody but this process has come to h0:7471: start the others with the same -C, and let no firewall block that TCP port",
			},
		},
		{
			"pdsh's fan-out",
			waitingFacts{procs: 40, now: 7 * s, present: crowd(s, 0, numbered(32)...)},
			[]string{
				"waiting for 8 of 40 processes for 7 s: have h0×1, h1×1, h2×1, h3×1, h4×1, h5×1, h6×1, h7×1, h8×1, h9×1, h10×1, h11×1, h12×1, h13×1, h14×1, h15×1 and 16 more; missing process numbers 32-39; nobody came for 6 s",
				"exactly 32 came: pdsh starts only 32 at a time by default: use pdsh -f 40",
			},
		},
		{
			"32, but still coming",
			waitingFacts{procs: 40, now: 7 * s, present: crowd(3*s, -1, "h0*32")},
			[]string{"waiting for 8 of 40 processes for 7 s: have h0×32"},
		},
		{
			"32 of srun have another cause",
			waitingFacts{procs: 40, now: 9 * s, present: crowd(0, -1, "h0*32"), launch: Launch{Family: "Slurm", Launched: 40, Hosts: []LaunchHost{{"h0", 32}, {"h1", 8}}}},
			[]string{
				"waiting for 8 of 40 processes for 9 s: have h0×32; missing on h1 (8 of 8); nobody came for 9 s",
				"all of the missing belong to h1: is that host up, and can it reach ?",
			},
		},
		{
			"clush's fan-out",
			waitingFacts{procs: 100, now: 8 * s, present: crowd(s, -1, "h0*64")},
			[]string{
				"waiting for 36 of 100 processes for 8 s: have h0×64; nobody came for 7 s",
				"exactly 64 came: clush starts only 64 at a time by default, and pdsh as many as its -f says: use -f 100",
			},
		},
		{
			"a host of the step is silent",
			waitingFacts{procs: 8, now: 8 * s, present: crowd(s, 0, "h0*5", "h1", "h2"), launch: slurm, addr: "h0:18464"},
			[]string{
				"waiting for 1 of 8 processes for 8 s: have h0×5, h1×1, h2×1; missing process numbers 7; missing on h3 (1 of 1); nobody came for 7 s",
				"all of the missing belong to h3: is that host up, and can it reach h0:18464?",
			},
		},
		{
			"one process of a host",
			waitingFacts{procs: 8, now: 8 * s, present: crowd(s, -1, "h0*4", "h1", "h2", "h3"), launch: slurm},
			[]string{
				"waiting for 1 of 8 processes for 8 s: have h0×4, h1×1, h2×1, h3×1; missing on h0 (1 of 5); nobody came for 7 s",
				"all of the missing belong to h0: look at the output of its processes",
			},
		},
		{
			"two hosts",
			waitingFacts{procs: 8, now: 8 * s, present: crowd(s, -1, "h0*5", "h1"), launch: slurm},
			[]string{"waiting for 2 of 8 processes for 8 s: have h0×5, h1×1; missing on h2 (1 of 1), h3 (1 of 1); nobody came for 7 s"},
		},
		{
			"hosts without counts",
			waitingFacts{procs: 4, now: 8 * s, present: crowd(s, -1, "h0*2"), launch: Launch{Family: "Slurm", Launched: 4, Hosts: []LaunchHost{{"h0", 0}, {"h1", 0}}}},
			[]string{
				"waiting for 2 of 4 processes for 8 s: have h0×2; missing on h1; nobody came for 7 s",
				"all of the missing belong to h1: is that host up, and can it reach ?",
			},
		},
		{
			"the launcher calls hosts otherwise",
			waitingFacts{procs: 8, now: 8 * s, present: crowd(s, -1, "box*7"), launch: slurm},
			[]string{"waiting for 1 of 8 processes for 8 s: have box×7; nobody came for 7 s"},
		},
		{
			"no list of hosts, but a pattern",
			waitingFacts{procs: 8, now: 8 * s, present: crowd(s, -1, "n9*2", "n10*2", "n1", "n2*2")},
			[]string{
				"waiting for 1 of 8 processes for 8 s: have n1×1, n2×2, n9×2, n10×2; nobody came for 7 s",
				"all of the missing belong to n1: look at the output of its processes",
			},
		},
		{
			"no pattern",
			waitingFacts{procs: 9, now: 8 * s, present: crowd(s, -1, "n0*3", "n1", "n2*2")},
			[]string{"waiting for 3 of 9 processes for 8 s: have n0×3, n1×1, n2×2; nobody came for 7 s"},
		},
		{
			"-P is more than the launcher's",
			waitingFacts{procs: 16, now: 8 * s, present: crowd(s, -1, "h0*5", "h1", "h2", "h3"), launch: Launch{Family: "Slurm", Launched: 8}},
			[]string{
				"waiting for 8 of 16 processes for 8 s: have h0×5, h1×1, h2×1, h3×1; nobody came for 7 s",
				"Slurm started 8 of the 16 processes that -P says: are the others started too?",
			},
		},
		{
			"refused for another P and another job key",
			waitingFacts{procs: 4, now: 3 * s, present: crowd(s, -1, "h0*2"), refused: []refusal{
				{mismatch{"number of processes (-P)", "8", "4", "; start the same command everywhere"}, 1, "h1 pid 7"},
				{mismatch{"job key", `"b"`, `"a"`, ""}, 3, "h2 pid 8"},
				{mismatch{rest: "process number 1 is taken by h0 pid 5"}, 1, "h3 pid 9"},
			}},
			[]string{
				"waiting for 2 of 4 processes for 3 s: have h0×2",
				"h1 pid 7 was refused: number of processes (-P) is 8 there, 4 here; start the same command everywhere",
				`3 were refused, the first one was h2 pid 8: job key is "b" there, "a" here`,
				"h3 pid 9 was refused: process number 1 is taken by h0 pid 5",
			},
		},
		{
			"came and went",
			waitingFacts{procs: 3, now: 8 * s, present: crowd(s, -1, "h0", "h1"), left: 2, gone: []departure{{record: &rank.Record{Host: "h2", PID: 7, LauncherProc: 2}}}},
			[]string{
				"waiting for 1 of 3 processes for 8 s: have h0×1, h1×1; nobody came for 7 s",
				"came and ended again: process 2 (h2) pid 7: their own output says why",
			},
		},
		{
			"lost at once, before it is quiet",
			waitingFacts{procs: 5, now: 4 * s, addr: "h0:7471", present: crowd(s, -1, "h0"), left: 4, gone: []departure{
				{&rank.Record{Host: "h10", PID: 9, LauncherProc: -1}, 1500 * time.Millisecond},
				{&rank.Record{Host: "h2", PID: 7, LauncherProc: -1}, 2 * s},
				{&rank.Record{Host: "h2", PID: 8, LauncherProc: -1}, 0},
			}},
			[]string{
				"waiting for 4 of 5 processes for 4 s: have h0×1",
				"lost, silent for 2s: a process (h2) pid 7, a process (h10) pid 9: are they stopped, or cut off from h0:7471?",
				"came and ended again: a process (h2) pid 8: their own output says why",
			},
		},
		{
			"gossip is silent, and it is known why",
			waitingFacts{procs: 3, now: 9 * s, present: silent, trouble: []string{"process 1 (h1) pid 101 has no descriptors left"}},
			[]string{
				"waiting for gossip from 1 of 3 processes for 9 s: h2 pid 102",
				"process 1 (h1) pid 101 has no descriptors left",
			},
		},
		{
			"gossip is silent",
			waitingFacts{procs: 3, now: 9 * s, present: silent},
			[]string{
				"waiting for gossip from 1 of 3 processes for 9 s: h2 pid 102",
				"gossip needs TCP and UDP between all processes on the ports they took: does a firewall stand between?",
			},
		},
	} {
		if got := waitingLines(&c.facts); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n  %s\nwant\n  %s", c.name, strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
		}
	}
}

// Every second of 10,000 missing still is a line.
func TestWaitingLinesAreBounded(t *testing.T) {
	f := waitingFacts{procs: 10_000, now: 9 * time.Second, launch: Launch{Family: "Slurm", Launched: 10_000}}
	for i := range 5000 {
		f.present = append(f.present, arrival{record: &rank.Record{Host: fmt.Sprintf("host%d", i), LauncherProc: 2 * i}})
		f.launch.Hosts = append(f.launch.Hosts, LaunchHost{fmt.Sprintf("host%d", i), 2})
	}
	for i := range 100 {
		f.refused = append(f.refused, refusal{mismatch{rest: fmt.Sprint(i)}, 1, "x"})
	}
	lines := waitingLines(&f)
	if len(lines) > 10 {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if len(l) > 1500 {
			t.Errorf("%d bytes: %.100s", len(l), l)
		}
	}
}
