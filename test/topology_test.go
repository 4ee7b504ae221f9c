package test

import (
	"fmt"
	"strings"
	"testing"
)

// edgesOf is the number of edges of each topology at w ranks, from the rules
// as the manual states them; rail as rehearsed here on h hosts of equal size.
var edgesOf = map[string]func(w int) int{
	"all_to_all":  func(w int) int { return w * (w - 1) },
	"fanout":      func(w int) int { return w - 1 },
	"incast":      func(w int) int { return w - 1 },
	"m2n":         func(w int) int { return (w / 2) * (w / 2) },
	"hotspot":     func(w int) int { return w * (w - 1) },
	"pairwise":    func(w int) int { return w / 2 * 2 },
	"bisection":   func(w int) int { return w / 2 * 2 },
	"ring":        func(w int) int { return ifMore(w, 1, w) },
	"shift":       func(w int) int { return ifMore(w, 1, w) },
	"permutation": func(w int) int { return ifMore(w, 1, w) },
	"hypercube": func(w int) int {
		n := 0
		for r := range w {
			for b := 1; b < w; b <<= 1 {
				if r^b < w {
					n++
				}
			}
		}
		return n
	},
}

func ifMore(w, than, n int) int {
	if w > than {
		return n
	}
	return 0
}

// Every topology at odd and even sizes: what was planned is what both sides
// saw, and every printed cell follows from the document.
func TestEveryTopology(t *testing.T) {
	for name, edges := range edgesOf {
		for _, w := range []int{1, 2, 3, 7, 16} {
			t.Run(fmt.Sprintf("%s/%d", name, w), func(t *testing.T) {
				whole(t, edges(w), 3, "run", "--spawn", fmt.Sprint(w), "--topology", name, "-c", "3")
			})
		}
	}
}

func TestRailOverFourHosts(t *testing.T) {
	for _, w := range []int{4, 8, 16} {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			local := w / 4
			e := whole(t, local*4*3, 2, "run", "--spawn", fmt.Sprint(w), "--spawn-hosts", "4", "--topology", "rail", "-c", "2")
			hosts := map[string]bool{}
			for _, r := range e.doc.Ranks {
				hosts[r.Host] = true
			}
			if len(hosts) != 4 {
				t.Errorf("%d host names in the document, want 4: %v", len(hosts), hosts)
			}
		})
	}
	for w, want := range map[int]int{1: 0, 2: 2, 3: 6, 7: 18} {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			hosts := min(w, 4)
			if w == 7 {
				// 4 hosts of 2, 2, 2 and 1: local rank 0 on four hosts, local rank 1 on three.
				want = 4*3 + 3*2
			}
			whole(t, want, 2, "run", "--spawn", fmt.Sprint(w), "--spawn-hosts", fmt.Sprint(hosts), "--topology", "rail", "-c", "2")
		})
	}
}

func TestCustomTopology(t *testing.T) {
	file := t.TempDir() + "/edges.txt"
	write(t, file, "0: 1, 2*3\n2: 0-1\n")
	whole(t, 4, 5, "run", "--spawn", "3", "--topology", "custom", "--custom", file, "-c", "5")
}

func TestStagesOfShift(t *testing.T) {
	whole(t, 5*4, 2, "run", "--spawn", "5", "--topology", "shift", "--offsets", "all", "-c", "2")
}

func TestVirtualRanksAndThreads(t *testing.T) {
	e := whole(t, 12*11, 4, "run", "--spawn", "3", "--ranks-per-proc", "4", "-n", "3", "-c", "4")
	if e.doc.Size != 12 || e.doc.Procs != 3 {
		t.Errorf("size %d procs %d, want 12 and 3", e.doc.Size, e.doc.Procs)
	}
	if !strings.Contains(e.stdout, "virtual") {
		t.Errorf("the table does not say that the ranks are virtual:\n%s", e.stdout)
	}
}

func TestRoundsAddUp(t *testing.T) {
	e := ok(t, "run", "--spawn", "4", "-c", "3", "--rounds", "5")
	if want := int64(4 * 3 * 3 * 5); e.doc.Connections.Planned != want || e.doc.Connections.Accepted != want {
		t.Errorf("connections %+v, want %d planned and accepted", e.doc.Connections, want)
	}
	recompute(t, e)
}

func TestShapes(t *testing.T) {
	for _, shape := range []string{"burst", "parallel=1", "parallel=4", "rate=500"} {
		t.Run(shape, func(t *testing.T) {
			whole(t, 12, 8, "run", "--spawn", "4", "-c", "8", "--connect", shape)
		})
	}
}

func TestIPv6(t *testing.T) {
	whole(t, 6, 4, "run", "--spawn", "3", "-c", "4", "-b", "::1")
}

// whole runs a job and holds planned, established and accepted against each other.
func whole(t *testing.T, edges, perEdge int, args ...string) ended {
	t.Helper()
	e := ok(t, args...)
	c := e.doc.Connections
	want := int64(edges * perEdge)
	if e.doc.Edges != int64(edges) || c.Planned != want || c.Started != want || c.Established != want || c.Accepted != want || c.Dead != 0 || c.Failed != 0 {
		t.Errorf("edges %d (want %d), connections %+v (want %d planned, started, established, accepted)", e.doc.Edges, edges, c, want)
	}
	if e.doc.Exit.Code != 0 {
		t.Errorf("document says exit %d, the process 0", e.doc.Exit.Code)
	}
	recompute(t, e)
	return e
}
