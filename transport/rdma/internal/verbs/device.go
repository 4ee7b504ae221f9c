package verbs

// Device is an RDMA device as libibverbs shows it.
type Device struct {
	Name      string // "mlx5_0", "rxe0"
	Transport string // "InfiniBand" (RoCE too), "iWARP" or what else it is
	Firmware  string
	NodeGUID  uint64
	VendorID  uint32
	PartID    uint32
	Limits    Limits
	MTUs      []MTU // of port 1, 2, …
	Err       error // why it could not be opened; Limits and MTUs are then unknown
}

// MTU of a port: bytes of RDMA payload per packet, 0: not known.
type MTU struct{ Active, Max int }

// Limits of a device, from ibv_query_device.
type Limits struct {
	QPs, QPWorkRequests, SGEs, CQs, CQEntries, MRs, PDs, AHs int
	ReadsAsTarget, ReadsAsInitiator                          int // outstanding RDMA reads and atomics of one QP
	MRSize                                                   uint64
	Atomics                                                  bool
}

// mtuBytes translates enum ibv_mtu.
func mtuBytes(m int32) int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}
