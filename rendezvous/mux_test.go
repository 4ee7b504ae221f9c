package rendezvous

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
)

// muxLab is one port and a stranger who can dial it.
func muxLab(t *testing.T) (c *control, dial func() net.Conn) {
	l := newLab(t, 1, memnet.Config{}, nil)
	stranger := l.net.AddHost("stranger", netip.MustParseAddr("10.9.9.9")).Proc()
	return l.cs[0], func() net.Conn {
		conn, err := stranger.Dial(context.Background(), l.cs[0].addrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// ends tells that the other side closed conn without a word, within d.
func ends(t *testing.T, conn net.Conn, d time.Duration) bool {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(d))
	n, err := conn.Read(make([]byte, 1))
	if n > 0 {
		t.Fatal("a stranger got an answer")
	}
	ne, ok := err.(net.Error)
	return !ok || !ne.Timeout()
}

func TestStrangersAreClosedWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dial := muxLab(t)
		defer c.close()
		hello := append([]byte{kindLink}, frame(maxFrame, wireVersion, frameHello)...)
		for name, s := range map[string]struct {
			say  []byte
			from time.Duration
		}{
			"unknown byte":   {[]byte("X"), 0},
			"no handler":     {[]byte{kindGossip}, 0},
			"mute":           {nil, firstByteTimeout},
			"mute link":      {[]byte{kindLink}, helloTimeout},
			"long hello":     {hello, 0},
			"http":           {[]byte("CONNECT / HTTP/1.1\r\n"), 0},
			"not a hello":    {append([]byte{kindLink}, frame(2, wireVersion, framePing)...), 0},
			"broken hello":   {append([]byte{kindLink}, frame(3, wireVersion, frameHello, 0xc1)...), 0},
			"half a message": {append([]byte{kindLink}, frame(9, wireVersion, frameHello, 1)...), helloTimeout},
		} {
			conn := dial()
			conn.Write(s.say)
			if s.from > 0 && ends(t, conn, s.from-time.Millisecond) {
				t.Errorf("%s: closed early", name)
			}
			if !ends(t, conn, time.Second) {
				t.Errorf("%s: still open", name)
			}
			conn.Close()
		}
	})
}

func TestMuteStreamsDoNotKeepOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dial := muxLab(t)
		defer c.close()
		c.handle(kindKnock, func(conn net.Conn) { io.Copy(conn, conn); conn.Close() })
		mute := make([]net.Conn, maxHalfOpen+10)
		for i := range mute {
			mute[i] = dial()
			defer mute[i].Close()
			if i%2 == 1 {
				mute[i].Write([]byte{kindLink})
			}
			synctest.Wait()
		}
		begin := time.Now()
		conn := dial()
		defer conn.Close()
		conn.Write([]byte{kindKnock, 'h', 'i'})
		buf := make([]byte, 2)
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "hi" || time.Since(begin) != 0 {
			t.Fatalf("echo %q after %v, error %v", buf, time.Since(begin), err)
		}
		for i, m := range mute {
			if closed := ends(t, m, time.Nanosecond); closed != (i < 11) {
				t.Fatalf("mute stream %d of %d: closed %v", i, len(mute), closed)
			}
		}
	})
}

func TestServeAnotherListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := muxLab(t)
		p := memnet.New(memnet.Config{}).AddHost("a", netip.MustParseAddr("10.1.1.1")).Proc()
		ln, err := p.Listen(netip.MustParseAddrPort("10.1.1.1:7471"))
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan byte, 1)
		c.handle(kindGossip, func(conn net.Conn) {
			b := make([]byte, 1)
			conn.Read(b)
			got <- b[0]
			conn.Close()
		})
		c.serve(ln)
		conn, err := p.Dial(t.Context(), netip.MustParseAddrPort("10.1.1.1:7471"))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte{kindGossip, 'x'})
		if b := <-got; b != 'x' {
			t.Errorf("handler got %q", b)
		}
		conn.Close()
		c.close()
		if conn, err := p.Dial(t.Context(), netip.MustParseAddrPort("10.1.1.1:7471")); err == nil {
			conn.Close()
			t.Error("the listener is open after close")
		}
	})
}

func TestPortIsTheSameForTCPAndUDP(t *testing.T) {
	for name, bind := range map[string][]netip.Addr{
		"wildcard": nil,
		"two":      {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(0, 1)
			cfg.BindAddrs = bind
			c, err := openControl(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			addrs := c.addrs()
			if len(addrs) == 0 || bind != nil && len(addrs) != len(bind) {
				t.Fatalf("addresses %v", addrs)
			}
			for _, a := range addrs {
				if a.Port() != addrPortOf(c.packet().LocalAddr()).Port() {
					t.Errorf("address %v, UDP at %v", a, c.packet().LocalAddr())
				}
				conn, err := cfg.Network.Dial(t.Context(), a)
				if err != nil {
					t.Errorf("cannot dial %v: %v", a, err)
					continue
				}
				conn.Close()
			}
		})
	}
}

func TestReachableFirst(t *testing.T) {
	var in []netip.Addr
	for _, s := range []string{"127.0.0.1", "::1", "fe80::1%eth0", "2001:db8::1", "10.0.0.1", "::ffff:10.0.0.2", "224.0.0.1", "0.0.0.0"} {
		in = append(in, netip.MustParseAddr(s))
	}
	got := ""
	for _, a := range reachableFirst(in) {
		got += a.String() + " "
	}
	if want := "10.0.0.1 10.0.0.2 2001:db8::1 127.0.0.1 ::1 "; got != want {
		t.Errorf("order %q, want %q", got, want)
	}
}

// nowhere is a host all of whose interfaces are down.
type nowhere struct{ Network }

func (nowhere) LocalAddrs() ([]netip.Addr, error) { return nil, nil }

func TestPortWithoutAnAddress(t *testing.T) {
	cfg := testConfig(0, 1)
	cfg.BindAddrs, cfg.Network = nil, nowhere{cfg.Network}
	if _, err := openControl(cfg); errorKind(err) != rank.KindResource || !strings.Contains(err.Error(), "no address") {
		t.Errorf("got %v", err)
	}
}
