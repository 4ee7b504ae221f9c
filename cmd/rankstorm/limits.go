package main

import (
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rankstorm/collect"
)

// readLimits asks the kernel. What cannot be read stays zero, which check
// takes as not known. It raises the soft descriptor limit to the hard one.
func readLimits() limits {
	var l limits
	var nofile unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile) == nil {
		l.fdsHard = nofile.Max
		if nofile.Cur < nofile.Max {
			raised := unix.Rlimit{Cur: nofile.Max, Max: nofile.Max}
			if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) != nil {
				l.fdsHard = nofile.Cur // the soft limit is what counts if it cannot be raised
			}
		}
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.fdsUsed = int64(len(entries)) - 1 // less the one that reads the directory
	}
	if v, ok := readNumbers("/proc/sys/net/ipv4/ip_local_port_range"); ok && len(v) == 2 {
		l.portLow, l.portHigh = v[0], v[1]
	}
	if v, ok := readNumbers("/proc/sys/net/core/somaxconn"); ok && len(v) == 1 {
		l.somaxconn = v[0]
	}
	if v, ok := readNumbers("/proc/sys/net/ipv4/tcp_tw_reuse"); ok && len(v) == 1 {
		l.reuse = [...]reuse{reuseNever, reuseAlways, reuseLoopback}[min(max(v[0], 0), 2)]
		if v, ok := readNumbers("/proc/sys/net/ipv4/tcp_timestamps"); ok && len(v) == 1 && v[0] == 0 {
			l.reuse = reuseNever
		}
	}
	if v, ok := readNumbers("/proc/sys/net/rdma_ucm/max_backlog"); ok && len(v) == 1 {
		l.rdmaBacklog = v[0]
	}
	for name, to := range map[string]*int64{"recv": &l.rdmaRecvQueue, "send": &l.rdmaSendQueue} {
		if v, ok := readNumbers("/sys/module/ib_core/parameters/" + name + "_queue_size"); ok && len(v) == 1 {
			*to = v[0]
		}
	}
	return l
}

// list is what the document says about the limits; what is not known is left out.
func (l limits) list() []collect.Limit {
	var known []collect.Limit
	for _, one := range []collect.Limit{
		{Name: "file_descriptors", Value: int64(min(l.fdsHard, math.MaxInt64))},
		{Name: "local_ports", Value: l.ports()},
		{Name: "somaxconn", Value: l.somaxconn},
		{Name: "rdma_max_backlog", Value: l.rdmaBacklog},
		{Name: "rdma_recv_queue", Value: l.rdmaRecvQueue},
		{Name: "rdma_send_queue", Value: l.rdmaSendQueue},
	} {
		if one.Value > 0 {
			known = append(known, one)
		}
	}
	return known
}

func readNumbers(path string) ([]int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, false
	}
	var numbers []int64
	for field := range strings.FieldsSeq(string(text)) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}
