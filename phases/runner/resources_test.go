package runner

import (
	"net"
	"net/netip"
	"testing"
)

// Streams of the control plane are told from those of the storm by either end, whoever opened them.
func TestControlPlaneStreamsAreNotTheStorms(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	open, _ := openFDs(nil, nil)
	out, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, c := range []struct {
		name      string
		ports     []uint16
		listening map[netip.AddrPort]bool
		control   int
	}{
		{"of the storm", nil, nil, 0},
		{"came in", []uint16{at.Port()}, nil, 1},
		{"went out", nil, map[netip.AddrPort]bool{at: true}, 1},
		{"both ends here", []uint16{at.Port()}, map[netip.AddrPort]bool{at: true}, 2},
		{"elsewhere", []uint16{at.Port() + 1}, map[netip.AddrPort]bool{netip.AddrPortFrom(at.Addr(), at.Port()+1): true}, 0},
	} {
		if now, control := openFDs(c.ports, c.listening); control != c.control || now != open+2 {
			t.Errorf("%s: %d open, %d of the control plane; want %d and %d", c.name, now, control, open+2, c.control)
		}
	}
}
