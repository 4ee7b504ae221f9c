package rdma

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"rankstorm/transport/rdma/internal/verbs"
)

// What Devices tells; see the fields.
type (
	// Device is an RDMA device.
	Device = verbs.Device
	// DeviceLimits are what a device can hold.
	DeviceLimits = verbs.Limits
	// Port is a port of a device.
	Port = verbs.Port
	// GID is an entry of a port's table.
	GID = verbs.GID
)

// Devices lists the devices that the RDMA libraries can use. The error is that
// of Usable if nothing can be used; one device that cannot be opened has Err.
func Devices() ([]Device, error) {
	if err := Usable(); err != nil {
		return nil, err
	}
	devices, err := verbs.Devices()
	for i := range devices {
		devices[i].ReadPorts()
	}
	return devices, err
}

// cmDevice is how user space reaches the kernel's RDMA CM.
const cmDevice = "/dev/infiniband/rdma_cm"

// Usable says whether RDMA can be used in this process at all, and if not, why
// and what to do: one line.
func Usable() error {
	if err := verbs.Load(); err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	kernel := verbs.KernelDevices()
	if len(kernel) == 0 {
		return errors.New("rdma: this machine has no RDMA device (" + verbs.SysClass + " is empty): load the adapter's driver, or try soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0")
	}
	fd, err := unix.Open(cmDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		unix.Close(fd)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("rdma: %s is missing although the kernel has %s: modprobe rdma_ucm; in a container pass /dev/infiniband", cmDevice, strings.Join(kernel, ", "))
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("rdma: no permission to open %s: its mode should be 0666 (rdma-core's udev rules), or add %s to the group that owns it", cmDevice, userName())
	default:
		return fmt.Errorf("rdma: %s cannot be opened: %w", cmDevice, err)
	}
	devices, err := verbs.Devices()
	if err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	if len(devices) == 0 {
		return fmt.Errorf("rdma: libibverbs has no driver for %s: install rdma-core's providers (Debian: ibverbs-providers); in a container pass /dev/infiniband", strings.Join(kernel, ", "))
	}
	var why error
	for _, d := range devices {
		if d.Err == nil {
			return nil
		}
		why = d.Err
	}
	return fmt.Errorf("rdma: no device can be opened: %w: is /dev/infiniband/uverbs* there and readable for %s?", why, userName())
}

func userName() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	return fmt.Sprintf("user %d", os.Getuid())
}
