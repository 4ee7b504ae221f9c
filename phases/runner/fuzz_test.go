package runner

import (
	"bytes"
	"testing"

	"rankstorm/rank"
	"rankstorm/transport"
)

// What strangers say in a hello is taken only if it is what a peer of this round says, and once.
func FuzzCheckHello(f *testing.F) {
	topo, err := rank.NewTopology(rank.NewLayout(4, 1), rank.Params{Name: "all_to_all"})
	if err != nil {
		f.Fatal(err)
	}
	var key [32]byte
	worker := func(secret bool, self rank.Rank) *worker {
		w := &worker{rk: &localRank{p: &process{table: &rank.Table{}}, rank: self, load: load{expect: newExpected(topo, self, 2)}}}
		if secret {
			w.vouch = newVouch(key[:])
		}
		return w
	}
	for _, secret := range []bool{false, true} {
		var h transport.Hello
		worker(secret, 1).hello(&h, 0, 1, 1)
		f.Add(bytes.Clone(h[:]), secret)
		h[11] ^= 2
		f.Add(bytes.Clone(h[:]), secret)
	}
	f.Fuzz(func(t *testing.T, b []byte, secret bool) {
		var h transport.Hello
		copy(h[:], b)
		w := worker(secret, 1)
		from, conn, reason := w.checkHello(&h)
		if reason != 0 {
			return
		}
		var own transport.Hello
		w.hello(&own, from, 1, conn)
		if own != h || from == 1 || from < 0 || from > 3 || conn < 0 || conn > 1 {
			t.Fatalf("%x was taken as connection %d of rank %d", h, conn, from)
		}
		if _, _, reason := w.checkHello(&h); reason != rejectRepeated {
			t.Errorf("the second time the reason is %d", reason)
		}
	})
}
