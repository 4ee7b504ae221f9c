package verbs

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Device is an RDMA device as libibverbs and sysfs show it.
type Device struct {
	Name      string // "mlx5_0", "rxe0"
	Transport string // "InfiniBand" (RoCE too), "iWARP" or what else it is
	Firmware  string
	NodeGUID  uint64
	VendorID  uint32
	PartID    uint32
	Limits    Limits
	Ports     []Port
	Err       error // why it could not be opened; Limits and the ports' MTU are then unknown

	mtus [][2]int // active and largest of each port
}

// Limits of a device, from ibv_query_device.
type Limits struct {
	QPs, QPWorkRequests, SGEs, CQs, CQEntries, MRs, PDs, AHs int
	ReadsAsTarget, ReadsAsInitiator                          int // outstanding RDMA reads and atomics of one QP
	MRSize                                                   uint64
	Atomics                                                  bool
}

// Port of a device.
type Port struct {
	Number           int
	State            string // "ACTIVE", "DOWN", …
	LinkLayer        string // "InfiniBand" or "Ethernet"
	MTU, MTUMax      int    // bytes of RDMA payload per packet, 0: not known
	LID              uint16 // InfiniBand
	Rate             string // as sysfs says it
	Netdevs          []string
	GIDs             []GID // those that are set
	GIDTableCapacity int
}

// GID is one entry of a port's table.
type GID struct {
	Index  int
	Addr   netip.Addr // the 16 bytes; an IPv4 address shows as itself
	Type   string     // "IB/RoCE v1", "RoCE v2"
	Netdev string     // "": none (InfiniBand)
}

// SysClass is where the kernel shows RDMA devices, loaded libraries or not.
const SysClass = "/sys/class/infiniband"

// KernelDevices are the names of the devices that the kernel has.
func KernelDevices() []string { return names(SysClass) }

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list
}

// ReadPorts fills in the ports, from sysfs: a file for each entry of a GID
// table, of which a port may have thousands.
func (d *Device) ReadPorts() {
	d.Ports = d.Ports[:0]
	dir := filepath.Join(SysClass, d.Name, "ports")
	for _, name := range names(dir) {
		n, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p := readPort(filepath.Join(dir, name), n)
		if n >= 1 && n <= len(d.mtus) {
			p.MTU, p.MTUMax = d.mtus[n-1][0], d.mtus[n-1][1]
		}
		d.Ports = append(d.Ports, p)
	}
	slices.SortFunc(d.Ports, func(a, b Port) int { return a.Number - b.Number })
}

func readPort(dir string, number int) Port {
	p := Port{Number: number, LinkLayer: word(dir, "link_layer"), Rate: word(dir, "rate")}
	_, p.State, _ = strings.Cut(word(dir, "state"), ": ")
	if lid, err := strconv.ParseUint(word(dir, "lid"), 0, 16); err == nil {
		p.LID = uint16(lid)
	}
	for _, name := range names(filepath.Join(dir, "gids")) {
		index, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p.GIDTableCapacity++
		addr, err := netip.ParseAddr(word(dir, "gids/"+name))
		if err != nil || addr.IsUnspecified() {
			continue
		}
		g := GID{
			Index: index, Addr: addr.Unmap(),
			// Both fail with EINVAL where an entry has none.
			Type: word(dir, "gid_attrs/types/"+name), Netdev: word(dir, "gid_attrs/ndevs/"+name),
		}
		p.GIDs = append(p.GIDs, g)
		if g.Netdev != "" && !slices.Contains(p.Netdevs, g.Netdev) {
			p.Netdevs = append(p.Netdevs, g.Netdev)
		}
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return a.Index - b.Index })
	slices.Sort(p.Netdevs)
	return p
}

// word is the text of a small file without its end, "" if it cannot be read.
func word(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// mtuBytes translates enum ibv_mtu.
func mtuBytes(m int32) int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}
