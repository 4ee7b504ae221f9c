package rank

import "fmt"

// defaultHotShare is the share of operations to hot targets if none is given.
const defaultHotShare = 0.8

// hotspotKind: the edges of all_to_all (or of the selection) with weights:
// the share f (default 0.8) of an initiator's operations goes to the hot
// targets (default: the first target), split evenly, and 1−f to the cold ones,
// counted after dropping. An initiator with only one kind left gives it
// everything.
//
// Ideal total at most h/f line rates for h hot targets, plus one for every
// initiator that reaches no hot target (it is the only one itself, say).
var hotspotKind = kind{
	name:    "hotspot",
	summary: "all_to_all whose weights give most traffic to a few hot targets",
	takes:   takesSelection | takesHot,
	build:   newHotspot,
	bound:   hotspotBound,
}

type hotspot struct {
	cross
	hot     *set
	hotHost [][]int32 // by host number, only with --exclude-same-host
	share   float64
}

func newHotspot(v View, p Params, sel selected) (Topology, error) {
	all := rangeSet(0, v.Size())
	h := &hotspot{share: p.HotShare}
	h.cross = *newCross("hotspot", v, p, sel, orDefault(sel.from, all), orDefault(sel.to, all))
	if h.share == 0 {
		h.share = defaultHotShare
	}
	if !(h.share > 0 && h.share < 1) { // NaN too
		return nil, Errorf(KindUsage, "--hot-share %g: give more than 0 and less than 1", h.share)
	}
	h.hot = rangeSet(int(h.to.at(0)), 1)
	if p.Hot != "" {
		ranks, err := ParseSelection(p.Hot, v)
		if err != nil {
			return nil, Errorf(KindUsage, "--hot: %w", err)
		}
		for _, r := range ranks {
			if !h.to.has(r) {
				return nil, Errorf(KindUsage, "topology hotspot: hot rank %d is not among the targets %s", r, p.Targets)
			}
		}
		h.hot = listSet(ranks)
	}
	if h.host != nil {
		h.hotHost = byHost(h.hot, h.host)
	}
	h.weigh = h.weightOf
	return h, nil
}

// hotOf counts the hot targets of an initiator.
func (h *hotspot) hotOf(from Rank) int64 {
	hot := int64(h.hot.n)
	switch {
	case h.host != nil:
		hot -= int64(len(h.hotHost[h.host[from]]))
	case h.hot.has(from):
		hot--
	}
	return hot
}

func (h *hotspot) weightOf(from, to Rank) float64 {
	n := h.degree(from)
	hot := h.hotOf(from)
	cold := n - hot
	switch {
	case hot == 0 || cold == 0:
		return 1 / float64(n)
	case h.hot.has(to):
		return h.share / float64(hot)
	default:
		return (1 - h.share) / float64(cold)
	}
}

// hotspotBound: the hot targets receive h line rates, which is the share f of
// all that initiators with hot targets send.
func hotspotBound(t Topology) (float64, string) {
	h := t.(*hotspot)
	free := 0
	for i := range h.from.n {
		r := h.from.at(i)
		if h.degree(r) > 0 && h.hotOf(r) == 0 {
			free++
		}
	}
	rates, formula := commonBound(t)
	hot := float64(h.hot.n)/h.share + float64(free)
	if rates <= hot {
		return rates, formula
	}
	return hot, fmt.Sprintf("(%d hot ÷ share %g + %d that reach no hot) × line rate", h.hot.n, h.share, free)
}
