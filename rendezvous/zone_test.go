package rendezvous

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// dialled notes where it is asked to go.
type dialled struct {
	Network
	to []string
}

func (d *dialled) Dial(_ context.Context, a netip.AddrPort) (net.Conn, error) {
	d.to = append(d.to, a.String())
	return nil, errors.New("not a real network")
}

func (d *dialled) ListenPacket(netip.AddrPort) (net.PacketConn, error) { return &written{d: d}, nil }

type written struct {
	net.PacketConn
	d *dialled
}

func (w *written) WriteTo(_ []byte, a net.Addr) (int, error) {
	w.d.to = append(w.d.to, a.String())
	return 0, nil
}

// A peer's zone is replaced by the own one; other addresses stay.
func TestZoned(t *testing.T) {
	d := &dialled{}
	z := zoned{d, "eth7"}
	pc, err := z.ListenPacket(netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"[fe80::1%theirs]:5", "[fe80::2]:5", "10.0.0.1:5", "[fd00::1]:5", "169.254.0.1:5"} {
		a := netip.MustParseAddrPort(to)
		if _, err := z.Dial(t.Context(), a); err == nil {
			t.Fatal("dialled")
		}
		if _, err := pc.WriteTo(nil, net.UDPAddrFromAddrPort(a)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"[fe80::1%eth7]:5", "[fe80::1%eth7]:5", "[fe80::2%eth7]:5", "[fe80::2%eth7]:5", "10.0.0.1:5", "10.0.0.1:5",
		"[fd00::1]:5", "[fd00::1]:5", "169.254.0.1:5", "169.254.0.1:5",
	}
	if !slices.Equal(d.to, want) {
		t.Errorf("got %q\nwant %q", d.to, want)
	}
}

func TestZoneOK(t *testing.T) {
	for zone, want := range map[string]bool{"": true, "eth0": true, "bond0.100": true, "a b": false, "\x1b[2J": false, "e/x": false, "sixteen-letters-": false} {
		if zoneOK(zone) != want {
			t.Errorf("%q: got %v", zone, !want)
		}
	}
}
