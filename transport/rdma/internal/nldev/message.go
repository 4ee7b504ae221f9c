// Package nldev asks the kernel over RDMA netlink which resources it holds, for
// whom: a check of the provider's own counters against another source.
package nldev

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Of rdma/rdma_netlink.h, a stable interface of the kernel.
const (
	clientNLDEV = 5

	cmdResGet     = 9
	cmdResQPGet   = 10
	cmdResCMIDGet = 11
	cmdResCQGet   = 12
	cmdResMRGet   = 13
	cmdResPDGet   = 14

	attrDevIndex         = 1
	attrDevName          = 2
	attrSummary          = 15
	attrSummaryEntry     = 16
	attrSummaryEntryName = 17
	attrSummaryEntryCurr = 18
	attrQP               = 19
	attrPID              = 28
	attrCMID             = 30
	attrCQ               = 35
	attrMR               = 40
	attrPD               = 46

	headerSize = unix.SizeofNlMsghdr
	typeMask   = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// Netlink is host-endian; Go knows it by that name.
var order = binary.NativeEndian

// query is a request for a dump. device < 0: of all devices.
func query(cmd uint16, seq uint32, device int64) []byte {
	b := make([]byte, headerSize)
	if device >= 0 {
		b = order.AppendUint16(b, 8)
		b = order.AppendUint16(b, attrDevIndex)
		b = order.AppendUint32(b, uint32(device))
	}
	order.PutUint32(b[0:], uint32(len(b)))
	order.PutUint16(b[4:], clientNLDEV<<10+cmd)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	order.PutUint32(b[8:], seq)
	return b
}

// answer goes through the messages of one read. more is false after the last
// message of the dump. Messages that answer another request are passed over.
func answer(b []byte, seq uint32, each func(payload []byte) error) (more bool, err error) {
	for len(b) > 0 {
		if len(b) < headerSize {
			return false, fmt.Errorf("netlink: %d bytes are left, less than a header", len(b))
		}
		size := int(order.Uint32(b))
		if size < headerSize || size > len(b) {
			return false, fmt.Errorf("netlink: a message of %d bytes in %d", size, len(b))
		}
		payload := b[headerSize:size]
		kind, number := order.Uint16(b[4:]), order.Uint32(b[8:])
		b = b[min(align(size), len(b)):]
		if number != seq {
			continue
		}
		switch kind {
		case unix.NLMSG_DONE:
			return false, status(payload)
		case unix.NLMSG_ERROR:
			if err := status(payload); err != nil {
				return false, err
			}
			return false, nil
		case unix.NLMSG_NOOP:
		default:
			if kind>>10 != clientNLDEV {
				return false, fmt.Errorf("netlink: a message of type %d", kind)
			}
			if err := each(payload); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// status is the error number at the begin of the last message, 0 or negative.
func status(payload []byte) error {
	if len(payload) < 4 {
		return nil // old kernels send none with the end
	}
	if code := int32(order.Uint32(payload)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}

// attributes goes through a list of attributes; nested flags in the type are
// taken off.
func attributes(b []byte, each func(kind uint16, value []byte) error) error {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlAttr {
			return fmt.Errorf("netlink: %d bytes are left, less than an attribute", len(b))
		}
		size := int(order.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return fmt.Errorf("netlink: an attribute of %d bytes in %d", size, len(b))
		}
		if err := each(order.Uint16(b[2:])&typeMask, b[unix.SizeofNlAttr:size]); err != nil {
			return err
		}
		b = b[min(align(size), len(b)):]
	}
	return nil
}

func align(n int) int { return (n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

// Device is what one device holds for all processes and the kernel itself.
type Device struct {
	Index int64
	Name  string
	InUse map[string]int64 // by the kernel's names: "pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"
}

// device reads an answer to cmdResGet.
func device(payload []byte) (Device, error) {
	d := Device{Index: -1, InUse: map[string]int64{}}
	err := attributes(payload, func(kind uint16, value []byte) error {
		switch {
		case kind == attrDevIndex && len(value) == 4:
			d.Index = int64(order.Uint32(value))
		case kind == attrDevName:
			d.Name = text(value)
		case kind == attrSummary:
			return attributes(value, func(kind uint16, value []byte) error {
				if kind != attrSummaryEntry {
					return nil
				}
				return d.entry(value)
			})
		}
		return nil
	})
	if err == nil && (d.Index < 0 || d.Name == "") {
		err = fmt.Errorf("netlink: a device without number or name")
	}
	return d, err
}

func (d *Device) entry(value []byte) error {
	var name string
	var current uint64
	err := attributes(value, func(kind uint16, value []byte) error {
		switch {
		case kind == attrSummaryEntryName:
			name = text(value)
		case kind == attrSummaryEntryCurr && len(value) == 8:
			current = order.Uint64(value)
		}
		return nil
	})
	if err == nil && name != "" {
		d.InUse[name] = int64(min(current, 1<<62))
	}
	return err
}

// owned counts the entries of a table (attrQP, …) that belong to one of the tasks. A
// table's entries are of the type after its own; entries of the kernel have a
// name in place of the pid.
func owned(payload []byte, table uint16, tasks map[uint32]bool) (n int64, err error) {
	err = attributes(payload, func(kind uint16, value []byte) error {
		if kind != table {
			return nil
		}
		return attributes(value, func(kind uint16, value []byte) error {
			if kind != table+1 {
				return nil
			}
			return attributes(value, func(kind uint16, value []byte) error {
				if kind == attrPID && len(value) == 4 && tasks[order.Uint32(value)] {
					n++
				}
				return nil
			})
		})
	})
	return n, err
}

// text of a string attribute, which ends with a zero byte.
func text(value []byte) string {
	for i, c := range value {
		if c == 0 {
			return string(value[:i])
		}
	}
	return string(value)
}
