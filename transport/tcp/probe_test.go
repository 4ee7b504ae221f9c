package tcp

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"rankstorm/test/need"
	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// An address is this machine's although no port of it is free, as after a storm that left all of them in TIME_WAIT. The
// test runs itself in a network namespace of one port.
func TestProbeNeedsNoPort(t *testing.T) {
	const inside = "RANKSTORM_TEST_ONE_PORT"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("sh", "-c", `ip link set lo up && echo 32768 32768 >/proc/sys/net/ipv4/ip_local_port_range || exit 77; exec "$@"`, "sh",
			os.Args[0], "-test.run=^TestProbeNeedsNoPort$", "-test.count=1")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 77 {
			need.Absent(t, "netns", "no network namespace can be made: %v %s", err, out)
		}
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if second, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		second.Close()
		t.Fatal("there is a second port")
	}
	if err := New().Probe(transport.Config{Clock: sim.NewClock(0), Bind: []string{"127.0.0.1"}, Advertise: "127.0.0.1", Workers: 1}); err != nil {
		t.Error(err)
	}
}
