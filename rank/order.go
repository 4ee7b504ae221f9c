package rank

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// orderRecords puts records into process order. If every record carries a
// launcher process number these must be 0 … P-1, each once; numbers that only
// some have do not count. Then the order is natural host name, HostID,
// LocalIndex, Start, PID, Nonce. No host is special, the controller's neither.
// The input is not changed.
func orderRecords(recs []Record) ([]Record, error) {
	sorted := slices.Clone(recs)
	slices.SortFunc(sorted, compareRecords)
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Nonce == sorted[i-1].Nonce {
			return nil, Errorf(KindRendezvous, "%s and %s announced the same nonce: one process must announce itself once",
				holder(&sorted[i-1]), holder(&sorted[i]))
		}
	}
	for i := range sorted {
		if sorted[i].LauncherProc < 0 {
			return sorted, nil
		}
	}
	return orderByLauncher(sorted)
}

// orderByLauncher places each record at its launcher process number. Every
// record has one; sorted is in natural order so that messages are the same
// whatever order the records arrived in.
func orderByLauncher(sorted []Record) ([]Record, error) {
	procs := len(sorted)
	at := make([]int, procs) // 1 + index into sorted, 0 free
	var outside *Record
	for i := range sorted {
		p := sorted[i].LauncherProc
		switch {
		case p >= procs:
			if outside == nil || p < outside.LauncherProc {
				outside = &sorted[i]
			}
		case at[p] != 0:
			return nil, Errorf(KindRendezvous, "process number %d is held by %s and by %s: start each process with its own number",
				p, holder(&sorted[at[p]-1]), holder(&sorted[i]))
		default:
			at[p] = i + 1
		}
	}
	if outside != nil {
		return nil, Errorf(KindRendezvous, "process number %d of %s is outside 0-%d and nobody has %d: number the %d processes 0-%d",
			outside.LauncherProc, holder(outside), procs-1, slices.Index(at, 0), procs, procs-1)
	}
	out := make([]Record, procs)
	for p, i := range at {
		out[p] = sorted[i-1]
	}
	return out, nil
}

// compareRecords is a total order: records that compare equal are equal in
// every field that tells two starts of a process apart.
func compareRecords(a, b Record) int {
	return cmp.Or(
		CompareNatural(a.Host, b.Host),
		bytes.Compare(a.HostID[:], b.HostID[:]),
		cmp.Compare(a.LocalIndex, b.LocalIndex),
		cmp.Compare(a.Start, b.Start),
		cmp.Compare(a.PID, b.PID),
		bytes.Compare(a.Nonce[:], b.Nonce[:]),
	)
}

// CompareNatural orders host names as people do: runs of digits by their
// value, so n2 < n10. Names that differ only in leading zeros are ordered by
// bytes, so that the order is total.
func CompareNatural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		nx, ny := digits(x), digits(y)
		if nx > 0 && ny > 0 {
			dx, dy := strings.TrimLeft(x[:nx], "0"), strings.TrimLeft(y[:ny], "0")
			if c := cmp.Or(cmp.Compare(len(dx), len(dy)), strings.Compare(dx, dy)); c != 0 {
				return c
			}
			x, y = x[nx:], y[ny:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is the length of the run of decimal digits that s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func holder(r *Record) string { return fmt.Sprintf("%s (pid %d)", r.Host, r.PID) }

// listOf prints the first few of a list of names, and how many more there are.
func listOf(names []string) string {
	const shown = 8
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
