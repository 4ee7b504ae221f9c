package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"rankstorm/rank"
	"rankstorm/transport/rdma"
)

func TestRDMAInterfaces(t *testing.T) {
	port := func(state string, netdevs ...string) rdma.Port {
		return rdma.Port{Number: 1, State: state, Netdevs: netdevs}
	}
	devices := []rdma.Device{
		{Name: "mlx5_0", Ports: []rdma.Port{port("DOWN", "eth0"), port("ACTIVE", "vlan7", "eth1")}},
		{Name: "mlx5_1", Ports: []rdma.Port{port("ACTIVE", "eth2")}},
		{Name: "mlx5_2", Ports: []rdma.Port{port("DOWN", "eth1")}},
		{Name: "mlx5_3", Ports: []rdma.Port{port("ACTIVE", "bare")}},
		{Name: "mlx5_4"},
	}
	addr := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	links := []link{{"lo", addr}, {"eth0", addr}, {"eth1", addr}, {"eth2", addr}, {"bare", nil}}
	for _, c := range []struct {
		list string
		want []string
		err  string
	}{
		{"mlx5_0", []string{"eth1"}, ""}, // vlan7 is not an interface here
		{"mlx5_1, mlx5_0", []string{"eth2", "eth1"}, ""},
		{"mlx5_2", nil, "none of its ports is active on an interface that has an address"},
		{"mlx5_3", nil, "none of its ports is active"},
		{"mlx5_4", nil, "none of its ports is active"},
		{"mlx5_1,nosuch", nil, "--device nosuch: this host has no such RDMA device: there are mlx5_0, mlx5_1, mlx5_2, mlx5_3, mlx5_4"},
		{"", nil, "no such RDMA device"},
	} {
		got, err := rdmaInterfaces(c.list, devices, links)
		switch {
		case c.err == "" && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%q: %v, %v; want %v", c.list, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || rank.ExitCode(err) != 2):
			t.Errorf("%q: %v, want %q", c.list, err, c.err)
		}
	}
	if _, err := rdmaInterfaces("x", nil, links); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("without any device: %v", err)
	}
}
