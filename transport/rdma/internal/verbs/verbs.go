//go:build cgo

package verbs

// #cgo CFLAGS: -O2 -Wall -Wextra -Wno-unused-parameter
// #cgo LDFLAGS: -ldl
// #include "lib.h"
import "C"

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Built says that this binary can speak to the RDMA libraries at all.
const Built = true

var load struct {
	sync.Mutex
	done bool
}

// Load opens the libraries; once it succeeded it does nothing. The error is an
// *LoadError.
func Load() error {
	load.Lock()
	defer load.Unlock()
	if load.done {
		return nil
	}
	var why [512]C.char
	if which := C.rsv_open(&why[0], C.int(len(why))); which != 0 {
		return &LoadError{File: [...]string{"", "libibverbs.so.1", "librdmacm.so.1", ""}[which], Text: C.GoString(&why[0])}
	}
	load.done = true
	return nil
}

// Devices are the devices that libibverbs can use. One that cannot be opened has Err.
func Devices() ([]Device, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	raw := make([]C.struct_rsv_device, 64)
	n := int(C.rsv_devices(&raw[0], C.int(len(raw))))
	if n < 0 {
		return nil, fmt.Errorf("ibv_get_device_list: %w", unix.Errno(-n))
	}
	if n > len(raw) { // a machine with very many
		raw = make([]C.struct_rsv_device, n)
		if n = int(C.rsv_devices(&raw[0], C.int(len(raw)))); n < 0 {
			return nil, fmt.Errorf("ibv_get_device_list: %w", unix.Errno(-n))
		}
	}
	devices := make([]Device, 0, n)
	for i := range min(n, len(raw)) {
		devices = append(devices, device(&raw[i]))
	}
	return devices, nil
}

func device(r *C.struct_rsv_device) Device {
	d := Device{
		Name: C.GoString(&r.name[0]), Firmware: C.GoString(&r.firmware[0]), NodeGUID: uint64(r.node_guid),
		VendorID: uint32(r.vendor_id), PartID: uint32(r.vendor_part_id),
		Limits: Limits{
			QPs: int(r.max_qp), QPWorkRequests: int(r.max_qp_wr), SGEs: int(r.max_sge), CQs: int(r.max_cq), CQEntries: int(r.max_cqe),
			MRs: int(r.max_mr), PDs: int(r.max_pd), AHs: int(r.max_ah), MRSize: uint64(r.max_mr_size),
			ReadsAsTarget: int(r.max_qp_rd_atom), ReadsAsInitiator: int(r.max_qp_init_rd_atom), Atomics: r.atomic_cap != C.RS_ATOMIC_NONE,
		},
	}
	switch r.transport {
	case C.RS_TRANSPORT_IB:
		d.Transport = "InfiniBand"
	case C.RS_TRANSPORT_IWARP:
		d.Transport = "iWARP"
	default:
		d.Transport = fmt.Sprintf("transport %d", r.transport)
	}
	if r.open_errno != 0 {
		d.Err = fmt.Errorf("ibv_open_device %s: %w", d.Name, unix.Errno(r.open_errno))
	}
	for i := range min(int(r.ports), len(r.port)) {
		d.MTUs = append(d.MTUs, MTU{Active: mtuBytes(int32(r.port[i].active_mtu)), Max: mtuBytes(int32(r.port[i].max_mtu))})
	}
	return d
}
