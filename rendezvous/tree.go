package rendezvous

import (
	"slices"

	"rankstorm/rank"
)

// A tree is the shape of the control tree: a pure function of the host of
// every process and of the arity.
//
// On one host, or with one process per host, it is the k-ary heap: parent(p) =
// (p-1)/k in table order. With several processes on several hosts it is two
// heaps put together, so that each host is entered over one link only: the
// first process of every host (its head) stands in a k-ary heap of the heads,
// and the processes of a host stand in a k-ary heap below their head. Fan-out
// is then at most 2k, the depth at most ⌈log_k hosts⌉ + ⌈log_k procs per host⌉
// (heaps of n have depth ⌊log_k(n(k-1)+1)⌋, rounded).
//
// Process 0 is the root. The parent of a process has always a lower number.
type tree struct {
	parents []rank.Proc // NoProc for process 0
	depths  []int32
	first   []int32     // children of p are list[first[p]:first[p+1]]
	list    []rank.Proc // ascending per parent
}

// newTree shapes the tree over len(host) processes; host[p] numbers the host
// of process p in any way. k < 1 counts as 1.
func newTree(host []int32, k int) *tree {
	n := len(host)
	k = max(k, 1)
	t := &tree{
		parents: make([]rank.Proc, n),
		depths:  make([]int32, n),
		first:   make([]int32, n+1),
	}
	heads := []rank.Proc{}             // first process of each host, ascending
	members := map[int32][]rank.Proc{} // processes of each host, ascending
	for p := range host {
		h := host[p]
		own := members[h]
		switch {
		case len(own) > 0:
			t.parents[p] = own[(len(own)-1)/k]
		case len(heads) > 0:
			t.parents[p] = heads[(len(heads)-1)/k]
			heads = append(heads, rank.Proc(p))
		default:
			t.parents[p] = rank.NoProc
			heads = append(heads, rank.Proc(p))
		}
		members[h] = append(own, rank.Proc(p))
		if up := t.parents[p]; up >= 0 {
			t.depths[p] = t.depths[up] + 1
			t.first[up+1]++
		}
	}
	for p := range n {
		t.first[p+1] += t.first[p]
	}
	t.list = make([]rank.Proc, max(n-1, 0))
	next := slices.Clone(t.first)
	for p := 1; p < n; p++ {
		up := t.parents[p]
		t.list[next[up]] = rank.Proc(p)
		next[up]++
	}
	return t
}

func (t *tree) parent(p rank.Proc) rank.Proc { return t.parents[p] }

// children of p, ascending; not to be changed.
func (t *tree) children(p rank.Proc) []rank.Proc { return t.list[t.first[p]:t.first[p+1]] }

// depth of p: links between it and process 0.
func (t *tree) depth(p rank.Proc) int { return int(t.depths[p]) }

// subtree of p: p and everybody below, ascending.
func (t *tree) subtree(p rank.Proc) []rank.Proc {
	all := []rank.Proc{p}
	for i := 0; i < len(all); i++ {
		all = append(all, t.children(all[i])...)
	}
	slices.Sort(all)
	return all
}
