package rdma

import (
	"net/netip"
	"strings"
	"testing"

	"rankstorm/transport"
)

func TestSettings(t *testing.T) {
	good := func() transport.Config {
		return transport.Config{Clock: transport.NewClock(), Advertise: "10.1.2.3", Bind: []string{"10.1.2.3"}, Workers: 1}
	}
	s, err := parseConfig(good())
	if err != nil {
		t.Fatal(err)
	}
	if s.knobs.RetryCnt != 7 || s.knobs.RNRRetry != 7 || s.knobs.MinRNR != 12 || s.knobs.TOS != -1 || s.knobs.MTU != -1 || s.resolveMS != 2000 || s.retries != 2 {
		t.Errorf("the defaults are %+v", s)
	}
	for _, c := range []struct {
		key, value string
		get        func(*settings) int64
		want       int64 // -1: refused
	}{
		{OptionTOS, "104", func(s *settings) int64 { return int64(s.knobs.TOS) }, 104},
		{OptionTOS, "256", nil, -1},
		{OptionSL, "3", func(s *settings) int64 { return int64(s.knobs.SL) }, 3},
		{OptionSL, "16", nil, -1},
		{OptionMTU, "1024", func(s *settings) int64 { return int64(s.knobs.MTU) }, 3},
		{OptionMTU, "1500", nil, -1},
		{OptionRetryCnt, "0", func(s *settings) int64 { return int64(s.knobs.RetryCnt) }, 0},
		{OptionRetryCnt, "8", nil, -1},
		{OptionRNRRetry, "6", func(s *settings) int64 { return int64(s.knobs.RNRRetry) }, 6},
		{OptionRNRRetry, "-1", nil, -1},
		{OptionAckTimeout, "14", func(s *settings) int64 { return int64(s.knobs.AckTimeout) }, 14},
		{OptionAckTimeout, "0", nil, -1},
		{OptionGIDIndex, "0", func(s *settings) int64 { return int64(s.knobs.GIDIndex) }, 0},
		{OptionGIDIndex, "x", nil, -1},
		{transport.OptionResolveTimeout, "300", func(s *settings) int64 { return int64(s.resolveMS) }, 300},
		{transport.OptionResolveTimeout, "0", nil, -1},
		{transport.OptionResolveRetries, "0", func(s *settings) int64 { return int64(s.retries) }, 0},
		{"colour", "1", nil, -1},
	} {
		cfg := good()
		cfg.Options = map[string]string{c.key: c.value}
		s, err := parseConfig(cfg)
		switch {
		case c.want < 0 && err == nil:
			t.Errorf("%s=%s was taken", c.key, c.value)
		case c.want < 0:
			if !strings.Contains(err.Error(), c.key) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s=%s: %q", c.key, c.value, err)
			}
		case err != nil || c.get(&s) != c.want:
			t.Errorf("%s=%s: %+v, %v; want %d", c.key, c.value, s.knobs, err, c.want)
		}
	}
	for what, change := range map[string]func(*transport.Config){
		"no clock":      func(c *transport.Config) { c.Clock = nil },
		"no worker":     func(c *transport.Config) { c.Workers = 0 },
		"a name":        func(c *transport.Config) { c.Advertise = "host1" },
		"a wildcard":    func(c *transport.Config) { c.Advertise, c.Bind = "0.0.0.0", nil },
		"a bound port":  func(c *transport.Config) { c.Bind = []string{"10.1.2.3:5"} },
		"two families":  func(c *transport.Config) { c.Bind = []string{"fd00::1"} },
		"no interface":  func(c *transport.Config) { c.Advertise, c.Bind = "fe80::1", nil },
		"a wrong zone":  func(c *transport.Config) { c.Advertise, c.Bind = "fe80::1%nosuchif0", nil },
		"an empty bind": func(c *transport.Config) { c.Bind = []string{""} },
	} {
		cfg := good()
		change(&cfg)
		if _, err := parseConfig(cfg); err == nil || !strings.HasPrefix(err.Error(), "rdma: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"10.1.2.3:4", "[fd00::1]:65535", "[fe80::1%eth0]:9"} {
		a := netip.MustParseAddrPort(text)
		b := encodeAddr(a)
		got, err := decodeAddr(b)
		if want := netip.AddrPortFrom(a.Addr().WithZone(""), a.Port()); err != nil || got != want {
			t.Errorf("%s became %s, %v", a, got, err)
		}
		for cut := range b {
			if _, err := decodeAddr(b[:cut]); err == nil {
				t.Errorf("%s cut to %d bytes is an address", text, cut)
			}
		}
		if _, err := decodeAddr(append(b, 0)); err == nil {
			t.Errorf("%s with a byte more is an address", text)
		}
	}
	for _, text := range []string{"0.0.0.0:4", "10.1.2.3:0", "224.0.0.1:4", "[::]:1"} {
		if _, err := decodeAddr(encodeAddr(netip.MustParseAddrPort(text))); err == nil {
			t.Errorf("%s is an address of one rank", text)
		}
	}
}

func FuzzAddress(f *testing.F) {
	f.Add([]byte(encodeAddr(netip.MustParseAddrPort("10.1.2.3:4"))))
	f.Add([]byte(encodeAddr(netip.MustParseAddrPort("[fd00::1]:4"))))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAddr(b)
		if err == nil && string(encodeAddr(a)) != string(b) {
			t.Errorf("%x and %x are both %s", b, encodeAddr(a), a)
		}
	})
}
