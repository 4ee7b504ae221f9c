package sysfs

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Limit is a bound of the machine or of this process.
type Limit struct {
	Name  string // as the kernel names it: "net.rdma_ucm.max_backlog"
	Value string // as the kernel writes it
}

// files of machine-wide limits that matter to RDMA CM, in the order they are told.
var files = []struct{ name, file string }{
	{"net.rdma_ucm.max_backlog", "proc/sys/net/rdma_ucm/max_backlog"},
	{"ib_core.recv_queue_size", "sys/module/ib_core/parameters/recv_queue_size"},
	{"ib_core.send_queue_size", "sys/module/ib_core/parameters/send_queue_size"},
	{"net.ipv4.ip_local_port_range", "proc/sys/net/ipv4/ip_local_port_range"},
	{"net.ipv4.neigh.default.gc_thresh3", "proc/sys/net/ipv4/neigh/default/gc_thresh3"},
	{"vm.max_map_count", "proc/sys/vm/max_map_count"},
}

// Limits of the machine that matter to RDMA CM, and those of this process's
// rdma cgroups, from the process's own upwards. What is not there is left out.
func Limits(fsys fs.FS) []Limit {
	var list []Limit
	for _, f := range files {
		if v := word(fsys, "", f.file); v != "" {
			list = append(list, Limit{f.name, strings.Join(strings.Fields(v), " ")})
		}
	}
	for dir := cgroup(fsys); ; dir = path.Dir(dir) {
		for line := range strings.Lines(word(fsys, path.Join("sys/fs/cgroup", dir), "rdma.max")) {
			list = append(list, Limit{"rdma.max of cgroup " + dir, strings.TrimSpace(line)})
		}
		if dir == "/" {
			return list
		}
	}
}

// cgroup of this process in the unified hierarchy.
func cgroup(fsys fs.FS) string {
	for line := range strings.Lines(word(fsys, "", "proc/self/cgroup")) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && path.IsAbs(dir) {
			return path.Clean(dir)
		}
	}
	return "/"
}

// capIPCLock is the capability that lifts the limit of locked memory.
const capIPCLock = 14

// LocksFreely says that this process may lock memory without limit.
func LocksFreely(fsys fs.FS) bool {
	for line := range strings.Lines(word(fsys, "", "proc/self/status")) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && caps>>capIPCLock&1 == 1
		}
	}
	return false
}

// HasModule says that a kernel module is loaded.
func HasModule(fsys fs.FS, name string) bool {
	_, err := fs.Stat(fsys, path.Join("sys/module", name))
	return err == nil
}
