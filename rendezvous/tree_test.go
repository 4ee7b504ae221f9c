package rendezvous

import (
	"fmt"
	"slices"
	"testing"

	"rankstorm/rank"
)

// hosts places n processes, per of them on each host in turn.
func hosts(n, per int) []int32 {
	h := make([]int32, n)
	for i := range h {
		h[i] = int32(i / per)
	}
	return h
}

func TestTreeIsAHeapOnOneHostAndOnSingles(t *testing.T) {
	for _, n := range []int{1, 2, 3, 17, 18, 273, 274, 1024} {
		for _, k := range []int{1, 2, 16} {
			for _, per := range []int{n, 1} {
				tr := newTree(hosts(n, per), k)
				for p := range n {
					want := rank.NoProc
					if p > 0 {
						want = rank.Proc((p - 1) / k)
					}
					if got := tr.parent(rank.Proc(p)); got != want {
						t.Fatalf("n=%d k=%d per=%d: parent(%d) = %d, want %d", n, k, per, p, got, want)
					}
				}
			}
		}
	}
}

// heapDepth of n nodes by counting levels.
func heapDepth(n, k int) int {
	depth, level := 0, 1
	for n -= level; n > 0; n -= level {
		level *= k
		depth++
	}
	return depth
}

func TestTreeShape(t *testing.T) {
	for _, c := range []struct{ n, per, k int }{
		{1, 1, 16},
		{2, 1, 1},
		{8, 4, 2},
		{40, 7, 3},
		{64, 8, 16},
		{300, 64, 4},
		{1024, 64, 16},
		{100_000, 1, 16},
		{100_000, 8, 16},
		{100_000, 100_000, 16},
		{100_000, 64, 2},
	} {
		t.Run(fmt.Sprintf("%d by %d arity %d", c.n, c.per, c.k), func(t *testing.T) {
			host := hosts(c.n, c.per)
			tr := newTree(host, c.k)
			nHosts := (c.n + c.per - 1) / c.per
			most := heapDepth(nHosts, c.k) + heapDepth(min(c.per, c.n), c.k)
			size := make([]int, c.n)
			entries := map[int32]int{} // links into each host
			for p := c.n - 1; p >= 0; p-- {
				q := rank.Proc(p)
				size[p]++
				kids := tr.children(q)
				if len(kids) > 2*c.k || !slices.IsSorted(kids) {
					t.Fatalf("children of %d: %v", p, kids)
				}
				for _, kid := range kids {
					if tr.parent(kid) != q || tr.depth(kid) != tr.depth(q)+1 {
						t.Fatalf("child %d of %d has parent %d, depth %d", kid, p, tr.parent(kid), tr.depth(kid))
					}
				}
				if tr.depth(q) > most {
					t.Fatalf("depth of %d is %d, at most %d expected", p, tr.depth(q), most)
				}
				if up := tr.parent(q); up >= 0 {
					if up >= q {
						t.Fatalf("parent of %d is %d", p, up)
					}
					size[up] += size[p]
					if host[up] != host[p] {
						entries[host[p]]++
					}
				}
			}
			if size[0] != c.n {
				t.Fatalf("the tree holds %d processes of %d", size[0], c.n)
			}
			for h := range nHosts {
				want := 1
				if h == 0 {
					want = 0
				}
				if entries[int32(h)] != want {
					t.Fatalf("%d links lead into host %d, want %d", entries[int32(h)], h, want)
				}
			}
			sum := 1
			for _, kid := range tr.children(0) {
				sub := tr.subtree(kid)
				if len(sub) != size[kid] || !slices.IsSorted(sub) || sub[0] != kid {
					t.Fatalf("subtree of %d has %d processes, want %d", kid, len(sub), size[kid])
				}
				sum += len(sub)
			}
			if sum != c.n {
				t.Fatalf("subtrees of the root's children cover %d of %d", sum, c.n)
			}
		})
	}
}
