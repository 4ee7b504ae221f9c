package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rankstorm/rank"
)

func testLinks() []link {
	addrs := func(list ...string) []netip.Addr {
		out := make([]netip.Addr, len(list))
		for i, a := range list {
			out[i] = netip.MustParseAddr(a)
		}
		return out
	}
	return []link{
		{"lo", addrs("127.0.0.1", "::1")},
		{"eth0", addrs("fe80::1%eth0", "10.0.0.1", "10.0.0.2", "2001:db8::1")},
		{"eth1", addrs("10.0.1.1")},
		{"ib0", addrs("fe80::2%ib0")},
		{"dummy0", nil},
	}
}

func TestChooseAddresses(t *testing.T) {
	cases := []struct {
		iface, bind string
		ipv6        bool
		want        string // joined by blanks, or a part of the error after "error: "
	}{
		{want: ""},
		{iface: "eth0", want: "10.0.0.1"},
		{iface: "eth0", ipv6: true, want: "2001:db8::1"},
		{iface: "eth0, eth1", want: "10.0.0.1 10.0.1.1"},
		{iface: "ib0", want: "fe80::2%ib0"},
		{iface: "lo", ipv6: true, want: "::1"},
		{bind: "10.0.0.2,10.0.1.1", want: "10.0.0.2 10.0.1.1"},
		{bind: "127.0.0.9", want: "127.0.0.9"},
		{bind: "[::1]", want: "::1"},
		{bind: "::ffff:10.0.0.1", want: "10.0.0.1"},
		{bind: "fe80::2", want: "fe80::2%ib0"},
		{bind: "fe80::2%ib0", want: "fe80::2%ib0"},
		{iface: "eth9", want: `error: no interface "eth9" on this host: there are lo, eth0, eth1, ib0, dummy0`},
		{iface: "dummy0", want: "error: interface dummy0 has no address: give it one"},
		{iface: "eth1", ipv6: true, want: "error: interface eth1 has no IPv6 address"},
		{bind: "10.9.9.9", want: "error: 10.9.9.9 is not an address of this host: there are 127.0.0.1, ::1, fe80::1%eth0"},
		{bind: "fe80::2%eth0", want: "error: fe80::2%eth0 is not an address of this host"},
		{bind: "n0", want: `error: "n0" is not an IP address`},
		{bind: "0.0.0.0", want: "error: 0.0.0.0 is not the address of one interface"},
		{bind: "ff02::1", want: "error: ff02::1 is not the address of one interface"},
		{bind: "10.0.0.1,", want: `error: "" is not an IP address`},
		{bind: "10.0.0.1,::1", want: "error: 10.0.0.1 and ::1 are of different families"},
		{iface: "lo", bind: "127.0.0.1", want: "error: -B/--interface and -b/--bind both choose"},
		{bind: "10.9.{local_rank}.1, [fd00::{local_rank}]", want: "error: different families"},
		{bind: "10.9.{local_rank}.1", want: "10.9.{local_rank}.1"},
		{bind: "[fd00:{local_rank}::9]", want: "fd00:{local_rank}::9"},
		{bind: "10.0.{host}.1", want: "error: {local_rank} may stand"},
		{bind: "10.0.{local_rank}", want: "error: {local_rank} may stand"},
		{ipv6: true, want: "error: --ipv6 chooses among the addresses of an interface"},
	}
	for _, c := range cases {
		got, err := chooseAddresses(c.iface, c.bind, c.ipv6, testLinks())
		if part, bad := strings.CutPrefix(c.want, "error: "); bad {
			if err == nil || !strings.Contains(err.Error(), part) || rank.ExitCode(err) != 2 {
				t.Errorf("%+v: got %v, code %d, want an error with %q", c, err, rank.ExitCode(err), part)
			}
			continue
		}
		if err != nil || !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%+v: got %v, %v", c, got, err)
		}
	}
}

// TestLocalLinks reads the real interfaces: every host has a loopback.
func TestLocalLinks(t *testing.T) {
	links, err := localLinks()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := chooseAddresses("", "127.0.0.1", false, links); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestHasLoopback(t *testing.T) {
	loopback, other := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	for want, links := range map[bool][]link{
		true:  {{name: "eth0"}, {name: "lo", addrs: []netip.Addr{other, loopback}}},
		false: {{name: "lo"}, {name: "eth0", addrs: []netip.Addr{other}}},
	} {
		if got := hasLoopback(links); got != want {
			t.Errorf("%v: got %v", links, got)
		}
	}
}
