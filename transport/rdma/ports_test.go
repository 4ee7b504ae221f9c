package rdma

import (
	"net/netip"
	"reflect"
	"testing"

	"rankstorm/transport"
)

// Ports are found by GID or by their interface's address; others are not read.
func TestPortCounts(t *testing.T) {
	const class = "sys/class/infiniband/"
	fsys := files(
		class+"rxe0/ports/1/gids/0 0000:0000:0000:0000:0000:ffff:0a42:0001",
		class+"rxe0/ports/1/cm_tx_msgs/req 7",
		class+"rxe0/ports/1/hw_counters/rdma_sends 9",
		class+"rxe1/ports/1/gids/0 0000:0000:0000:0000:0000:ffff:0a42:0002",
		class+"rxe1/ports/1/cm_tx_msgs/req 100",
		class+"mlx5_0/ports/2/gids/0 fe80:0000:0000:0000:0000:0000:0000:0001",
		class+"mlx5_0/ports/2/cm_rx_msgs/req 3",
		class+"mlx5_0/device/net/ib1/dev_port 1",
		class+"mlx5_0/ports/1/cm_rx_msgs/req 5",
	)
	ib := netip.MustParseAddr("10.1.0.1")
	addresses := func(netdev string) []netip.Addr {
		if netdev == "ib1" {
			return []netip.Addr{ib}
		}
		return nil
	}
	roce := netip.MustParseAddr("::ffff:10.66.0.1")
	got := portCounts(fsys, []netip.Addr{roce, ib, netip.MustParseAddr("10.9.9.9")}, addresses)
	want := []transport.PortCounts{
		{Device: "mlx5_0", Port: 2, Addresses: []netip.Addr{ib}, Counts: map[string]int64{"cm_rx_msgs/req": 3}},
		{Device: "rxe0", Port: 1, Addresses: []netip.Addr{roce}, Counts: map[string]int64{"cm_tx_msgs/req": 7, "hw/rdma_sends": 9}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := portCounts(fsys, nil, addresses); got != nil {
		t.Errorf("no address: %+v", got)
	}
}
