// Package sysfs reads what the kernel shows of RDMA devices as files: devices,
// ports, GIDs, counters and limits. It needs no library and no permission. All
// functions take the file system from its root: os.DirFS("/"), or a tree that a
// test made.
package sysfs

import (
	"cmp"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// class is where the kernel shows RDMA devices, loaded libraries or not.
const class = "sys/class/infiniband"

// Device is an RDMA device as the kernel shows it.
type Device struct {
	Name     string // "mlx5_0", "rxe0"
	NodeType string // "CA" (InfiniBand and RoCE), "RNIC" (iWARP), …
	Firmware string // "" where the driver tells none
	NodeGUID string // as the kernel writes it: "0266:00ff:fe00:0001"
	Ports    []Port // by number
}

// Port of a device.
type Port struct {
	Number           int
	State            string // "ACTIVE", "DOWN", …
	Physical         string // "LinkUp", "Disabled", …
	LinkLayer        string // "InfiniBand" or "Ethernet"
	LID              uint16 // InfiniBand
	Rate             string // as the kernel writes it: "100 Gb/sec (4X EDR)"
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

// Names of the devices that the kernel has, sorted.
func Names(fsys fs.FS) []string { return names(fsys, class) }

// Devices that the kernel has, by name. What cannot be read is left empty.
func Devices(fsys fs.FS) []Device {
	var list []Device
	for _, name := range Names(fsys) {
		dir := path.Join(class, name)
		d := Device{Name: name, NodeType: afterColon(word(fsys, dir, "node_type")), Firmware: word(fsys, dir, "fw_ver"), NodeGUID: word(fsys, dir, "node_guid")}
		for _, number := range names(fsys, path.Join(dir, "ports")) {
			if n, err := strconv.Atoi(number); err == nil && n > 0 {
				d.Ports = append(d.Ports, port(fsys, dir, n))
			}
		}
		slices.SortFunc(d.Ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
		list = append(list, d)
	}
	return list
}

// UserFile is the file by which user space reaches a device, from the root; "" if the kernel has none.
func UserFile(fsys fs.FS, device string) string {
	const users = "sys/class/infiniband_verbs"
	for _, name := range names(fsys, users) {
		if word(fsys, path.Join(users, name), "ibdev") == device {
			return path.Join("dev/infiniband", name)
		}
	}
	return ""
}

// longestGap of unset entries within a GID table. The kernel fills the lowest
// free one; a table may have thousands, each a file, and jobs wait for this.
const longestGap = 64

func port(fsys fs.FS, device string, number int) Port {
	dir := path.Join(device, "ports", strconv.Itoa(number))
	p := Port{
		Number: number, LinkLayer: word(fsys, dir, "link_layer"), Rate: word(fsys, dir, "rate"),
		State: afterColon(word(fsys, dir, "state")), Physical: afterColon(word(fsys, dir, "phys_state")),
	}
	if lid, err := strconv.ParseUint(word(fsys, dir, "lid"), 0, 16); err == nil {
		p.LID = uint16(lid)
	}
	var indices []int
	for _, name := range names(fsys, path.Join(dir, "gids")) {
		if index, err := strconv.Atoi(name); err == nil && index >= 0 {
			indices = append(indices, index)
		}
	}
	slices.Sort(indices)
	p.GIDTableCapacity = len(indices)
	empty := 0
	for _, index := range indices {
		if empty == longestGap {
			break
		}
		name := strconv.Itoa(index)
		addr, err := netip.ParseAddr(word(fsys, dir, "gids/"+name))
		// An InfiniBand port that has no subnet manager yet shows its prefix alone.
		if err != nil || addr.IsUnspecified() {
			empty++
			continue
		}
		empty = 0
		p.GIDs = append(p.GIDs, GID{
			Index: index, Addr: addr.Unmap(),
			// Both fail with EINVAL where an entry has none.
			Type: word(fsys, dir, "gid_attrs/types/"+name), Netdev: word(fsys, dir, "gid_attrs/ndevs/"+name),
		})
	}
	p.Netdevs = netdevs(fsys, device, p)
	return p
}

// netdevs of a port: those its GIDs belong to, and those of the same adapter
// with the same port number (IP over InfiniBand), which count from 0.
func netdevs(fsys fs.FS, device string, p Port) []string {
	var list []string
	for _, g := range p.GIDs {
		if g.Netdev != "" {
			list = append(list, g.Netdev)
		}
	}
	for _, name := range names(fsys, path.Join(device, "device/net")) {
		dir := path.Join(device, "device/net", name)
		if at, err := strconv.ParseInt(word(fsys, dir, "dev_port"), 0, 32); err == nil && int(at)+1 == p.Number {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// names of a directory's entries, sorted; none if it cannot be read.
func names(fsys fs.FS, dir string) []string {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	slices.Sort(list)
	return list
}

// word is the text of a small file without its end, "" if it cannot be read.
func word(fsys fs.FS, dir, name string) string {
	b, err := fs.ReadFile(fsys, path.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// afterColon turns "4: ACTIVE" into "ACTIVE".
func afterColon(text string) string {
	if _, after, ok := strings.Cut(text, ": "); ok {
		return after
	}
	return text
}
