package collect

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func durations() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(0, 10_000_000), rapid.Int64Range(0, highestNS))
}

// The sparse form relies on our arithmetic being the library's.
func TestBucketsAreTheLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := durations().Draw(t, "ns")
		h := NewHistogram()
		if err := h.Record(v); err != nil {
			t.Fatal(err)
		}
		got := h.Buckets()
		if len(got) != 1 || got[0].Index != bucketIndex(v) || got[0].Count != 1 {
			t.Fatalf("%d ns lies in %v, want index %d", v, got, bucketIndex(v))
		}
		upper := bucketUpper(bucketIndex(v))
		if upper < v || !h.h.ValuesAreEquivalent(v, upper) || h.h.ValuesAreEquivalent(v, upper+1) {
			t.Fatalf("%d ns: highest equivalent %d is wrong", v, upper)
		}
		if upper-v > v/1000+1 {
			t.Fatalf("%d ns: bucket reaches to %d, more than 0.1 %%", v, upper)
		}
	})
}

func TestHistogramRefusesWhatItCannotHold(t *testing.T) {
	h := NewHistogram()
	for _, ns := range []int64{-1, highestNS + 1} {
		if err := (&indexList{}).Record(ns); err == nil {
			t.Errorf("index list: Record(%d) took it, want an error", ns)
		}
		if err := h.Record(ns); err == nil {
			t.Errorf("Record(%d) took it, want an error", ns)
		}
	}
	if err := h.Record(highestNS); err != nil {
		t.Errorf("Record(1 h) = %v", err)
	}
	if got := h.Buckets(); len(got) != 1 || got[0].Index != maxIndex {
		t.Errorf("buckets %v, want one at %d", got, maxIndex)
	}
	h.Reset()
	if got := h.Buckets(); got != nil {
		t.Errorf("after Reset: %v", got)
	}
}

// buckets records values both ways, which must agree.
func buckets(t *rapid.T, values []int64) []Bucket {
	h, l := NewHistogram(), &indexList{}
	for _, v := range values {
		if err := h.Record(v); err != nil {
			t.Fatal(err)
		}
		if err := l.Record(v); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(h.Buckets(), l.Buckets()) {
		t.Fatalf("histogram %v, index list %v", h.Buckets(), l.Buckets())
	}
	return h.Buckets()
}

func TestMergeBucketsIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOf(durations()).Draw(t, "a"), rapid.SliceOf(durations()).Draw(t, "b")
		got, err := MergeBuckets(buckets(t, a), buckets(t, b))
		if err != nil {
			t.Fatal(err)
		}
		if want := buckets(t, append(slices.Clone(a), b...)); !slices.Equal(got, want) {
			t.Fatalf("merged %v, want %v", got, want)
		}
	})
}

func TestMergeBucketsOverflow(t *testing.T) {
	huge := []Bucket{{Index: 3, Count: 1<<63 - 1}}
	if _, err := MergeBuckets(huge, []Bucket{{Index: 3, Count: 1}}); err == nil {
		t.Error("an overflowing count was merged")
	}
}

// The slow obvious quantile: sort, take the ⌈n·q⌉-th. Ours may differ by the
// width of a bucket only.
func TestQuantileAgainstSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(durations(), 1, 1500).Draw(t, "values")
		q := rapid.SampledFrom([]Permille{P50, P90, P99, P999}).Draw(t, "q")
		sorted := slices.Sorted(slices.Values(values))
		n := int64(len(sorted))
		got, ok := Quantile(buckets(t, values), q, sorted[0], sorted[n-1])
		if enough := n*(1000-int64(q)) >= 1000; ok != enough {
			t.Fatalf("%d values, q %d: ok %v, want %v", n, q, ok, enough)
		}
		if !ok {
			return
		}
		want := sorted[(n*int64(q)+999)/1000-1]
		if got < want || got > want+want/1000+1 {
			t.Fatalf("q %d of %d values is %d, want %d", q, n, got, want)
		}
		if got > sorted[n-1] {
			t.Fatalf("q %d is %d, above the maximum %d", q, got, sorted[n-1])
		}
	})
}

func TestQuantileNeedsSamples(t *testing.T) {
	for _, c := range []struct {
		n    int64
		q    Permille
		want bool
	}{
		{1, P50, false},
		{2, P50, true},
		{9, P90, false},
		{10, P90, true},
		{99, P99, false},
		{100, P99, true},
		{999, P999, false},
		{1000, P999, true},
	} {
		if _, ok := Quantile([]Bucket{{Index: 5, Count: c.n}}, c.q, 5, 5); ok != c.want {
			t.Errorf("q %d of %d samples: shown %v, want %v", c.q, c.n, ok, c.want)
		}
	}
}

func TestNearestRankDoesNotOverflow(t *testing.T) {
	if got, want := nearestRank(1<<62, 999), int64(1)<<62/1000*999; got < want || got > 1<<62 {
		t.Errorf("nearest rank %d of 2^62 values", got)
	}
}
