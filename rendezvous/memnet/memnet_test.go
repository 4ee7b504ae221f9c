package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

// pair is two hosts with a process each and a stream between them.
func pair(t *testing.T, cfg Config) (n *Net, a, b *Proc, ab, ba net.Conn) {
	t.Helper()
	n = New(cfg)
	a, b = n.AddHost("a", addrA).Proc(), n.AddHost("b", addrB).Proc()
	ln, err := b.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	to := netip.AddrPortFrom(addrB, ln.Addr().(*net.TCPAddr).AddrPort().Port())
	if ab, err = a.Dial(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if ba, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return n, a, b, ab, ba
}

// The streams pass the conformance test of x/net, on the real clock.
func TestConnConforms(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		_, _, _, ab, ba := pair(t, Config{})
		return ab, ba, func() { ab.Close(); ba.Close() }, nil
	})
}

func TestLatencyAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, _, ab, ba := pair(t, Config{Seed: 3, Latency: 10 * time.Millisecond, Jitter: 20 * time.Millisecond})
		began := time.Now()
		var sent bytes.Buffer
		for i := range 100 {
			ab.Write([]byte{byte(i)})
			sent.WriteByte(byte(i))
		}
		ab.Close()
		one := make([]byte, 1)
		if _, err := io.ReadFull(ba, one); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 10*time.Millisecond || d > 30*time.Millisecond {
			t.Errorf("first byte after %v", d)
		}
		rest, err := io.ReadAll(ba)
		if err != nil || !bytes.Equal(append(one, rest...), sent.Bytes()) {
			t.Errorf("read %v, %v", rest, err)
		}
		if _, err := ba.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing to a closed end gave %v", err)
		}
		ba.Close()
	})
}

func TestCutAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b, ab, ba := pair(t, Config{Latency: time.Millisecond})
		n.Cut(a.Host(), b.Host())
		ab.Write([]byte("held"))
		ba.SetReadDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 8)
		if _, err := ba.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over a cut link: %v", err)
		}
		ba.SetReadDeadline(time.Time{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.Dial(ctx, netip.AddrPortFrom(addrB, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial over a cut link: %v", err)
		}
		time.AfterFunc(time.Hour, func() { n.Heal(a.Host(), b.Host()) })
		began := time.Now()
		k, err := ba.Read(buf)
		if err != nil || string(buf[:k]) != "held" || time.Since(began) != time.Hour {
			t.Errorf("after healing: %q %v after %v", buf[:k], err, time.Since(began))
		}
		ab.Close()
		ba.Close()
	})
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _, _, ba := pair(t, Config{Latency: time.Millisecond})
		a.Kill()
		if _, err := ba.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("peer of a killed process: %v", err)
		}
		if _, err := a.Listen(netip.AddrPortFrom(addrA, 0)); err == nil {
			t.Error("a dead process listens")
		}
		if a.Open() != 0 {
			t.Error("sockets left")
		}
		ba.Close()

		_, a, _, ab, ba := pair(t, Config{})
		a.Host().Kill()
		if _, err := ab.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("on a killed host: %v", err)
		}
		ba.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := ba.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("peer of a killed host: %v", err)
		}
		ba.Close()
	})
}

func TestDialFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Latency: time.Millisecond})
		a := n.AddHost("a", addrA).Proc()
		n.AddHost("b", addrB)
		if _, err := a.Dial(t.Context(), netip.AddrPortFrom(addrB, 9)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
		began := time.Now()
		if _, err := a.Dial(t.Context(), netip.MustParseAddrPort("10.0.0.9:9")); !errors.Is(err, syscall.EHOSTUNREACH) || time.Since(began) != unreachableAfter {
			t.Errorf("no such host: %v after %v", err, time.Since(began))
		}
	})
}

func TestBinding(t *testing.T) {
	n := New(Config{})
	h := n.AddHost("a", addrA)
	a, b := h.Proc(), h.Proc()
	ln, err := a.Listen(netip.AddrPortFrom(addrA, 7471))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"10.0.0.1:7471", "0.0.0.0:7471", "[::]:7471"} {
		if _, err := b.Listen(netip.MustParseAddrPort(addr)); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if _, err := b.Listen(netip.MustParseAddrPort("10.0.0.2:7471")); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("foreign address: %v", err)
	}
	if other, err := b.Listen(netip.MustParseAddrPort("127.0.0.1:7471")); err != nil {
		t.Errorf("another address: %v", err)
	} else {
		other.Close()
	}
	ln.Close()
	if again, err := b.Listen(netip.MustParseAddrPort("0.0.0.0:7471")); err != nil {
		t.Errorf("after closing: %v", err)
	} else {
		again.Close()
	}
	for range 3 { // dialling and closing leaves nothing behind
		ln, err := a.Listen(netip.AddrPortFrom(addrA, 0))
		if err != nil {
			t.Fatal(err)
		}
		c, err := b.Dial(t.Context(), ln.Addr().(*net.TCPAddr).AddrPort())
		if err != nil {
			t.Fatal(err)
		}
		ln.Close() // with the stream still in its queue
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("stream nobody accepted: %v", err)
		}
		c.Close()
	}
	if a.Open()+b.Open() != 0 {
		t.Errorf("%d and %d sockets left", a.Open(), b.Open())
	}
}

func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Seed: 7, Latency: time.Millisecond, Loss: 0.25})
		a, b := n.AddHost("a", addrA).Proc(), n.AddHost("b", addrB).Proc()
		pa, err := a.ListenPacket(netip.AddrPortFrom(netip.IPv6Unspecified(), 5))
		if err != nil {
			t.Fatal(err)
		}
		pb, err := b.ListenPacket(netip.AddrPortFrom(addrB, 6))
		if err != nil {
			t.Fatal(err)
		}
		const sent = 1000
		for range sent {
			if _, err := pa.WriteTo([]byte("hello"), pb.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		pb.SetReadDeadline(time.Now().Add(time.Second))
		got := 0
		buf := make([]byte, 16)
		for {
			k, from, err := pb.ReadFrom(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil || string(buf[:k]) != "hello" || from.String() != "10.0.0.1:5" {
				t.Fatalf("%q from %v: %v", buf[:k], from, err)
			}
			got++
		}
		if got < 700 || got > 800 {
			t.Errorf("%d of %d packets came with a loss of 1/4", got, sent)
		}
		pb.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { pb.Close() })
		if _, _, err := pb.ReadFrom(buf); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed while reading: %v", err)
		}
		pa.Close()
	})
}

func TestHostSocket(t *testing.T) {
	n := New(Config{})
	h := n.AddHost("a", addrA)
	a, b, elsewhere := h.Proc(), h.Proc(), n.AddHost("b", addrB).Proc()
	ln, c, err := a.HostSocket(t.Context(), "s")
	if err != nil || ln == nil || c != nil {
		t.Fatal(ln, c, err)
	}
	_, c, err = b.HostSocket(t.Context(), "s")
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	if other, _, err := elsewhere.HostSocket(t.Context(), "s"); err != nil || other == nil {
		t.Errorf("another host's socket: %v", err)
	}
	a.Kill()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("owner killed: %v", err)
	}
	if ln, _, err := b.HostSocket(t.Context(), "s"); err != nil || ln == nil {
		t.Errorf("taking over: %v", err)
	}
}

func TestNames(t *testing.T) {
	n := New(Config{})
	a := n.AddHost("a", addrA).Proc()
	if got, err := a.Resolve(t.Context(), "a"); err != nil || len(got) != 1 || got[0] != addrA {
		t.Error(got, err)
	}
	n.Name("a")
	var dns *net.DNSError
	if _, err := a.Resolve(t.Context(), "a"); !errors.As(err, &dns) || !dns.IsNotFound {
		t.Error(err)
	}
	if src, err := a.SourceAddr(netip.AddrPortFrom(addrB, 1)); err != nil || src != addrA {
		t.Error(src, err)
	}
}
