package tcp

import (
	"net"
	"testing"

	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// An address is this machine's although no port of it is free, as after a storm that left all of them in TIME_WAIT. The
// test runs itself in a network namespace of one port.
func TestProbeNeedsNoPort(t *testing.T) {
	if !alone(t, "echo 32768 32768 >/proc/sys/net/ipv4/ip_local_port_range") {
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
