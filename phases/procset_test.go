package phases

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankstorm/rank"
)

func drawSet(t *rapid.T, name string) (ProcSet, map[rank.Proc]bool) {
	list := rapid.SliceOfN(rapid.Int32Range(0, 200), 0, 30).Draw(t, name)
	m := map[rank.Proc]bool{}
	var s ProcSet
	for _, p := range list {
		s.Add(rank.Proc(p))
		m[rank.Proc(p)] = true
	}
	return s, m
}

func sorted(m map[rank.Proc]bool) []rank.Proc { return slices.Sorted(maps.Keys(m)) }

func TestProcSetAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, am := drawSet(t, "a")
		b, bm := drawSet(t, "b")
		if got := slices.Collect(a.All()); !slices.Equal(got, sorted(am)) {
			t.Fatalf("All %v, want %v", got, sorted(am))
		}
		if a.Len() != len(am) {
			t.Fatalf("Len %d, want %d", a.Len(), len(am))
		}
		union, inter, minus := map[rank.Proc]bool{}, map[rank.Proc]bool{}, map[rank.Proc]bool{}
		for p := rank.Proc(-1); p <= 300; p++ {
			if a.Has(p) != am[p] {
				t.Fatalf("Has(%d) = %v", p, a.Has(p))
			}
			if am[p] || bm[p] {
				union[p] = true
			}
			if am[p] && bm[p] {
				inter[p] = true
			}
			if am[p] && !bm[p] {
				minus[p] = true
			}
		}
		if a.Intersects(b) != (len(inter) > 0) {
			t.Fatalf("Intersects = %v, shared %v", a.Intersects(b), sorted(inter))
		}
		if a.Contains(b) != (len(inter) == len(bm)) {
			t.Fatalf("Contains = %v", a.Contains(b))
		}
		check := func(name string, change func(s *ProcSet), want map[rank.Proc]bool) {
			c := a.Clone()
			change(&c)
			if got := slices.Collect(c.All()); !slices.Equal(got, sorted(want)) {
				t.Fatalf("%s %v, want %v", name, got, sorted(want))
			}
			if got := slices.Collect(a.All()); !slices.Equal(got, sorted(am)) {
				t.Fatalf("%s changed the original through a clone", name)
			}
		}
		check("Union", func(s *ProcSet) { s.Union(b) }, union)
		check("Intersect", func(s *ProcSet) { s.Intersect(b) }, inter)
		check("Subtract", func(s *ProcSet) { s.Subtract(b) }, minus)
	})
}

func TestFull(t *testing.T) {
	for _, n := range []int{-1, 0, 1, 63, 64, 65, 128, 1000} {
		s := Full(n)
		if s.Len() != max(n, 0) || n > 0 && !s.Has(rank.Proc(n-1)) || s.Has(rank.Proc(n)) {
			t.Errorf("Full(%d) = %x", n, s)
		}
	}
	var s ProcSet
	s.Add(-1)
	if s.Len() != 0 {
		t.Error("a negative process was added")
	}
}

func BenchmarkProcSetUnion(b *testing.B) {
	s, o := Full(4096), Full(4096)
	b.ReportAllocs()
	for b.Loop() {
		s.Union(o)
	}
}
