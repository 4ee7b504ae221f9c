package rdma

import (
	"os"
	"strings"
	"testing"
)

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
	case strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "rdma: ") || !strings.Contains(err.Error(), ": "):
		t.Errorf("not one line with what and what to do: %q", err)
	}
}

func TestDevicesInLab(t *testing.T) {
	if os.Getenv("RDMA_VM") == "" {
		t.Skip("runs in a machine with soft-RoCE devices (test/rdma.sh)")
	}
	devices, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		t.Logf("%+v", d)
		if d.Err != nil || d.Name == "" || d.Limits.QPs == 0 || len(d.Ports) == 0 || d.NodeGUID == 0 {
			t.Errorf("%+v", d)
			continue
		}
		p := d.Ports[0]
		if p.State != "ACTIVE" || p.LinkLayer != "Ethernet" || p.MTU == 0 || len(p.GIDs) == 0 || len(p.Netdevs) != 1 {
			t.Errorf("%+v", p)
		}
	}
}
