package nldev

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"rankstorm/test/need"
)

// TestHeldInLab counts what a program of librdmacm holds: a listener that is
// bound to a device has one id there.
func TestHeldInLab(t *testing.T) {
	if os.Getenv("RDMALAB") == "" {
		need.Absent(t, "rdma", "runs in a machine with RDMA devices: make test-rdma")
	}
	devices, err := Totals()
	if err != nil || len(devices) < 2 {
		t.Fatalf("%v, %v", devices, err)
	}
	before := map[string]int64{}
	for _, d := range devices {
		before[d.Name] = d.InUse["cm_id"]
	}
	listener := exec.CommandContext(t.Context(), "rping", "-s", "-a", os.Getenv("RDMALAB_IP1"))
	if err := listener.Start(); err != nil {
		t.Fatal(err)
	}
	defer listener.Wait()
	defer listener.Process.Kill()
	var held Held
	for end := time.Now().Add(30 * time.Second); held.IDs == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if held, err = HeldBy(listener.Process.Pid, 1000); err != nil {
			t.Fatal(err)
		}
	}
	held.PDs = 0 // librdmacm allocates one a moment later
	if want := (Held{IDs: 1}); held != want {
		t.Errorf("rping -s holds %+v, want %+v", held, want)
	}
	if held, err := HeldBy(os.Getpid(), 1000); err != nil || held != (Held{}) {
		t.Errorf("this process holds %+v, %v", held, err)
	}
	if _, err := HeldBy(os.Getpid(), 3); err == nil {
		t.Error("more objects than allowed are gone through")
	}
	if devices, err = Totals(); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		want := before[d.Name]
		if d.Name == os.Getenv("RDMALAB_DEV1") {
			want++
		}
		if d.InUse["cm_id"] != want {
			t.Errorf("%s: %d ids in all, want %d", d.Name, d.InUse["cm_id"], want)
		}
	}
}
