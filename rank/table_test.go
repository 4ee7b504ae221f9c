package rank

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// someRecords: three hosts, some processes on each, in natural order.
func someRecords(launcher bool) []Record {
	var recs []Record
	for i, host := range []string{"n2", "n2", "n10", "n10", "n10", "x1"} {
		r := Record{
			Nonce: [16]byte{byte(200 - i)}, Host: host, HostID: [16]byte{byte(i / 2)}, PID: 900 - i, Start: uint64(10 + i),
			LauncherProc: -1, LocalIndex: -1, Control: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7471")},
			BuildID: "b", CPUs: 4, Own: []KV{{"bind", "eth0"}, {"out", "x"}},
		}
		r.HostID = [16]byte{host[0], host[1]}
		if launcher {
			r.LauncherProc = 5 - i
		}
		recs = append(recs, r)
	}
	return recs
}

func mustBuild(t testing.TB, recs []Record, k int) *Table {
	t.Helper()
	table, err := Build(recs, k, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestBuildIgnoresTheOrderOfRecords(t *testing.T) {
	for _, launcher := range []bool{false, true} {
		want := mustBuild(t, someRecords(launcher), 2)
		rapid.Check(t, func(rt *rapid.T) {
			recs := rapid.Permutation(someRecords(launcher)).Draw(rt, "records")
			for i := range recs {
				recs[i].Own = rapid.Permutation(recs[i].Own).Draw(rt, "own")
			}
			before := slices.Clone(recs)
			got, err := Build(recs, 2, "run-1")
			if err != nil {
				rt.Fatal(err)
			}
			if got.Digest != want.Digest || !reflect.DeepEqual(got.Procs, want.Procs) {
				rt.Fatalf("got %+v\nwant %+v", got.Procs, want.Procs)
			}
			if !reflect.DeepEqual(recs, before) {
				rt.Fatal("Build changed its input")
			}
		})
	}
}

func TestBuildOrder(t *testing.T) {
	rec := func(host string, id byte, local int, start uint64, pid int, nonce byte) Record {
		return Record{Host: host, HostID: [16]byte{id}, LocalIndex: local, Start: start, PID: pid, Nonce: [16]byte{nonce}, LauncherProc: -1}
	}
	want := []Record{ // each differs from the one before in one deciding field
		rec("n", 9, 9, 9, 9, 1),
		rec("n02", 9, 9, 9, 9, 2),
		rec("n2", 0, 9, 9, 9, 3),
		rec("n2", 1, -1, 9, 9, 4),
		rec("n2", 1, 0, 9, 9, 5),
		rec("n2", 1, 1, 3, 9, 6),
		rec("n2", 1, 1, 4, 7, 8),
		rec("n2", 1, 1, 4, 8, 7),
		rec("n2", 1, 1, 4, 8, 9),
		rec("n2a", 0, 0, 0, 0, 10),
		rec("n10", 0, 0, 0, 0, 11),
		rec("n10-9", 0, 0, 0, 0, 12),
		rec("n10-10", 0, 0, 0, 0, 13),
		rec("n99999999999999999999998", 0, 0, 0, 0, 14),
		rec("n99999999999999999999999", 0, 0, 0, 0, 15),
		rec("o1", 0, 0, 0, 0, 16),
	}
	rapid.Check(t, func(rt *rapid.T) {
		got, err := Build(rapid.Permutation(want).Draw(rt, "records"), 1, "")
		if err != nil {
			rt.Fatal(err)
		}
		for i := range want {
			if got.Procs[i].Nonce != want[i].Nonce {
				rt.Fatalf("process %d is %v, want %v", i, got.Procs[i], want[i])
			}
		}
	})
}

// TestCompareNaturalIsAnOrder: antisymmetric, transitive, 0 only for equal.
func TestCompareNaturalIsAnOrder(t *testing.T) {
	name := rapid.StringMatching(`[n0-2.-]{0,6}`)
	rapid.Check(t, func(rt *rapid.T) {
		a, b, c := name.Draw(rt, "a"), name.Draw(rt, "b"), name.Draw(rt, "c")
		ab, bc, ac := CompareNatural(a, b), CompareNatural(b, c), CompareNatural(a, c)
		if ab != -CompareNatural(b, a) || (ab == 0) != (a == b) {
			rt.Fatalf("%q %q: %d", a, b, ab)
		}
		if ab <= 0 && bc <= 0 && ac > 0 {
			rt.Fatalf("%q ≤ %q ≤ %q but not %q ≤ %q", a, b, c, a, c)
		}
	})
}

func TestBuildByLauncher(t *testing.T) {
	table := mustBuild(t, someRecords(true), 1)
	for p := range table.Procs {
		if got := table.Entry(Proc(p)).LauncherProc; got != p {
			t.Errorf("process %d has launcher number %d", p, got)
		}
	}
}

// Numbers that only some have do not count: the order is by host then.
func TestBuildWithSomeNumbers(t *testing.T) {
	recs := someRecords(true)
	recs[2].LauncherProc = -1
	some, none := mustBuild(t, recs, 1), mustBuild(t, someRecords(false), 1)
	for p := range none.Procs {
		if got, want := some.Entry(Proc(p)), none.Entry(Proc(p)); got.Nonce != want.Nonce {
			t.Errorf("process %d is %s pid %d, want %s pid %d", p, got.Host, got.PID, want.Host, want.PID)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	numbered := func(numbers ...int) []Record {
		recs := make([]Record, len(numbers))
		for i, n := range numbers {
			recs[i] = Record{Nonce: [16]byte{byte(i + 1)}, Host: fmt.Sprint("n", i), PID: 100 + i, LauncherProc: n}
		}
		return recs
	}
	twice := numbered(-1, -1)
	twice[1].Nonce = twice[0].Nonce
	for _, c := range []struct {
		recs []Record
		k    int
		kind Kind
		want string
	}{
		{nil, 1, KindRendezvous, "a table of no process: at least one record is needed"},
		{numbered(0), 0, KindUsage, "0 ranks per process: give at least 1"},
		{numbered(0, 1), 1 << 31, KindUsage, "2 processes of 2147483648 ranks are more than 2147483647 ranks"},
		{
			numbered(0, 1, 1), 1, KindRendezvous,
			"process number 1 is held by n1 (pid 101) and by n2 (pid 102): start each process with its own number",
		},
		{
			numbered(0, 7, 5), 1, KindRendezvous,
			"process number 5 of n2 (pid 102) is outside 0-2 and nobody has 1: number the 3 processes 0-2",
		},
		{
			twice, 1, KindRendezvous,
			"n0 (pid 100) and n1 (pid 101) announced the same nonce: one process must announce itself once",
		},
	} {
		for range 2 { // the text does not depend on the order of arrival
			_, err := Build(c.recs, c.k, "r")
			checkError(t, c.want, err, c.kind, c.want)
			slices.Reverse(c.recs)
		}
	}
}

// TestDigestCoversEverything changes one leaf at a time.
func TestDigestCoversEverything(t *testing.T) {
	base := func() *Table { return mustBuild(t, someRecords(false), 2) }
	want := base().Digest
	for what, change := range map[string]func(*Table){
		"run id":      func(t *Table) { t.RunID = "run-2" },
		"k":           func(t *Table) { t.K = 3 },
		"order":       func(t *Table) { t.Procs[0], t.Procs[1] = t.Procs[1], t.Procs[0] },
		"fewer":       func(t *Table) { t.Procs = t.Procs[1:] },
		"own key":     func(t *Table) { t.Procs[1].Own[0].Key = "b" },
		"own value":   func(t *Table) { t.Procs[1].Own[1].Value = "" },
		"own shifted": func(t *Table) { t.Procs[1].Own[0] = KV{"binde", "th0"} },
		"port":        func(t *Table) { t.Procs[2].Control[0] = netip.MustParseAddrPort("10.0.0.1:7472") },
		"zone":        func(t *Table) { t.Procs[2].Control[0] = netip.MustParseAddrPort("[fe80::1%a]:7471") },
	} {
		table := base()
		change(table)
		if table.Sum() == want {
			t.Errorf("%s does not change the digest", what)
		}
		if err := table.Verify(); err == nil {
			t.Errorf("%s: Verify accepts it", what)
		}
	}
	typ := reflect.TypeFor[Record]()
	for i := range typ.NumField() {
		table := base()
		f := reflect.ValueOf(&table.Procs[0]).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Int:
			f.SetInt(f.Int() + 1)
		case reflect.Uint64:
			f.SetUint(f.Uint() + 1)
		case reflect.Array:
			f.Index(15).SetUint(f.Index(15).Uint() ^ 1)
		case reflect.Slice:
			f.SetLen(f.Len() - 1)
		default:
			t.Fatalf("field %s: teach this test its kind", typ.Field(i).Name)
		}
		if table.Sum() == want {
			t.Errorf("field %s does not change the digest", typ.Field(i).Name)
		}
	}
}

// TestDigestIsStable: a changed encoding must be a decision, not an accident.
func TestDigestIsStable(t *testing.T) {
	const want = "f5f63718e6d36277cf0433384bb334221df82b516416659632e521a008935d37"
	if got := fmt.Sprintf("%x", mustBuild(t, someRecords(false), 2).Digest); got != want {
		t.Errorf("digest %s, want %s: if the encoding changed on purpose, change its version line and this value", got, want)
	}
}

func TestVerify(t *testing.T) {
	table := mustBuild(t, someRecords(false), 2)
	if err := table.Verify(); err != nil {
		t.Error(err)
	}
	table.Digest = [32]byte{1, 2, 3}
	if got := ExitCode(table.Verify()); got != KindCorrupt.ExitCode() {
		t.Errorf("exit code %d", got)
	}
	for _, bad := range []*Table{{}, {K: 1}, {K: -1, Procs: make([]Record, 1)}, {K: 1 << 31, Procs: make([]Record, 1)}} {
		bad.Digest = bad.Sum()
		if bad.Verify() == nil {
			t.Errorf("K=%d with %d processes accepted", bad.K, len(bad.Procs))
		}
	}
}

func TestTableSurvivesMsgpack(t *testing.T) {
	want := mustBuild(t, someRecords(true), 3)
	b, err := msgpack.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := new(Table)
	if err := msgpack.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if err := got.Verify(); err != nil {
		t.Fatal(err)
	}
	if got.RunID != want.RunID || got.K != want.K || got.Digest != want.Digest || !reflect.DeepEqual(got.Procs, want.Procs) {
		t.Errorf("got %+v\nwant %+v", got.Procs, want.Procs)
	}
	got.Index()
	if !slices.Equal(got.Hosts(), want.Hosts()) || got.Size() != want.Size() {
		t.Errorf("hosts %v", got.Hosts())
	}
}

// TestViews compares the index of tables and the arithmetic of layouts with
// what HostOf says of every rank.
func TestViews(t *testing.T) {
	check := func(what string, v View) {
		var hosts []string
		on := map[string][]Rank{}
		for r := range Rank(v.Size()) {
			h := v.HostOf(r)
			if !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
			}
			if got := v.LocalRank(r); got != len(on[h]) {
				t.Errorf("%s: local rank of %d is %d, want %d", what, r, got, len(on[h]))
			}
			on[h] = append(on[h], r)
		}
		if !slices.Equal(v.Hosts(), hosts) {
			t.Errorf("%s: hosts %v, want %v", what, v.Hosts(), hosts)
		}
		for _, h := range append(hosts, "nothing", "n", "n-1", "n01", "n99", "", "x") {
			if got := v.HostRanks(h); !slices.Equal(got, on[h]) || (got == nil) != (on[h] == nil) {
				t.Errorf("%s: ranks of %q are %v, want %v", what, h, got, on[h])
			}
		}
	}
	for w := 1; w <= 17; w++ {
		for name, v := range views(t, w) {
			check(fmt.Sprint(w, " ranks, ", name), v)
		}
	}
	table := mustBuild(t, someRecords(false), 3)
	check("records", table)
	for p := range Proc(6) {
		first, n := table.RanksOf(p)
		for i := range Rank(n) {
			if got := table.ProcOf(first + i); got != p {
				t.Errorf("rank %d is of process %d, want %d", first+i, got, p)
			}
		}
		if n != 3 || int(first) != 3*int(p) {
			t.Errorf("ranks of %d: %d, %d", p, first, n)
		}
	}
}

func TestIndexFromManyGoroutines(t *testing.T) {
	built := mustBuild(t, someRecords(false), 2)
	fresh := &Table{RunID: built.RunID, K: built.K, Procs: built.Procs, Digest: built.Digest}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if !slices.Equal(fresh.Hosts(), built.Hosts()) {
				t.Error("hosts differ")
			}
		})
	}
	wg.Wait()
}

func TestLedPutsOneFirst(t *testing.T) {
	table := mustBuild(t, someRecords(false), 2)
	for at := range table.Procs {
		led := table.Led(table.Procs[at].Nonce)
		want := append([]Record{table.Procs[at]}, slices.Delete(slices.Clone(table.Procs), at, at+1)...)
		if !reflect.DeepEqual(led.Procs, want) || led.K != table.K || led.RunID != table.RunID {
			t.Errorf("led by %d: %+v", at, led.Procs)
		}
		if err := led.Verify(); err != nil {
			t.Errorf("led by %d: %v", at, err)
		}
		if (led.Digest == table.Digest) != (at == 0) {
			t.Errorf("led by %d: the digest says nothing of the order", at)
		}
	}
	if table.Led([16]byte{}) != table {
		t.Error("somebody unknown leads")
	}
}
