package sysfs

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// tree makes a file system of lines: a path, then what the file holds.
func tree(text string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for line := range strings.Lines(text) {
		if name, content, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			fsys[name] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
	}
	return fsys
}

// A RoCE adapter with an address of each family, and an InfiniBand one of two
// ports whose second has no cable.
const twoAdapters = `
sys/class/infiniband/rxe0/node_type 1: CA
sys/class/infiniband/rxe0/node_guid 0266:00ff:fe00:0001
sys/class/infiniband/rxe0/ports/1/state 4: ACTIVE
sys/class/infiniband/rxe0/ports/1/phys_state 5: LinkUp
sys/class/infiniband/rxe0/ports/1/link_layer Ethernet
sys/class/infiniband/rxe0/ports/1/rate 2.5 Gb/sec (1X SDR)
sys/class/infiniband/rxe0/ports/1/lid 0x0
sys/class/infiniband/rxe0/ports/1/gids/0 fe80:0000:0000:0000:0066:00ff:fe00:0001
sys/class/infiniband/rxe0/ports/1/gids/1 0000:0000:0000:0000:0000:ffff:0a42:0001
sys/class/infiniband/rxe0/ports/1/gids/10 fd66:0000:0000:0000:0000:0000:0000:0001
sys/class/infiniband/rxe0/ports/1/gids/2 0000:0000:0000:0000:0000:0000:0000:0000
sys/class/infiniband/rxe0/ports/1/gid_attrs/types/0 RoCE v2
sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1 RoCE v2
sys/class/infiniband/rxe0/ports/1/gid_attrs/types/10 IB/RoCE v1
sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0 lab0
sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1 lab0
sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/10 lab0.7
sys/class/infiniband/mlx5_0/node_type 1: CA
sys/class/infiniband/mlx5_0/fw_ver 20.31.1014
sys/class/infiniband/mlx5_0/node_guid b859:9f03:00aa:0001
sys/class/infiniband/mlx5_0/device/net/ibp1/dev_port 0
sys/class/infiniband/mlx5_0/device/net/ibp2/dev_port 1
sys/class/infiniband/mlx5_0/ports/1/state 4: ACTIVE
sys/class/infiniband/mlx5_0/ports/1/link_layer InfiniBand
sys/class/infiniband/mlx5_0/ports/1/lid 0x1f
sys/class/infiniband/mlx5_0/ports/1/gids/0 fe80:0000:0000:0000:b859:9f03:00aa:0001
sys/class/infiniband/mlx5_0/ports/2/state 1: DOWN
sys/class/infiniband/mlx5_0/ports/2/phys_state 3: Disabled
sys/class/infiniband/mlx5_0/ports/2/link_layer InfiniBand
sys/class/infiniband/mlx5_0/ports/readme no port
`

func TestDevices(t *testing.T) {
	got := Devices(tree(twoAdapters))
	want := []Device{
		{Name: "mlx5_0", NodeType: "CA", Firmware: "20.31.1014", NodeGUID: "b859:9f03:00aa:0001", Ports: []Port{
			{
				Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand", LID: 31, Netdevs: []string{"ibp1"}, GIDTableCapacity: 1,
				GIDs: []GID{{Index: 0, Addr: netip.MustParseAddr("fe80::b859:9f03:aa:1")}},
			},
			{Number: 2, State: "DOWN", Physical: "Disabled", LinkLayer: "InfiniBand", Netdevs: []string{"ibp2"}},
		}},
		{Name: "rxe0", NodeType: "CA", NodeGUID: "0266:00ff:fe00:0001", Ports: []Port{{
			Number: 1, State: "ACTIVE", Physical: "LinkUp", LinkLayer: "Ethernet", Rate: "2.5 Gb/sec (1X SDR)",
			Netdevs: []string{"lab0", "lab0.7"}, GIDTableCapacity: 4,
			GIDs: []GID{
				{Index: 0, Addr: netip.MustParseAddr("fe80::66:ff:fe00:1"), Type: "RoCE v2", Netdev: "lab0"},
				{Index: 1, Addr: netip.MustParseAddr("10.66.0.1"), Type: "RoCE v2", Netdev: "lab0"},
				{Index: 10, Addr: netip.MustParseAddr("fd66::1"), Type: "IB/RoCE v1", Netdev: "lab0.7"},
			},
		}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if got := Devices(fstest.MapFS{}); len(got) != 0 {
		t.Errorf("devices of nothing: %+v", got)
	}
}

const counted = `
sys/class/infiniband/rxe0/ports/1/cm_tx_msgs/req 266
sys/class/infiniband/rxe0/ports/1/cm_tx_retries/req 65
sys/class/infiniband/rxe0/ports/1/cm_rx_msgs/mra 3
sys/class/infiniband/rxe0/ports/1/cm_rx_duplicates/req 0
sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_sends 4000
sys/class/infiniband/rxe0/ports/1/hw_counters/lifespan 10
sys/class/infiniband/rxe0/ports/1/hw_counters/odd text
sys/class/infiniband/siw0/ports/1/state 4: ACTIVE
`

func TestReadCounters(t *testing.T) {
	got := ReadCounters(tree(counted))
	want := []Counters{
		{Device: "rxe0", Port: 1, CM: map[string]int64{"cm_tx_msgs/req": 266, "cm_tx_retries/req": 65, "cm_rx_msgs/mra": 3, "cm_rx_duplicates/req": 0}, HW: map[string]int64{"rdma_sends": 4000}},
		{Device: "siw0", Port: 1, CM: map[string]int64{}, HW: map[string]int64{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestLimits(t *testing.T) {
	fsys := tree(`
proc/sys/net/rdma_ucm/max_backlog 1024
proc/sys/net/ipv4/ip_local_port_range 32768	60999
proc/self/cgroup 0::/jobs/step
sys/fs/cgroup/jobs/rdma.max mlx5_0 hca_handle=2 hca_object=2000`)
	want := "[{net.rdma_ucm.max_backlog 1024} {net.ipv4.ip_local_port_range 32768 60999} {rdma.max of cgroup /jobs mlx5_0 hca_handle=2 hca_object=2000}]"
	if got := fmt.Sprint(Limits(fsys)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := Limits(tree("proc/self/cgroup 0::relative")); len(got) != 0 {
		t.Errorf("limits of nothing: %v", got)
	}
}

func TestLocksFreely(t *testing.T) {
	for caps, want := range map[string]bool{"000001ffffffffff": true, "0000000000004000": true, "0000000000003fff": false, "": false, "x": false} {
		if got := LocksFreely(tree("proc/self/status CapEff:\t" + caps)); got != want {
			t.Errorf("CapEff %q: %v", caps, got)
		}
	}
}
