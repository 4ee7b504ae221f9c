package rendezvous

import (
	"fmt"
	"net/netip"
	"testing"

	"rankstorm/rank"
)

func TestParseController(t *testing.T) {
	for _, c := range []struct {
		text    string
		port    int
		want    string // "" : refused
		literal bool
	}{
		{"n0", 0, "n0:7471", false},
		{"n0", 99, "n0:99", false},
		{"n0:80", 99, "n0:80", false},
		{"10.0.0.1", 0, "10.0.0.1:7471", true},
		{"10.0.0.1:80", 0, "10.0.0.1:80", true},
		{"::1", 0, "[::1]:7471", true},
		{"[::1]", 0, "[::1]:7471", true},
		{"[fe80::1%eth0]:80", 0, "[fe80::1%eth0]:80", true},
		{"localhost", 0, "localhost:7471", true},
		{"", 0, "", false},
		{"224.0.0.1", 0, "", false},
		{"[ff02::1%eth0]:80", 0, "", false},
		{"fe80::1", 0, "", false},
		{"[fe80::1]:80", 0, "", false},
		{"169.254.0.1", 0, "169.254.0.1:7471", true},
		{"::ffff:224.0.0.1", 0, "", false},
		{"255.255.255.255:80", 0, "", false},
		{"0.0.0.0", 0, "", false},
		{"[::]:80", 0, "", false},
		{":80", 0, "", false},
		{"n0:", 0, "", false},
		{"n0:x", 0, "", false},
		{"n0:0", 0, "", false},
		{"n0:65536", 0, "", false},
		{"n0", -1, "", false},
		{"a:b:c", 0, "", false},
		{"n 0", 0, "", false},
		{"tcp://n0", 0, "", false},
	} {
		a, err := parseController(c.text, c.port)
		if c.want == "" {
			if errorKind(err) != rank.KindUsage {
				t.Errorf("%q: %v, %v", c.text, a, err)
			}
			continue
		}
		if err != nil || a.String() != c.want || a.literal != c.literal {
			t.Errorf("%q: %v %v, %v", c.text, a, a.literal, err)
		}
	}
}

func TestControlAddrs(t *testing.T) {
	ap := func(texts ...string) (list []netip.AddrPort) {
		for _, s := range texts {
			list = append(list, netip.MustParseAddrPort(s))
		}
		return list
	}
	own := ap("10.0.0.1:5", "192.168.0.1:5", "[fd00::1]:5", "127.0.0.1:5", "[::1]:5")
	for _, c := range []struct {
		source  string
		literal bool
		first   string
	}{
		{"192.168.0.1", false, "192.168.0.1:5"},
		{"fd00::1", true, "[fd00::1]:5"},
		{"127.0.0.1", true, "127.0.0.1:5"},
		{"::1", true, "[::1]:5"},
		{"127.0.1.1", false, "10.0.0.1:5"}, // an own name in /etc/hosts
		{"10.9.9.9", false, "10.0.0.1:5"},
	} {
		got := controlAddrs(own, netip.MustParseAddr(c.source), c.literal)
		if got[0].String() != c.first || len(got) != len(own) {
			t.Errorf("source %s: %v", c.source, got)
		}
	}
	// Over a link-local address the own one is no address of the list, but the first to try.
	if got := controlAddrs(own, netip.MustParseAddr("fe80::9%eth1"), true); got[0].String() != "[fe80::9%eth1]:5" || len(got) != len(own)+1 {
		t.Errorf("link-local source: %v", got)
	}
	if a, err := parseController("[fe80::1%eth1]:9", 0); err != nil || a.key() != "[fe80::1]:9" || a.String() != "[fe80::1%eth1]:9" {
		t.Errorf("%v: key %s, %v", a, a.key(), err)
	}
	if !isOwn(netip.MustParseAddr("127.0.1.1"), nil) || isOwn(netip.MustParseAddr("10.0.0.1"), nil) {
		t.Error("own addresses")
	}
	seeds := fmt.Sprint(reachableSeeds(own, netip.MustParseAddr("192.168.0.1")))
	if seeds != "[192.168.0.1:5 10.0.0.1:5 [fd00::1]:5]" {
		t.Errorf("seeds %s", seeds)
	}
	seeds = fmt.Sprint(reachableSeeds(own, netip.MustParseAddr("127.0.0.1")))
	if seeds != "[127.0.0.1:5 [::1]:5 10.0.0.1:5 192.168.0.1:5 [fd00::1]:5]" {
		t.Errorf("loopback seeds %s", seeds)
	}
}
