package tcp

import (
	"bytes"
	"testing"
)

// The beginning of a hello is judged the same whether it comes whole or byte by byte.
func FuzzHelloSoFar(f *testing.F) {
	f.Add(wholeHello())
	f.Add(wholeHello()[:6])
	f.Add([]byte("GET / HTTP/1.1"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		whole := helloSoFar(b)
		for n := range b {
			if whole && !helloSoFar(b[:n]) {
				t.Fatalf("%x is the beginning of a hello, but not its first %d bytes", b, n)
			}
		}
		if want := wholeHello(); whole != bytes.HasPrefix(want, b[:min(len(b), headerSize)]) {
			t.Errorf("%x: %v", b, whole)
		}
	})
}

// What may be given as addresses and port range.
func FuzzConfig(f *testing.F) {
	f.Add("127.0.0.1", "127.0.0.1", "40000-40999")
	f.Add("fe80::1%lo", "::", "1-65535")
	f.Add("[::1]:80", "", "9-1")
	f.Fuzz(func(t *testing.T, advertise, bind, ports string) {
		cfg := config(advertise, bind)
		cfg.Options = map[string]string{OptionPortRange: ports}
		s, err := parseConfig(cfg)
		if err != nil {
			return
		}
		again := config(s.adv.ip.String())
		if s.adv.ip.Is6() && s.adv.ip.Zone() != "" {
			return // an interface of this machine
		}
		if _, err := parseConfig(again); err != nil {
			t.Errorf("%q was taken as %v, which is refused: %v", advertise, s.adv.ip, err)
		}
		if lo, hi := s.portRange&0xffff, s.portRange>>16; s.portRange != 0 && (lo == 0 || lo > hi) {
			t.Errorf("port range %d to %d", lo, hi)
		}
		listens := s.adv
		listens.setPort(1)
		if _, _, _, err := decodeAddr(listens.encode()); err != nil {
			t.Errorf("%q is published as what nobody reads: %v", advertise, err)
		}
	})
}
