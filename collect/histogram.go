package collect

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of every histogram: 1 ns to 1 h at 3 significant digits. 0 ns is
// a value too (a fake clock, or two stamps in one tick); more than 1 h is an
// error, never clamped.
const (
	lowestNS  = 1
	highestNS = 3_600_000_000_000
	digits    = 3

	// Geometry that follows from the three above: sub-buckets resolve
	// 2 × 10^3 single units, rounded up to the power of two 2,048; a value's
	// counts index is (octave + 1) × 1,024 + (value >> octave) - 1,024.
	subBits  = 11
	halfBits = subBits - 1
	half     = 1 << halfBits
)

// maxIndex is the counts index of the largest value.
var maxIndex = bucketIndex(highestNS)

// bucketIndex is the HdrHistogram counts index of v ns, 0 ≤ v ≤ 1 h.
func bucketIndex(v int64) int32 {
	octave := bits.Len64(uint64(v)|(2*half-1)) - subBits
	return int32(octave)<<halfBits + int32(v>>octave)
}

// bucketUpper is the highest value, ns, that shares the counts index.
func bucketUpper(index int32) int64 {
	if index < 2*half {
		return int64(index)
	}
	octave := index>>halfBits - 1
	sub := int64(index - octave<<halfBits)
	return (sub+1)<<octave - 1
}

// Histogram records durations, 1 ns … 1 h at 3 digits, for one goroutine: 270 KB.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram makes an empty one.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(lowestNS, highestNS, digits)}
}

// recorder is what a step's durations are counted in: a Histogram, or an
// indexList for few of them.
type recorder interface {
	Record(ns int64) error
	Buckets() []Bucket
}

// fewSamples is up to where sorting indices is cheaper than going through the
// 29 thousand counts of a Histogram (many virtual ranks, few connections each).
const fewSamples = 2048

// indexList gives the same buckets as a Histogram.
type indexList []int32

func (l *indexList) Record(ns int64) error {
	if ns < 0 || ns > highestNS {
		return rangeError(ns)
	}
	*l = append(*l, bucketIndex(ns))
	return nil
}

func (l *indexList) Buckets() []Bucket {
	slices.Sort(*l)
	var out []Bucket
	for _, i := range *l {
		if n := len(out); n > 0 && out[n-1].Index == i {
			out[n-1].Count++
			continue
		}
		out = append(out, Bucket{Index: i, Count: 1})
	}
	return out
}

func rangeError(ns int64) error {
	if ns < 0 {
		return fmt.Errorf("duration %d ns is negative: the clock went back", ns)
	}
	return fmt.Errorf("duration %d ns is above the 1 h that a histogram holds", ns)
}

// Record counts one duration. A negative one, or one above 1 h, is an error and
// is not counted.
func (h *Histogram) Record(ns int64) error {
	if ns < 0 || ns > highestNS {
		return rangeError(ns)
	}
	return h.h.RecordValue(ns)
}

// Reset empties it and keeps the memory.
func (h *Histogram) Reset() { h.h.Reset() }

// Buckets returns the non-empty buckets in ascending order.
func (h *Histogram) Buckets() []Bucket {
	var out []Bucket
	for i, n := range h.h.Export().Counts {
		if n > 0 {
			out = append(out, Bucket{Index: int32(i), Count: n})
		}
	}
	return out
}

// MergeBuckets adds two sparse histograms exactly. Both must be ascending; the
// inputs are not changed. A count that overflows is an error.
func MergeBuckets(a, b []Bucket) ([]Bucket, error) {
	out := make([]Bucket, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Index < b[0].Index:
			out = append(out, a[0])
			a = a[1:]
		case len(a) == 0 || b[0].Index < a[0].Index:
			out = append(out, b[0])
			b = b[1:]
		default:
			n, ok := addCount(a[0].Count, b[0].Count)
			if !ok {
				return nil, fmt.Errorf("histogram: the count of bucket %d overflows", a[0].Index)
			}
			out = append(out, Bucket{Index: a[0].Index, Count: n})
			a, b = a[1:], b[1:]
		}
	}
	return out, nil
}

// Permille names a quantile in thousandths: 500 is the median, 999 is p99.9.
type Permille int64

// The quantiles that tables and documents show.
const (
	P50  Permille = 500
	P90  Permille = 900
	P99  Permille = 990
	P999 Permille = 999
)

// Quantile of a sparse histogram, from its buckets alone (nearest rank): with n
// values in all and r = ⌈n × q⌉, it is the highest value of the first bucket at
// which the running count reaches r, clamped to the exact minNS and maxNS. It
// errs by less than 0.1 %. ok is false ("n/a") if n < 1/(1-q): p50 needs 2
// samples, p90 10, p99 100, p99.9 1,000.
func Quantile(buckets []Bucket, q Permille, minNS, maxNS int64) (ns int64, ok bool) {
	var n int64
	for _, b := range buckets {
		n += b.Count
	}
	if q < 0 || q >= 1000 || n <= 0 || n < ceilDiv(1000, 1000-int64(q)) {
		return 0, false
	}
	want := nearestRank(n, int64(q))
	var seen int64
	for _, b := range buckets {
		seen += b.Count
		if seen >= want {
			return min(max(bucketUpper(b.Index), minNS), maxNS), true
		}
	}
	return maxNS, true
}

// nearestRank is ⌈n × q/1000⌉, at least 1, without overflow.
func nearestRank(n, q int64) int64 {
	whole, rest := n/1000, n%1000
	return max(1, whole*q+ceilDiv(rest*q, 1000))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// addCount adds two non-negative numbers; ok is false on overflow.
func addCount(a, b int64) (int64, bool) {
	if a > math.MaxInt64-b {
		return 0, false
	}
	return a + b, true
}
