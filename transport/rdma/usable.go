package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rankstorm/transport/rdma/internal/sysfs"
	"rankstorm/transport/rdma/internal/verbs"
)

// cmDevice is how user space reaches the kernel's RDMA CM.
const cmDevice = "/dev/infiniband/rdma_cm"

const (
	// leastLocked is locked memory, in bytes, without which not even the smallest regions can be registered.
	leastLocked = 64 << 10
	// amply is where adapters whose queue pairs lie in locked memory can hold a few hundred of them.
	amply = 8 << 20
)

// machine is what usability is judged from.
type machine struct {
	fsys    fs.FS
	load    func() error                   // of the libraries
	openCM  func() error                   // opens cmDevice, and closes it again
	devices func() ([]verbs.Device, error) // after load
	memlock uint64                         // soft limit of RLIMIT_MEMLOCK, bytes
	user    string
}

func thisMachine() machine {
	m := machine{fsys: root(), load: verbs.Load, devices: verbs.Devices, user: userName(), openCM: func() error {
		fd, err := unix.Open(cmDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}}
	var limit unix.Rlimit
	m.memlock = unix.RLIM_INFINITY
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		m.memlock = limit.Cur
	}
	return m
}

// Usable says whether RDMA can be used in this process at all, and if not, why
// and what to do: one line.
func Usable() error { return thisMachine().usable() }

// Notes are what may spoil a large job although RDMA is usable: one line each.
func Notes() []string { return thisMachine().notes() }

func (m machine) usable() error {
	if err := m.load(); err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	kernel := sysfs.Devices(m.fsys)
	if len(kernel) == 0 {
		const try = "or try soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
		if !sysfs.HasModule(m.fsys, "ib_core") {
			return errors.New("rdma: the kernel's RDMA modules are not loaded, and there is no RDMA device: load the adapter's driver (lspci -k names it), " + try)
		}
		return errors.New("rdma: this machine has no RDMA device (/sys/class/infiniband is empty): load the adapter's driver (lspci -k names it), " + try)
	}
	names := deviceNames(kernel)
	switch err := m.openCM(); {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		if !sysfs.HasModule(m.fsys, "rdma_ucm") {
			return fmt.Errorf("rdma: %s is missing although the kernel has %s: modprobe rdma_ucm", cmDevice, names)
		}
		return fmt.Errorf("rdma: %s is missing although the kernel has %s and rdma_ucm: in a container pass /dev/infiniband (docker run --device /dev/infiniband/rdma_cm --device …/uverbs0)", cmDevice, names)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("rdma: no permission to open %s: its mode should be 0666 (rdma-core's udev rules), or add %s to the group that owns it", cmDevice, m.user)
	default:
		return fmt.Errorf("rdma: %s cannot be opened: %w", cmDevice, err)
	}
	opened, err := m.devices()
	if err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	if missing := m.missingFiles(kernel); len(opened) == 0 && len(missing) > 0 {
		return fmt.Errorf("rdma: %s missing although the kernel has %s: "+passFiles, strings.Join(missing, ", "), names, missing[0])
	}
	if len(opened) == 0 {
		return fmt.Errorf("rdma: libibverbs has no driver for %s: install rdma-core's providers (Debian: ibverbs-providers); in a container pass /dev/infiniband/uverbs*", names)
	}
	if i := slices.IndexFunc(opened, func(d verbs.Device) bool { return d.Err == nil }); i < 0 {
		return fmt.Errorf("rdma: no device can be opened: %w: is /dev/infiniband/uverbs* there and readable for %s?", opened[0].Err, m.user)
	}
	if m.memlock < leastLocked && !sysfs.LocksFreely(m.fsys) {
		return fmt.Errorf("rdma: this process may lock only %d bytes of memory (ulimit -l), less than one region takes: ulimit -l unlimited, or LimitMEMLOCK=infinity in the service that starts the job", m.memlock)
	}
	for _, d := range kernel {
		for _, p := range d.Ports {
			if p.State == "ACTIVE" {
				return nil
			}
		}
	}
	return fmt.Errorf("rdma: no port is active (%s): ip link set … up, check the cable, and on InfiniBand that a subnet manager runs", portStates(kernel))
}

// passFiles is what to do about a file of /dev/infiniband that is not there.
const passFiles = "in a container pass /dev/infiniband (docker run --device %s), else look for udev's rules (rdma-core)"

// missingFiles are those by which user space would reach the devices, and that are not there.
func (m machine) missingFiles(devices []sysfs.Device) (missing []string) {
	for _, d := range devices {
		if file := sysfs.UserFile(m.fsys, d.Name); file != "" {
			if _, err := fs.Stat(m.fsys, file); errors.Is(err, fs.ErrNotExist) {
				missing = append(missing, "/"+file)
			}
		}
	}
	return missing
}

// unopened says why the library knows no device with an address although the kernel does, "" if neither does.
func (m machine) unopened(ip netip.Addr) string {
	for _, d := range sysfs.Devices(m.fsys) {
		if !slices.ContainsFunc(d.Ports, func(p sysfs.Port) bool {
			return slices.ContainsFunc(p.GIDs, func(g sysfs.GID) bool { return g.Addr == ip.WithZone("") })
		}) {
			continue
		}
		if missing := m.missingFiles([]sysfs.Device{d}); len(missing) > 0 {
			return fmt.Sprintf("device %s has this address, but %s is missing: "+passFiles, d.Name, missing[0], missing[0])
		}
		opened, _ := m.devices()
		for _, o := range opened {
			if o.Name == d.Name && o.Err != nil {
				return fmt.Sprintf("device %s has this address and cannot be opened: %v: may %s read /%s, and does rdma.max of its cgroup allow it (rankstorm devices)?",
					d.Name, o.Err, m.user, sysfs.UserFile(m.fsys, d.Name))
			}
		}
		return fmt.Sprintf("device %s has this address, but libibverbs has no driver for it: install rdma-core's providers (Debian: ibverbs-providers)", d.Name)
	}
	return ""
}

func (m machine) notes() []string {
	var list []string
	if m.memlock < amply && m.memlock >= leastLocked && !sysfs.LocksFreely(m.fsys) {
		list = append(list, fmt.Sprintf("this process may lock %d KiB of memory (ulimit -l): adapters whose queue pairs lie there run out early: ulimit -l unlimited", m.memlock>>10))
	}
	return list
}

func deviceNames(list []sysfs.Device) string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.Name
	}
	return strings.Join(names, ", ")
}

func portStates(list []sysfs.Device) string {
	var states []string
	for _, d := range list {
		for _, p := range d.Ports {
			states = append(states, fmt.Sprintf("%s port %d %s", d.Name, p.Number, strings.ToLower(p.State)))
		}
	}
	if len(states) == 0 {
		return deviceNames(list) + " without ports"
	}
	return strings.Join(states, ", ")
}

func userName() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	return fmt.Sprintf("user %d", os.Getuid())
}
