package runner

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"slices"
	"sync/atomic"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

// A hello is
//
//	0      version
//	1-3    round, its lowest 24 bits
//	4-7    initiator
//	8-11   target
//	12-15  which connection of that edge
//	16-31  start of the table digest
//	32-47  token: start of HMAC-SHA256 of the bytes before, 0 in a job without a secret
//
// all numbers big endian. Table digest and round are in it, so that a hello of
// another run or round is no hello of this one.
const (
	helloWire = 2
	helloSaid = 32 // bytes that the token vouches for
)

// The reasons given to a request that is not taken.
const (
	rejectForeign  = 1 // not of this job, round or target, or forged
	rejectRepeated = 2 // that connection was taken in this round already
	rejectLate     = 3 // the storm is over: the initiator has given the connection up
)

// vouch makes and checks tokens. It belongs to one goroutine and does not
// allocate per connection.
type vouch struct {
	mac hash.Hash // nil: the job has no secret
	sum [sha256.Size]byte
}

func newVouch(key []byte) vouch {
	if key == nil {
		return vouch{}
	}
	return vouch{mac: hmac.New(sha256.New, key)}
}

// token of a hello; the result is valid until the next call.
func (v *vouch) token(h *transport.Hello) []byte {
	if v.mac != nil {
		v.mac.Reset()
		v.mac.Write(h[:helloSaid])
		v.mac.Sum(v.sum[:0])
	}
	return v.sum[:transport.HelloSize-helloSaid]
}

// hello of one connection in the running round.
func (w *worker) hello(h *transport.Hello, from, to rank.Rank, conn int32) {
	binary.BigEndian.PutUint32(h[0:], helloWire<<24|uint32(w.slot.Round)&(1<<24-1))
	binary.BigEndian.PutUint32(h[4:], uint32(from))
	binary.BigEndian.PutUint32(h[8:], uint32(to))
	binary.BigEndian.PutUint32(h[12:], uint32(conn))
	copy(h[16:], w.rk.p.table.Digest[:helloSaid-16])
	copy(h[helloSaid:], w.vouch.token(h))
}

// checkHello says whether a request is one that this rank expects in the running
// round, and takes it down: the same one is not expected again. reason is 0 then.
func (w *worker) checkHello(h *transport.Hello) (from rank.Rank, conn int32, reason uint16) {
	from, conn = rank.Rank(binary.BigEndian.Uint32(h[4:])), int32(binary.BigEndian.Uint32(h[12:]))
	if subtle.ConstantTimeCompare(h[helloSaid:], w.vouch.token(h)) != 1 ||
		binary.BigEndian.Uint32(h[0:]) != helloWire<<24|uint32(w.slot.Round)&(1<<24-1) ||
		rank.Rank(binary.BigEndian.Uint32(h[8:])) != w.rk.rank ||
		[helloSaid - 16]byte(h[16:]) != [helloSaid - 16]byte(w.rk.p.table.Digest[:]) {
		return from, conn, rejectForeign
	}
	reason = w.rk.expect.take(from, conn)
	if reason == 0 && w.slot.Phase != phases.Connect {
		reason = rejectLate // it waited in the backlog, and might not be destroyed with the others
	}
	return from, conn, reason
}

// expected are the connections that reach a rank, and which of them have come in
// the running round. All workers of the rank share it.
type expected struct {
	sources []rank.Rank // ascending
	conns   int32       // per source
	came    []atomic.Uint32
}

func newExpected(topo rank.Topology, to rank.Rank, conns int) *expected {
	e := &expected{conns: int32(conns)}
	for edge := range topo.Sources(to) {
		e.sources = append(e.sources, edge.From)
	}
	slices.Sort(e.sources)
	e.sources = slices.Compact(e.sources)
	e.came = make([]atomic.Uint32, (len(e.sources)*conns+31)/32)
	return e
}

// take notes that a connection came; the reason not to take it, or 0.
func (e *expected) take(from rank.Rank, conn int32) uint16 {
	i, ok := slices.BinarySearch(e.sources, from)
	if !ok || conn < 0 || conn >= e.conns {
		return rejectForeign
	}
	bit := i*int(e.conns) + int(conn)
	mask := uint32(1) << (bit % 32)
	if e.came[bit/32].Or(mask)&mask != 0 {
		return rejectRepeated
	}
	return 0
}

// reset begins a round.
func (e *expected) reset() {
	for i := range e.came {
		e.came[i].Store(0)
	}
}

// refusals are requests of strangers that a process did not take.
type refusals struct{ foreign, repeated atomic.Int64 }

func (r *refusals) add(reason uint16) {
	switch reason {
	case rejectForeign:
		r.foreign.Add(1)
	case rejectRepeated:
		r.repeated.Add(1)
	}
}

// request answers one connection request.
func (w *worker) request(ev *transport.Event) {
	c := int(ev.Conn)
	reason := uint16(rejectForeign)
	if i := c - w.out; i >= 0 && i < w.in {
		var from rank.Rank
		var conn int32
		if from, conn, reason = w.checkHello(&ev.Hello); reason == 0 {
			w.nIn = max(w.nIn, i+1)
			w.peers[i] = incoming{from: from, conn: conn}
			w.state[c] = connLive
		}
	}
	if reason != 0 {
		w.rk.p.refused.add(reason)
	}
	if err := w.tw.Answer(ev.Conn, reason == 0, reason); err != nil {
		w.fail(c, transport.StepAccept, causeOf(err), err)
	}
}
