package runner

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"rankstorm/collect"
	"rankstorm/rank"
)

// TestAddresses: data addresses go in turn over the ranks of a host, whichever
// process they are in, and the document says the same.
func TestAddresses(t *testing.T) {
	record := func(i int, host string, own ...rank.KV) rank.Record {
		return rank.Record{
			Nonce: [16]byte{byte(i + 1)}, Host: host, LauncherProc: i, LocalIndex: -1, BuildID: "b", Own: own,
			Control: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 4000), netip.MustParseAddrPort("127.0.0.1:4000")},
		}
	}
	list := []rank.KV{{Key: OwnBind, Value: "10.1.0.1,10.2.0.1,10.3.0.1"}, {Key: OwnBindFrom, Value: "-B"}}
	own := []rank.KV{{Key: OwnBind, Value: "10.5.{local_rank}.1"}, {Key: OwnBindFrom, Value: "-b"}}
	table, err := rank.Build([]rank.Record{record(0, "a", list...), record(1, "b"), record(2, "a", list...), record(3, "a", own...)}, 2, "r")
	if err != nil {
		t.Fatal(err)
	}
	want := []collect.AddressDoc{
		{Proc: 0, Control: "10.0.0.0:4000", Data: []string{"10.1.0.1", "10.2.0.1"}, DataFrom: "-B"},
		{Proc: 1, Control: "10.0.0.1:4000", Data: []string{"10.0.0.1", "10.0.0.1"}, DataFrom: "control"},
		{Proc: 2, Control: "10.0.0.2:4000", Data: []string{"10.3.0.1", "10.1.0.1"}, DataFrom: "-B"},
		{Proc: 3, Control: "10.0.0.3:4000", Data: []string{"10.5.4.1", "10.5.5.1"}, DataFrom: "-b"},
	}
	for p := range table.Procs {
		if got := addresses(table, rank.Proc(p)); !reflect.DeepEqual(got, want[p]) {
			t.Errorf("got %+v, want %+v", got, want[p])
		}
	}
}

// TestOneFamily: whoever cannot reach the others is named before any connection.
func TestOneFamily(t *testing.T) {
	for _, c := range []struct {
		own  [3]string // data address of a process, "" as its control address 10.0.0.1
		want string
	}{
		{[3]string{"", "10.9.0.1", ""}, ""},
		{[3]string{"fd00::1", "fd00::2", "fe80::1%eth0"}, ""},
		{[3]string{"", "fd00::2", ""}, "process 0 (n0) has the data address 10.0.0.1 and process 1 (n1) has fd00::2"},
		{[3]string{"fd00::1", "fd00::1", ""}, "process 2 (n2) has 10.0.0.1"},
		{[3]string{"10.0.{local_rank}.1", "10.0.{local_rank}00.1", ""}, `process 1 (n1): data address "10.0.000.1" is none`},
	} {
		records := make([]rank.Record, 3)
		for i, own := range c.own {
			records[i] = rank.Record{
				Nonce: [16]byte{byte(i + 1)}, Host: fmt.Sprint("n", i), LauncherProc: i, LocalIndex: -1,
				Control: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:4000")},
			}
			if own != "" {
				records[i].Own = []rank.KV{{Key: OwnBind, Value: own}}
			}
		}
		table, err := rank.Build(records, 1, "r")
		if err != nil {
			t.Fatal(err)
		}
		err = oneFamily(table)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || rank.ExitCode(err) != 2) {
			t.Errorf("%q: got %v, want %q", c.own, err, c.want)
		}
	}
}
