package collect

import (
	"cmp"
	"slices"
)

// thinned keeps a bounded part of a series without end: all of it while it is short, then every second, fourth,
// eighth … of each kind, counted from its first, and always the last of each kind and those that were worst. What is
// kept at last depends on the series alone.
type thinned[T any] struct {
	most   int   // kept of the regular ones; kinds are fewer
	stride int64 // 0 counts as 1
	kept   []thinEntry[T]
	last   map[string]thinEntry[T] // of each kind, if it is not in kept
	seen   map[string]int64        // of each kind
	all    int64
	worst  map[string][]thinEntry[T] // by what is measured, the worst first
}

type thinEntry[T any] struct {
	kind  string
	order int64 // in the whole series
	nth   int64 // of its kind
	worth int64 // in worst: what was measured
	value T
}

// worstKept is how many of the worst are kept for each thing that is measured.
const worstKept = 16

// add takes the next of the series.
func (t *thinned[T]) add(kind string, value T) {
	if t.seen == nil {
		t.seen, t.last, t.worst, t.stride = map[string]int64{}, map[string]thinEntry[T]{}, map[string][]thinEntry[T]{}, 1
	}
	e := thinEntry[T]{kind: kind, order: t.all, nth: t.seen[kind], value: value}
	t.all++
	t.seen[kind]++
	delete(t.last, kind)
	if e.nth%t.stride != 0 {
		t.last[kind] = e
		return
	}
	t.kept = append(t.kept, e)
	for len(t.kept) > t.most && len(t.kept) > len(t.seen) {
		t.stride *= 2
		t.kept = slices.DeleteFunc(t.kept, func(e thinEntry[T]) bool {
			if e.nth%t.stride == 0 {
				return false
			}
			if e.nth == t.seen[e.kind]-1 {
				t.last[e.kind] = e
			}
			return true
		})
	}
}

// measured says what the one just added measures; of equals the first counts as worse.
func (t *thinned[T]) measured(what string, worth int64, value T) {
	list := t.worst[what]
	if len(list) == worstKept && list[worstKept-1].worth >= worth {
		return
	}
	e := thinEntry[T]{order: t.all - 1, worth: worth, value: value}
	at, _ := slices.BinarySearchFunc(list, e, func(x, y thinEntry[T]) int {
		return cmp.Or(cmp.Compare(y.worth, x.worth), cmp.Compare(x.order, y.order))
	})
	list = slices.Insert(list, at, e)
	t.worst[what] = list[:min(len(list), worstKept)]
}

// list returns what was kept, in the order of the series, and how many were not.
func (t *thinned[T]) list() (kept []T, left int64) {
	all := slices.Clone(t.kept)
	for _, e := range t.last {
		all = append(all, e)
	}
	for _, list := range t.worst {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(x, y thinEntry[T]) int { return cmp.Compare(x.order, y.order) })
	all = slices.CompactFunc(all, func(x, y thinEntry[T]) bool { return x.order == y.order })
	kept = make([]T, len(all))
	for i, e := range all {
		kept[i] = e.value
	}
	return kept, t.all - int64(len(all))
}
