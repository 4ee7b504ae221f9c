package transport

import "net/netip"

// PortCounts is what a port of a device has counted by itself, for all
// processes of the machine, since the device came up.
type PortCounts struct {
	Device    string
	Port      int
	Addresses []netip.Addr     // of those that were asked for, the ones of this port
	Counts    map[string]int64 // by the kernel's names: "cm_rx_msgs/req", …; those of the driver begin with "hw/"
}

// KernelCounts is what the kernel says that this process holds.
type KernelCounts struct{ IDs, QPs, CQs, MRs int64 }

// KernelCounter is implemented by providers whose resources the kernel can be
// asked for: a check of their own Counters.
type KernelCounter interface {
	// KernelCounts asks the kernel. The error says that it cannot tell, or that there is too much to go through.
	KernelCounts() (KernelCounts, error)
}

// PortCounter is implemented by providers whose devices count by themselves.
type PortCounter interface {
	// PortCounts reads the counters of the ports that have one of these local addresses, ascending. It reads many
	// small files and belongs between phases, at one process of a machine.
	PortCounts(local []netip.Addr) []PortCounts
}
