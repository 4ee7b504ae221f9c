package rdma

import (
	"io/fs"
	"os"

	"rankstorm/transport/rdma/internal/nldev"
	"rankstorm/transport/rdma/internal/sysfs"
	"rankstorm/transport/rdma/internal/verbs"
)

// What Devices tells; see the fields.
type (
	// Port is a port of a device.
	Port = sysfs.Port
	// GID is an entry of a port's table.
	GID = sysfs.GID
	// DeviceLimits are what a device can hold.
	DeviceLimits = verbs.Limits
	// MTU of a port.
	MTU = verbs.MTU
	// Limit is a bound of the machine or of this process.
	Limit = sysfs.Limit
)

// Device is an RDMA device of this machine: what the kernel shows, and what the
// libraries add where they can be used.
type Device struct {
	Name     string // "mlx5_0", "rxe0"
	Protocol string // "InfiniBand", "RoCE", "iWARP"; other kinds by the kernel's name
	Firmware string // "" where the driver tells none
	NodeGUID string // "0266:00ff:fe00:0001"
	Ports    []Port
	MTUs     []MTU            // of port 1, 2, …; nil: not known
	Limits   *DeviceLimits    // nil: not known
	InUse    map[string]int64 // by all processes: "qp", "cq", "cm_id", "mr", "pd", "ctx"; nil: not known
	Err      error            // why the libraries cannot open it
}

// Devices lists the devices that the kernel has, by name. The error is that of
// Usable; the list holds what can be known without the libraries.
func Devices() ([]Device, error) {
	m := thisMachine()
	err := m.usable()
	var opened []verbs.Device
	if m.load() == nil {
		opened, _ = m.devices() // usable tells why, if it is nothing
	}
	totals, _ := nldev.Totals() // old kernels, or none
	return merge(sysfs.Devices(m.fsys), opened, totals), err
}

// merge puts the three sources together by the devices' names.
func merge(kernel []sysfs.Device, opened []verbs.Device, totals []nldev.Device) []Device {
	list := make([]Device, len(kernel))
	for i, k := range kernel {
		d := &list[i]
		*d = Device{Name: k.Name, Protocol: protocol(k), Firmware: k.Firmware, NodeGUID: k.NodeGUID, Ports: k.Ports}
		for _, v := range opened {
			if v.Name == k.Name {
				if d.Err = v.Err; v.Err == nil {
					d.Limits, d.MTUs = &v.Limits, v.MTUs
				}
			}
		}
		for _, t := range totals {
			if t.Name == k.Name {
				d.InUse = t.InUse
			}
		}
	}
	return list
}

// protocol that a device speaks on its wire.
func protocol(d sysfs.Device) string {
	switch {
	case d.NodeType == "RNIC":
		return "iWARP"
	case d.NodeType == "CA" && len(d.Ports) > 0 && d.Ports[0].LinkLayer == "Ethernet":
		return "RoCE"
	case d.NodeType == "CA":
		return "InfiniBand"
	}
	return d.NodeType
}

// DevicesIn lists the devices that a file system shows, from its root: all that
// Devices tells without libraries and netlink.
func DevicesIn(fsys fs.FS) []Device { return merge(sysfs.Devices(fsys), nil, nil) }

// Limits are the bounds of this machine that matter to RDMA CM, and those of the
// rdma cgroups that this process is in.
func Limits() []Limit { return sysfs.Limits(root()) }

func root() fs.FS { return os.DirFS("/") }
