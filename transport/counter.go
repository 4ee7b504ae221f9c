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

// PortCounter is implemented by providers whose devices count by themselves.
type PortCounter interface {
	// PortCounts reads the counters of the ports that have one of these local addresses, ascending. It reads many
	// small files and belongs between phases, at one process of a machine.
	PortCounts(local []netip.Addr) []PortCounts
}
