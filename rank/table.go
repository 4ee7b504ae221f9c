package rank

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"slices"
	"strings"
	"sync/atomic"
)

// Table is the sealed membership of a job: process p is Procs[p] and hosts the
// ranks p*K … p*K+K-1. It is immutable after Build or decoding and safe for
// concurrent use. A host is a host name: processes with equal Host share it.
type Table struct {
	RunID  string   `msgpack:"run_id"`
	K      int      `msgpack:"k"` // ranks per process, ≥ 1
	Procs  []Record `msgpack:"procs"`
	Digest [32]byte `msgpack:"digest"` // see Table.Sum

	index atomic.Pointer[tableIndex] // derived; built on first use
}

// tableIndex is what the View methods answer from.
type tableIndex struct {
	hosts     []string
	byName    map[string]int32
	procHost  []int32 // index into hosts
	procLocal []Rank  // local rank of the first rank of the process
	hostFirst []int   // ranks[hostFirst[h]:hostFirst[h+1]] live on host h
	ranks     []Rank
}

// Build seals records into a table: the same set in any order gives the same
// table and digest. k is the number of ranks per process. The records are
// copied; their Own settings are sorted by key. Errors are *Error: KindUsage
// for an impossible k or size, KindRendezvous for records that do not fit
// together (the holders are named by host and pid).
func Build(recs []Record, k int, runID string) (*Table, error) {
	if k < 1 {
		return nil, Errorf(KindUsage, "%d ranks per process: give at least 1", k)
	}
	if len(recs) == 0 {
		return nil, Errorf(KindRendezvous, "a table of no process: at least one record is needed")
	}
	if k > math.MaxInt32/len(recs) {
		return nil, Errorf(KindUsage, "%d processes of %d ranks are more than %d ranks", len(recs), k, math.MaxInt32)
	}
	procs, err := orderRecords(recs)
	if err != nil {
		return nil, err
	}
	for i := range procs {
		procs[i].Control = slices.Clone(procs[i].Control)
		procs[i].Own = slices.Clone(procs[i].Own)
		slices.SortStableFunc(procs[i].Own, func(a, b KV) int { return strings.Compare(a.Key, b.Key) })
	}
	t := &Table{RunID: runID, K: k, Procs: procs}
	t.Digest = t.Sum()
	t.Index()
	return t, nil
}

// Led is the table with the process of that nonce at number 0 and all others in
// the order that they have; the table itself if nobody has the nonce.
func (t *Table) Led(nonce [16]byte) *Table {
	at := slices.IndexFunc(t.Procs, func(r Record) bool { return r.Nonce == nonce })
	if at <= 0 {
		return t
	}
	led := &Table{RunID: t.RunID, K: t.K, Procs: slices.Concat(t.Procs[at:at+1], t.Procs[:at], t.Procs[at+1:])}
	led.Digest = led.Sum()
	led.Index()
	return led
}

// Sum computes the digest of the table's content: SHA-256 over a canonical
// encoding that depends on nothing but the values. Numbers are 8 bytes big
// endian (signed ones in two's complement), strings and byte strings are their
// length as a number followed by their bytes, lists are their length followed
// by the elements. In order:
//
//	"rankstorm table 1", RunID, K, number of processes, then per process:
//	Nonce, Host, HostID, PID, Start, LauncherProc, LocalIndex,
//	Control (each netip.AddrPort in its binary form), BuildID, CPUs,
//	Own (key, value)
func (t *Table) Sum() [32]byte {
	e := canon{h: sha256.New()}
	e.text("rankstorm table 1")
	e.text(t.RunID)
	e.number(int64(t.K))
	e.number(int64(len(t.Procs)))
	for i := range t.Procs {
		r := &t.Procs[i]
		e.bytes(r.Nonce[:])
		e.text(r.Host)
		e.bytes(r.HostID[:])
		e.number(int64(r.PID))
		e.number(int64(r.Start))
		e.number(int64(r.LauncherProc))
		e.number(int64(r.LocalIndex))
		e.number(int64(len(r.Control)))
		for _, a := range r.Control {
			b, _ := a.MarshalBinary() // never fails
			e.bytes(b)
		}
		e.text(r.BuildID)
		e.number(int64(r.CPUs))
		e.number(int64(len(r.Own)))
		for _, kv := range r.Own {
			e.text(kv.Key)
			e.text(kv.Value)
		}
	}
	var sum [32]byte
	e.h.Sum(sum[:0])
	return sum
}

// canon writes the canonical encoding into a hash, which never fails.
type canon struct {
	h   hash.Hash
	buf [8]byte
}

func (e *canon) number(n int64) {
	binary.BigEndian.PutUint64(e.buf[:], uint64(n))
	e.h.Write(e.buf[:])
}

func (e *canon) bytes(b []byte) {
	e.number(int64(len(b)))
	e.h.Write(b)
}

func (e *canon) text(s string) { e.bytes([]byte(s)) }

// Verify checks a decoded table: shape and digest. The error is a *Error of
// KindCorrupt.
func (t *Table) Verify() error {
	if t.K < 1 || len(t.Procs) == 0 || t.K > math.MaxInt32/len(t.Procs) {
		return Errorf(KindCorrupt, "rank table of %d processes with %d ranks each is not possible", len(t.Procs), t.K)
	}
	if sum := t.Sum(); sum != t.Digest {
		return Errorf(KindCorrupt, "rank table does not match its digest: computed %x, received %x", sum[:8], t.Digest[:8])
	}
	return nil
}

// Index prepares the View methods. They call it themselves on first use; call
// it after decoding to pay before a timed phase. O(size), safe to repeat and
// from several goroutines. The table must have passed Verify.
func (t *Table) Index() { t.ix() }

func (t *Table) ix() *tableIndex {
	if ix := t.index.Load(); ix != nil {
		return ix
	}
	ix := &tableIndex{
		byName:    make(map[string]int32),
		procHost:  make([]int32, len(t.Procs)),
		procLocal: make([]Rank, len(t.Procs)),
		ranks:     make([]Rank, len(t.Procs)*t.K),
	}
	var counts []int
	for p := range t.Procs {
		name := t.Procs[p].Host
		h, ok := ix.byName[name]
		if !ok {
			h = int32(len(ix.hosts))
			ix.byName[name] = h
			ix.hosts = append(ix.hosts, name)
			counts = append(counts, 0)
		}
		ix.procHost[p] = h
		ix.procLocal[p] = Rank(counts[h])
		counts[h] += t.K
	}
	ix.hostFirst = make([]int, len(counts)+1)
	for h, n := range counts {
		ix.hostFirst[h+1] = ix.hostFirst[h] + n
	}
	for p := range t.Procs {
		at := ix.hostFirst[ix.procHost[p]] + int(ix.procLocal[p])
		for i := range t.K {
			ix.ranks[at+i] = Rank(p*t.K + i)
		}
	}
	t.index.Store(ix) // two builders store the same content
	return ix
}

// Size is the number of ranks.
func (t *Table) Size() int { return len(t.Procs) * t.K }

// ProcOf is the process that hosts rank r.
func (t *Table) ProcOf(r Rank) Proc { return Proc(int(r) / t.K) }

// RanksOf gives the ranks of a process: first … first+n-1.
func (t *Table) RanksOf(p Proc) (first Rank, n int) { return Rank(int(p) * t.K), t.K }

// Entry is the record of a process; it must not be changed.
func (t *Table) Entry(p Proc) *Record { return &t.Procs[p] }

// HostOf is the host name of rank r.
func (t *Table) HostOf(r Rank) string { return t.Procs[t.ProcOf(r)].Host }

// LocalRank is the index of r among the ranks of its host, in rank order.
func (t *Table) LocalRank(r Rank) int {
	p := t.ProcOf(r)
	return int(t.ix().procLocal[p]) + int(r)%t.K
}

// HostRanks lists the ranks of a host, ascending, nil if the host is unknown.
// The slice must not be changed.
func (t *Table) HostRanks(h string) []Rank {
	ix := t.ix()
	i, ok := ix.byName[h]
	if !ok {
		return nil
	}
	return ix.ranks[ix.hostFirst[i]:ix.hostFirst[i+1]:ix.hostFirst[i+1]]
}

// Hosts lists all hosts in order of their lowest rank; the slice must not be
// changed.
func (t *Table) Hosts() []string { return t.ix().hosts }
