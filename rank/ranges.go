package rank

import (
	"math"
	"strings"
)

// RangePolicy says which bytes of a target's segment an initiator may use.
type RangePolicy uint8

// The policies (reference: tebench proposal §4.3).
const (
	Shared       RangePolicy = iota // every initiator the whole segment
	PerInitiator                    // every initiator its own part, all of equal size
)

func (p RangePolicy) String() string {
	if p == PerInitiator {
		return "per_initiator"
	}
	return "shared"
}

// ParseRangePolicy reads "shared" or "per_initiator".
func ParseRangePolicy(text string) (RangePolicy, error) {
	for _, p := range []RangePolicy{Shared, PerInitiator} {
		if strings.TrimSpace(text) == p.String() {
			return p, nil
		}
	}
	return 0, Errorf(KindUsage, "unknown range policy %q: give %s or %s", text, Shared, PerInitiator)
}

// rangeAlign is what slots and parts of a segment are aligned to, in bytes.
const rangeAlign = 4096

// StrideBytes is the size of one slot: block × batch (the greatest of all
// cases) rounded up to 4096 bytes.
func StrideBytes(blockBytes, batch int64) (int64, error) {
	if blockBytes < 1 || batch < 1 {
		return 0, Errorf(KindUsage, "block of %d bytes × batch of %d: give at least 1 of each", blockBytes, batch)
	}
	if blockBytes > (math.MaxInt64-rangeAlign)/batch {
		return 0, Errorf(KindUsage, "block of %d bytes × batch of %d is too big to count: lower one", blockBytes, batch)
	}
	return (blockBytes*batch + rangeAlign - 1) / rangeAlign * rangeAlign, nil
}

// RangePosition gives the position of e.From among the k ranks that initiate
// to e.To, in rank order; -1 if it is not one of them. O(k).
func RangePosition(t Topology, e Edge) (position, k int64) {
	position = -1
	for source := range t.Sources(e.To) {
		if source.From == e.From {
			position = k
		}
		k++
	}
	return position, k
}

// Range gives the bytes offset … offset+size-1 of the segment of e.To, B
// segmentBytes long, that e.From may use, being initiator number position of k
// and needing slots slots of stride bytes there (StrideBytes):
//
//	shared:        offset 0, size B
//	per_initiator: size ⌊B/k/4096⌋·4096, offset position·size
//
// slots·stride must fit into size; the error (KindUsage) names the edge and
// the least segment: slots·stride, or k times that.
func Range(policy RangePolicy, e Edge, segmentBytes, stride, slots, position, k int64) (offset, size int64, err error) {
	if position < 0 || position >= k || stride < 1 || slots < 0 || segmentBytes < 0 {
		return 0, 0, Errorf(KindInternal, "edge %d → %d: range of position %d of %d, %d slots of %d bytes, segment of %d bytes",
			e.From, e.To, position, k, slots, stride, segmentBytes)
	}
	parts := int64(1)
	size = segmentBytes
	if policy == PerInitiator {
		parts = k
		size = segmentBytes / k / rangeAlign * rangeAlign
		offset = position * size
	}
	if slots == 0 || stride <= size/slots {
		return offset, size, nil
	}
	// Parts are whole multiples of 4096 bytes.
	if stride > (math.MaxInt64-rangeAlign)/slots {
		return 0, 0, Errorf(KindUsage, "edge %d → %d: %d slots of %d bytes are too big to count: lower block, batch or threads",
			e.From, e.To, slots, stride)
	}
	least := stride * slots
	if policy == PerInitiator {
		least = (least + rangeAlign - 1) / rangeAlign * rangeAlign
	}
	if least > math.MaxInt64/parts {
		return 0, 0, Errorf(KindUsage, "edge %d → %d: %d parts of %d bytes are too big to count: lower block, batch or threads",
			e.From, e.To, parts, least)
	}
	return 0, 0, Errorf(KindUsage, "edge %d → %d: %d slots of %d bytes do not fit into %d bytes (%s, %d initiators): the segment needs at least %d bytes",
		e.From, e.To, slots, stride, size, policy, k, least*parts)
}
