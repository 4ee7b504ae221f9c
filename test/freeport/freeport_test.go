package freeport

import (
	"fmt"
	"io"
	"net"
	"testing"
)

func TestAt(t *testing.T) {
	given := map[int]bool{}
	for range 100 {
		port := At(t, "127.0.0.1")
		if given[port] || port < low || port >= high {
			t.Errorf("port %d, given before: %v", port, given[port])
		}
		given[port] = true
	}
	// What somebody has is passed over, be it TCP or UDP.
	was := next.Load()
	port := At(t, "127.0.0.1")
	at := fmt.Sprintf("127.0.0.1:%d", port)
	for network, take := range map[string]func() (io.Closer, error){
		"tcp": func() (io.Closer, error) { return net.Listen("tcp", at) },
		"udp": func() (io.Closer, error) { return net.ListenPacket("udp", at) },
	} {
		taken, err := take()
		if err != nil {
			t.Fatal(err)
		}
		next.Store(was)
		if again := At(t, "127.0.0.1"); again == port {
			t.Errorf("%s port %d is given, and taken", network, port)
		}
		taken.Close()
	}
}
