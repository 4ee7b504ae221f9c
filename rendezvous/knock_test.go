package rendezvous

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/rank"
	"rankstorm/test/corpus"
)

func knockOf(i, procs int) *knock {
	return &knock{
		Proto: knockVersion, Job: jobHash("job"), JobKey: "job", Procs: procs, K: 1,
		Settings: []rank.KV{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}},
		Record: rank.Record{
			Nonce: [16]byte{byte(i + 1)}, Host: fmt.Sprintf("n%d", i/4), PID: 100 + i, LauncherProc: -1, LocalIndex: -1,
			Control: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:4000")}, BuildID: "b1",
		},
	}
}

func TestGathering(t *testing.T) {
	g := newGathering(*knockOf(0, 3), "run-1")
	admit := func(k *knock) string {
		m, ok := g.admit(k, time.Second)
		if ok {
			return ""
		}
		return m.notice(who(&k.Record))
	}
	wait := func(want string) {
		t.Helper()
		if got := g.waiting(5600*time.Millisecond, "n0:7471", Launch{}, false)[0]; got != want {
			t.Errorf("missing says %q, want %q", got, want)
		}
	}
	for i := range 2 {
		if said := admit(knockOf(i, 3)); said != "" {
			t.Fatalf("process %d: %s", i, said)
		}
		g.gossiped(knockOf(i, 3).Record.Nonce)
	}
	wait("waiting for 1 of 3 processes for 6 s: have n0×2")
	if said := admit(knockOf(1, 3)); said != "" {
		t.Errorf("knocking again: %s", said)
	}
	if g.complete() {
		t.Error("complete with 2 of 3")
	}
	admit(knockOf(4, 3))
	if g.complete() {
		t.Error("complete without the gossip of the third")
	}
	wait("waiting for gossip from 1 of 3 processes for 6 s: n1 pid 104")
	if said := admit(knockOf(5, 3)); !strings.Contains(said, "one too many") {
		t.Errorf("the fourth: %q", said)
	}
	g.leave(knockOf(4, 3).Record.Nonce, 0)
	if said := admit(knockOf(5, 3)); said != "" {
		t.Errorf("in place of the third: %s", said)
	}
	g.gossiped(knockOf(5, 3).Record.Nonce)
	if !g.complete() || len(g.seal()) != 3 {
		t.Error("not complete")
	}
	if said := admit(knockOf(6, 3)); !strings.Contains(said, "run-1") {
		t.Errorf("too late: %q", said)
	}
	if said := admit(knockOf(5, 3)); !strings.Contains(said, "run-1") {
		t.Errorf("again, too late: %q", said)
	}
}

func TestDiffSettings(t *testing.T) {
	kv := func(pairs ...string) (list []rank.KV) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, rank.KV{Key: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	for _, c := range []struct {
		theirs, ours     []rank.KV
		key, their, our_ string
		more             int
	}{
		{kv("a", "1"), kv("a", "1"), "", "", "", 0},
		{kv("a", "1"), kv("a", "2"), "a", `"1"`, `"2"`, 0},
		{kv("a", "1", "c", "1"), kv("b", "1", "c", "2"), "a", `"1"`, "not set", 2},
		{nil, kv("b", "1"), "b", "not set", `"1"`, 0},
		{kv("b", ""), nil, "b", `""`, "not set", 0},
		{kv("m", "0", "topology", "ring"), kv("m", "1", "topology", "m2n"), "topology", `"ring"`, `"m2n"`, 1},
		{kv("topology", "ring", "transport", "rdma"), kv("topology", "shift", "transport", "tcp"), "transport", `"rdma"`, `"tcp"`, 1},
		{kv("passes", strings.Repeat("x", 200), "rounds", "3"), kv("passes", "all", "rounds", "1"), "rounds", `"3"`, `"1"`, 1},
		{kv("-S", "given", "-c", "1", "transport", "tcp"), kv("-S", "not given", "-c", "1", "transport", "rdma"), "-S", `"given"`, `"not given"`, 0},
		{kv("-c", "1", "-m", "5", "connections", "1", "passes", "a"), kv("-c", "2", "-m", "6", "connections", "2", "passes", "b"), "-c", `"1"`, `"2"`, 1},
		{kv("-m", "5", "transport", "tcp"), kv("-m", "6", "transport", "rdma"), "transport", `"tcp"`, `"rdma"`, 1},
		{kv("a", strings.Repeat("x", 200)), nil, "a", `"` + strings.Repeat("x", 80) + `"…`, "not set", 0},
	} {
		key, their, our, more := diffSettings(c.theirs, c.ours)
		if key != c.key || their != c.their || our != c.our_ || more != c.more {
			t.Errorf("%v against %v: %q %s %s %d", c.theirs, c.ours, key, their, our, more)
		}
	}
}

// TestRefusalCountsOtherSettings: one line, in the words of one and of many.
func TestRefusalCountsOtherSettings(t *testing.T) {
	for _, c := range []struct {
		more int
		want string
	}{{0, `setting a is "1" there, "2" here; start`}, {1, "(and 1 more setting differs); start"}, {2, "(and 2 more settings differ); start"}} {
		theirs, ours := knockOf(1, 3), knockOf(0, 3)
		theirs.Settings, ours.Settings = nil, nil
		for _, key := range []string{"a", "b", "c"}[:c.more+1] {
			theirs.Settings = append(theirs.Settings, rank.KV{Key: key, Value: "1"})
			ours.Settings = append(ours.Settings, rank.KV{Key: key, Value: "2"})
		}
		m, differ := compare(theirs, ours)
		if said := m.notice("n1 pid 7"); !differ || !strings.Contains(said, c.want) {
			t.Errorf("%d more: %s", c.more, said)
		}
	}
}

func TestCheckRecord(t *testing.T) {
	for name, spoil := range map[string]func(*rank.Record){
		"nonce":      func(r *rank.Record) { r.Nonce = [16]byte{} },
		"no host":    func(r *rank.Record) { r.Host = "" },
		"long host":  func(r *rank.Record) { r.Host = strings.Repeat("h", 256) },
		"line break": func(r *rank.Record) { r.Host = "a\nb" },
		"no address": func(r *rank.Record) { r.Control = nil },
		"port 0":     func(r *rank.Record) { r.Control = []netip.AddrPort{netip.MustParseAddrPort("1.2.3.4:0")} },
		"invalid":    func(r *rank.Record) { r.Control = []netip.AddrPort{{}} },
		"addresses":  func(r *rank.Record) { r.Control = make([]netip.AddrPort, maxControl+1) },
		"build":      func(r *rank.Record) { r.BuildID = strings.Repeat("b", maxText+1) },
		"own":        func(r *rank.Record) { r.Own = make([]rank.KV, maxSettings+1) },
		"own value":  func(r *rank.Record) { r.Own = []rank.KV{{Value: strings.Repeat("b", maxText+1)}} },
	} {
		k := knockOf(0, 1)
		if err := checkRecord(&k.Record); err != nil {
			t.Fatal(err)
		}
		spoil(&k.Record)
		if checkRecord(&k.Record) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// What is committed for the fuzz targets is of the version that is spoken.
func TestCorpusIsOfToday(t *testing.T) {
	for name, b := range corpus.Bytes(t, "FuzzKnock") {
		if k, err := decodeKnock(b); err != nil || k.Proto != knockVersion {
			t.Errorf("%s: %v, version %d", name, err, k.Proto)
		}
	}
	for name, b := range corpus.Bytes(t, "FuzzFrames") {
		r, n := bufio.NewReader(bytes.NewReader(b)), 0
		for {
			_, _, err := readFrame(r, maxFrame)
			if err != nil {
				if err != io.EOF || n < 3 {
					t.Errorf("%s: %v after %d frames", name, err, n)
				}
				break
			}
			n++
		}
	}
}

// FuzzKnock: whatever is accepted survives its own encoding, and can be judged.
func FuzzKnock(f *testing.F) {
	for _, k := range []*knock{knockOf(0, 3), knockOf(9, 1), {}} {
		body, err := msgpack.Marshal(k)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)/2])
	}
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		k, err := decodeKnock(body)
		if err != nil {
			return
		}
		again, err := msgpack.Marshal(&k)
		if err != nil {
			t.Fatal(err)
		}
		k2, err := decodeKnock(again)
		if third, _ := msgpack.Marshal(&k2); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%+v became %+v (%v)", k, k2, err)
		}
		g := newGathering(*knockOf(0, 3), "run")
		m, ok := g.admit(&k, time.Second)
		if notice := m.notice(who(&k.Record)); !ok && strings.ContainsAny(notice, "\n\x1b") {
			t.Fatalf("the notice %q would disturb the terminal", notice)
		}
		g.waiting(time.Hour, "n0:7471", Launch{}, false)
	})
}

// FuzzEntries: the gossip's records.
func FuzzEntries(f *testing.F) {
	body, err := msgpack.Marshal([]entry{{Via: [16]byte{1}, Seq: 1, Record: knockOf(0, 1).Record}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		entries, err := decodeEntries(body)
		if err != nil || len(entries) == 0 {
			return
		}
		again, err := msgpack.Marshal(entries)
		if err != nil {
			t.Fatal(err)
		}
		second, err := decodeEntries(again)
		if third, _ := msgpack.Marshal(second); err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%+v became %+v (%v)", entries, second, err)
		}
	})
}

// What a controller would take for junk is refused where it was typed.
func TestCheckOwn(t *testing.T) {
	for _, c := range []struct {
		change func(k *knock)
		want   string
	}{
		{func(*knock) {}, ""},
		{func(k *knock) { k.Record.Host = strings.Repeat("a", 255) }, ""},
		{func(k *knock) { k.Record.Host = "nœud-1" }, ""},
		{func(k *knock) { k.Record.Host = strings.Repeat("a", 256) }, "a host name of 256 bytes"},
		{func(k *knock) { k.Record.Host = "" }, "a host name of 0 bytes"},
		{func(k *knock) { k.Record.Host = "a b" }, "host name \"a b\" has a space"},
		{func(k *knock) { k.Record.Host = "a\nb" }, `host name "a\nb" has a space`},
		{func(k *knock) { k.Record.Host = "a\xff" }, `host name "a\xff" has a space`},
		{func(k *knock) { k.JobKey = strings.Repeat("j", maxText+1) }, "--job has 4097 bytes"},
		{func(k *knock) { k.Record.Own = []rank.KV{{Key: "out", Value: strings.Repeat("o", maxText+1)}} }, "--out has 4097 bytes"},
		{func(k *knock) { k.Settings[1].Value = strings.Repeat("1,", maxKnock/2) }, "most of them --b"},
	} {
		k := knockOf(0, 2)
		c.change(k)
		err := checkOwn(*k)
		if c.want == "" {
			if err != nil {
				t.Errorf("%v, want no error", err)
			}
			if err := checkRecord(&k.Record); err != nil {
				t.Errorf("a controller says %v", err)
			}
			continue
		}
		if errorKind(err) != rank.KindUsage || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
