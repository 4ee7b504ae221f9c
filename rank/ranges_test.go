package rank

import (
	"math"
	"testing"
)

func TestStrideBytes(t *testing.T) {
	for _, c := range []struct{ block, batch, want int64 }{{1, 1, 4096}, {4096, 1, 4096}, {4096, 3, 12288}, {4097, 1, 8192}, {1 << 20, 16, 16 << 20}} {
		if got, err := StrideBytes(c.block, c.batch); got != c.want || err != nil {
			t.Errorf("%d × %d: %d, %v, want %d", c.block, c.batch, got, err, c.want)
		}
	}
	_, err := StrideBytes(0, 1)
	checkError(t, "zero", err, KindUsage, "block of 0 bytes × batch of 1: give at least 1 of each")
	_, err = StrideBytes(math.MaxInt64/2, 2)
	checkError(t, "big", err, KindUsage, "block of 4611686018427387903 bytes × batch of 2 is too big to count: lower one")
}

func TestRange(t *testing.T) {
	e := Edge{From: 3, To: 1}
	for _, c := range []struct {
		policy                         RangePolicy
		segment, stride, slots, pos, k int64
		offset, size                   int64
		kind                           Kind
		err                            string
	}{
		{policy: Shared, segment: 10000, stride: 4096, slots: 2, pos: 2, k: 3, size: 10000},
		{policy: PerInitiator, segment: 1 << 20, stride: 4096, slots: 4, pos: 0, k: 4, size: 1 << 18},
		{policy: PerInitiator, segment: 1 << 20, stride: 4096, slots: 64, pos: 3, k: 4, offset: 3 << 18, size: 1 << 18},
		{policy: PerInitiator, segment: 100_000, stride: 4096, slots: 8, pos: 2, k: 3, offset: 2 * 32768, size: 32768},
		{
			policy: PerInitiator, segment: 100_000, stride: 4096, slots: 9, pos: 2, k: 3, kind: KindUsage,
			err: "edge 3 → 1: 9 slots of 4096 bytes do not fit into 32768 bytes (per_initiator, 3 initiators): the segment needs at least 110592 bytes",
		},
		{
			policy: Shared, segment: 8191, stride: 4096, slots: 2, pos: 0, k: 3, kind: KindUsage,
			err: "edge 3 → 1: 2 slots of 4096 bytes do not fit into 8191 bytes (shared, 3 initiators): the segment needs at least 8192 bytes",
		},
		{policy: PerInitiator, segment: 0, stride: 4096, slots: 0, pos: 0, k: 3},
		{
			policy: Shared, segment: 1, stride: math.MaxInt64, slots: 2, pos: 0, k: 1, kind: KindUsage,
			err: "edge 3 → 1: 2 slots of 9223372036854775807 bytes are too big to count: lower block, batch or threads",
		},
		{
			policy: PerInitiator, segment: 1, stride: 1 << 60, slots: 2, pos: 0, k: 8, kind: KindUsage,
			err: "edge 3 → 1: 8 parts of 2305843009213693952 bytes are too big to count: lower block, batch or threads",
		},
		{
			policy: Shared, segment: 1, stride: 1, slots: 1, pos: 3, k: 3, kind: KindInternal,
			err: "edge 3 → 1: range of position 3 of 3, 1 slots of 1 bytes, segment of 1 bytes",
		},
	} {
		offset, size, err := Range(c.policy, e, c.segment, c.stride, c.slots, c.pos, c.k)
		if c.err != "" {
			checkError(t, c.err, err, c.kind, c.err)
			continue
		}
		if offset != c.offset || size != c.size || err != nil {
			t.Errorf("%+v: %d, %d, %v", c, offset, size, err)
		}
	}
}

// TestRangeLeastSegment: the segment that an error asks for is enough, and one
// byte less is not.
func TestRangeLeastSegment(t *testing.T) {
	for _, policy := range []RangePolicy{Shared, PerInitiator} {
		for k := int64(1); k < 6; k++ {
			for slots := int64(1); slots < 4; slots++ {
				least := slots * 8192
				if policy == PerInitiator {
					least *= k
				}
				if _, _, err := Range(policy, Edge{From: 1}, least, 8192, slots, k-1, k); err != nil {
					t.Error(err)
				}
				if _, _, err := Range(policy, Edge{From: 1}, least-1, 8192, slots, k-1, k); err == nil {
					t.Errorf("%s: %d bytes are enough for %d × %d slots", policy, least-1, k, slots)
				}
			}
		}
	}
}

// TestRangesDoNotOverlap: the parts of all initiators of a target are apart
// and inside the segment.
func TestRangesDoNotOverlap(t *testing.T) {
	top := mustTopology(t, NewLayout(7, 2), Params{Name: "incast"})
	const segment = 1 << 20
	end := int64(0)
	for e := range top.Sources(0) {
		position, k := RangePosition(top, e)
		if k != 6 {
			t.Fatalf("%d initiators", k)
		}
		offset, size, err := Range(PerInitiator, e, segment, 4096, 1, position, k)
		if err != nil || offset != end || size < 4096 {
			t.Fatalf("%v: %d, %d, %v, want offset %d", e, offset, size, err, end)
		}
		end = offset + size
	}
	if end > segment {
		t.Errorf("parts end at %d", end)
	}
	if position, k := RangePosition(top, Edge{From: 0, To: 3}); position != -1 || k != 0 {
		t.Errorf("no edge: %d of %d", position, k)
	}
}

func TestParseRangePolicy(t *testing.T) {
	for _, p := range []RangePolicy{Shared, PerInitiator} {
		if got, err := ParseRangePolicy(p.String()); got != p || err != nil {
			t.Errorf("%s: %v, %v", p, got, err)
		}
	}
	_, err := ParseRangePolicy("own")
	checkError(t, "own", err, KindUsage, `unknown range policy "own": give shared or per_initiator`)
}
