package rdma

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"rankstorm/test/need"
	"rankstorm/transport/rdma/internal/nldev"
	"rankstorm/transport/rdma/internal/sysfs"
	"rankstorm/transport/rdma/internal/verbs"
)

// files makes a file system of lines: a path, then what the file holds.
func files(lines ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, line := range lines {
		name, content, _ := strings.Cut(line, " ")
		fsys[name] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	return fsys
}

// TestUsable: what is wrong is named, and what to do, one machine after the other.
func TestUsable(t *testing.T) {
	const port = "sys/class/infiniband/rxe0/ports/1/state "
	works := func() machine {
		return machine{
			fsys: files(port+"4: ACTIVE", "sys/module/ib_core/x 1", "sys/module/rdma_ucm/x 1"), user: "ada", memlock: unix.RLIM_INFINITY,
			load: func() error { return nil }, openCM: func() error { return nil },
			devices: func() ([]verbs.Device, error) { return []verbs.Device{{Name: "rxe0"}}, nil },
		}
	}
	cases := []struct {
		name  string
		spoil func(*machine)
		want  string // "" usable
	}{
		{"works", func(*machine) {}, ""},
		{"no library", func(m *machine) {
			m.load = func() error { return &verbs.LoadError{File: "librdmacm.so.1", Text: "no such file"} }
		}, "librdmacm"},
		{"no modules", func(m *machine) { m.fsys = files() }, "modules are not loaded"},
		{"no device", func(m *machine) { m.fsys = files("sys/module/ib_core/x 1") }, "no RDMA device (/sys/class/infiniband is empty)"},
		{"no rdma_ucm", func(m *machine) {
			m.fsys, m.openCM = files(port+"4: ACTIVE", "sys/module/ib_core/x 1"), func() error { return unix.ENOENT }
		}, "modprobe rdma_ucm"},
		{"container", func(m *machine) { m.openCM = func() error { return unix.ENOENT } }, "in a container pass /dev/infiniband"},
		{"no permission", func(m *machine) { m.openCM = func() error { return unix.EACCES } }, "no permission to open /dev/infiniband/rdma_cm: its mode should be 0666 (rdma-core's udev rules), or add ada"},
		{"another reason", func(m *machine) { m.openCM = func() error { return unix.EMFILE } }, "cannot be opened: too many open files"},
		{"no provider library", func(m *machine) { m.devices = func() ([]verbs.Device, error) { return nil, nil } }, "libibverbs has no driver for rxe0"},
		{"no files of devices", func(m *machine) {
			m.fsys = files(port+"4: ACTIVE", "sys/module/rdma_ucm/x 1", "sys/class/infiniband_verbs/uverbs3/ibdev rxe0", "sys/class/infiniband_verbs/abi_version 6")
			m.devices = func() ([]verbs.Device, error) { return nil, nil }
		}, "/dev/infiniband/uverbs3 missing although the kernel has rxe0: in a container pass /dev/infiniband (docker run --device /dev/infiniband/uverbs3)"},
		{"no list", func(m *machine) { m.devices = func() ([]verbs.Device, error) { return nil, errors.New("odd") } }, "odd"},
		{"none opens", func(m *machine) {
			m.devices = func() ([]verbs.Device, error) { return []verbs.Device{{Name: "rxe0", Err: unix.EACCES}}, nil }
		}, "no device can be opened: permission denied"},
		{"memlock", func(m *machine) { m.memlock = 32 << 10 }, "may lock only 32768 bytes of memory (ulimit -l)"},
		{"memlock with the capability", func(m *machine) {
			m.memlock, m.fsys = 0, files(port+"4: ACTIVE", "proc/self/status CapEff:\t0000000000004000")
		}, ""},
		{"port down", func(m *machine) { m.fsys = files(port + "1: DOWN") }, "no port is active (rxe0 port 1 down)"},
		{"no port", func(m *machine) { m.fsys = files("sys/class/infiniband/rxe0/node_type 1: CA") }, "no port is active (rxe0 without ports)"},
	}
	for _, c := range cases {
		m := works()
		c.spoil(&m)
		err := m.usable()
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err != nil && (!strings.HasPrefix(err.Error(), "rdma: ") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: not one line of rdma: %q", c.name, err)
		}
	}
}

// TestUnopened: why an address is no device's for the library although the kernel shows it.
func TestUnopened(t *testing.T) {
	const gid, user = "sys/class/infiniband/rxe0/ports/1/gids/0 ::ffff:10.66.0.1", "sys/class/infiniband_verbs/uverbs0/ibdev rxe0"
	for _, c := range []struct {
		name, ip string
		files    []string
		opened   []verbs.Device
		want     string
	}{
		{"another address", "10.66.0.2", []string{gid, user}, nil, ""},
		{"no file", "10.66.0.1", []string{gid, user}, nil, "device rxe0 has this address, but /dev/infiniband/uverbs0 is missing: in a container pass"},
		{"refused", "10.66.0.1", []string{gid, user, "dev/infiniband/uverbs0 "}, []verbs.Device{{Name: "rxe0", Err: unix.EACCES}}, "device rxe0 has this address and cannot be opened: permission denied: may ada read /dev/infiniband/uverbs0, "},
		{"no driver", "10.66.0.1", []string{gid, user, "dev/infiniband/uverbs0 "}, []verbs.Device{{Name: "rxe1"}}, "but libibverbs has no driver for it"},
	} {
		m := machine{fsys: files(c.files...), user: "ada", devices: func() ([]verbs.Device, error) { return c.opened, nil }}
		if got := m.unopened(netip.MustParseAddr(c.ip)); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNotes(t *testing.T) {
	m := machine{fsys: files(), memlock: 1 << 20}
	if got := m.notes(); len(got) != 1 || !strings.Contains(got[0], "1024 KiB") {
		t.Errorf("%q", got)
	}
	m.memlock = 8 << 20
	if got := m.notes(); got != nil {
		t.Errorf("%q", got)
	}
}

// TestMerge: one device that everybody knows, one that only the kernel shows.
func TestMerge(t *testing.T) {
	ethernet := []Port{{Number: 1, LinkLayer: "Ethernet"}}
	kernel := []sysfs.Device{
		{Name: "cxgb4_0", NodeType: "RNIC", Ports: ethernet},
		{Name: "mlx5_0", NodeType: "CA", Ports: []Port{{Number: 1, LinkLayer: "InfiniBand"}}},
		{Name: "mlx5_1", NodeType: "CA", Ports: ethernet},
		{Name: "opa", NodeType: "switch"},
	}
	opened := []verbs.Device{
		{Name: "mlx5_1", Limits: verbs.Limits{QPs: 7}, MTUs: []MTU{{Active: 1024, Max: 4096}}},
		{Name: "mlx5_0", Err: unix.EACCES},
	}
	got := merge(kernel, opened, []nldev.Device{{Name: "mlx5_0", InUse: map[string]int64{"qp": 2}}})
	var protocols []string
	for _, d := range got {
		protocols = append(protocols, d.Protocol)
	}
	if want := []string{"iWARP", "InfiniBand", "RoCE", "switch"}; !slices.Equal(protocols, want) {
		t.Errorf("protocols %q, want %q", protocols, want)
	}
	if d := got[2]; d.Limits == nil || d.Limits.QPs != 7 || d.MTUs[0].Max != 4096 || d.InUse != nil {
		t.Errorf("%+v", d)
	}
	if d := got[1]; d.Limits != nil || d.Err == nil || !maps.Equal(d.InUse, map[string]int64{"qp": 2}) {
		t.Errorf("%+v", d)
	}
}

// TestUsableExplains holds wherever it runs: RDMA can be used, or one line says
// why not and what to do.
func TestUsableExplains(t *testing.T) {
	err := Usable()
	devices, err2 := Devices()
	switch {
	case err == nil:
		if err2 != nil || len(devices) == 0 {
			t.Errorf("usable, but Devices gives %d devices, %v", len(devices), err2)
		}
	case err2 == nil || err2.Error() != err.Error():
		t.Errorf("Usable says %q, Devices %v", err, err2)
	case strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "rdma: "):
		t.Errorf("not one line with what and what to do: %q", err)
	}
}

func TestDevicesInLab(t *testing.T) {
	if os.Getenv("RDMALAB") == "" {
		need.Absent(t, "rdma", "runs in a machine with RDMA devices: make test-rdma")
	}
	devices, err := Devices()
	if err != nil || len(devices) != 2 {
		t.Fatalf("%+v, %v", devices, err)
	}
	for _, d := range devices {
		t.Logf("%+v", d)
		if d.Err != nil || d.Protocol != "RoCE" || d.Limits == nil || d.Limits.QPs == 0 || len(d.Ports) != 1 || len(d.MTUs) != 1 || d.NodeGUID == "" || d.InUse["cm_id"] < 0 || d.InUse["qp"] < 1 {
			t.Errorf("%+v", d)
			continue
		}
		p := d.Ports[0]
		if p.State != "ACTIVE" || p.LinkLayer != "Ethernet" || len(p.GIDs) < 2 || len(p.Netdevs) != 1 {
			t.Errorf("%+v", p)
		}
	}
}
