package tcp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"rankstorm/test/need"
)

func TestAddressRoundTrip(t *testing.T) {
	for _, s := range []string{"127.0.0.1:7471", "10.1.2.3:1", "[::1]:65535", "[2001:db8::7]:80", "[fe80::1%lo]:90"} {
		a, err := parseAddr(s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		ip, port, zone, err := decodeAddr(a.encode())
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if ip.WithZone(zone) != a.ip || port != a.port {
			t.Errorf("%s came back as %v %%%s port %d", s, ip, zone, port)
		}
		if a.String() != s {
			t.Errorf("%s prints as %s", s, a.String())
		}
	}
}

func TestMappedAddressIsIPv4(t *testing.T) {
	a, err := parseAddr("::ffff:127.0.0.1")
	if err != nil || a.domain() != unix.AF_INET {
		t.Errorf("domain %d, %v", a.domain(), err)
	}
}

func FuzzDecodeAddr(f *testing.F) {
	for _, s := range []string{"127.0.0.1:7471", "[fe80::1%lo]:90"} {
		a, err := parseAddr(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(a.encode()))
	}
	f.Add([]byte{})
	f.Add(make([]byte, addrMax+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		ip, port, zone, err := decodeAddr(b)
		if err != nil {
			return
		}
		// What is taken must be the one encoding of its meaning.
		a := addr{ip: ip.WithZone(zone), port: port}
		if ip.Is4() {
			a.ip = ip
		}
		if !bytes.Equal(a.encode(), b) {
			t.Errorf("%x was read as %v and is written as %x", b, a.ip, a.encode())
		}
	})
}

func FuzzParseShort(f *testing.F) {
	var b [shortFrame]byte
	for _, k := range []byte{kindAnswer, kindPing, kindPong} {
		putShort(&b, k, 0, 0)
		f.Add(b[:])
	}
	putShort(&b, kindAnswer, statusRejected, 513)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) != shortFrame {
			return
		}
		kind, status, reason, ok := parseShort((*[shortFrame]byte)(in))
		if !ok {
			return
		}
		var out [shortFrame]byte
		putShort(&out, kind, status, reason)
		if !bytes.Equal(out[:], in) {
			t.Errorf("%x was read as kind %d status %d reason %d, which is written as %x", in, kind, status, reason, out)
		}
	})
}

func TestHelloSoFar(t *testing.T) {
	h := wholeHello()
	for n := range len(h) + 1 {
		if !helloSoFar(h[:n]) {
			t.Errorf("the first %d bytes of a hello are taken for a stranger's", n)
		}
	}
	for i := range 6 {
		b := bytes.Clone(h)
		b[i] ^= 1
		if helloSoFar(b[:i+1]) {
			t.Errorf("a wrong byte %d is not noticed", i)
		}
	}
}

func TestRoutes(t *testing.T) {
	r, err := newRouter()
	if err != nil {
		need.Absent(t, "rtnetlink", "no rtnetlink here: %v", err)
	}
	defer r.close()
	for s, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true} {
		a, err := parseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		local, err := r.lookup(&a)
		if err != nil || local != want {
			t.Errorf("%s: local %v, %v", s, local, err)
		}
	}
	bad, err := parseAddr("255.255.255.255")
	if err != nil {
		t.Fatal(err)
	}
	if local, err := r.lookup(&bad); local {
		t.Errorf("broadcast is local (%v)", err)
	}
}

func FuzzParseRoute(f *testing.F) {
	ne := binary.NativeEndian
	msg := func(kind uint16, body []byte) []byte {
		b := make([]byte, unix.SizeofNlMsghdr, 64)
		ne.PutUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
		ne.PutUint16(b[4:], kind)
		ne.PutUint32(b[8:], 1)
		return append(b, body...)
	}
	f.Add(msg(unix.RTM_NEWROUTE, []byte{2, 32, 0, 0, 255, 0, 0, unix.RTN_LOCAL, 0, 0, 0, 0}))
	f.Add(msg(unix.NLMSG_ERROR, []byte{155, 255, 255, 255}))
	f.Add(msg(unix.NLMSG_ERROR, []byte{0, 0, 0, 0}))
	f.Add(msg(unix.RTM_NEWROUTE, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if local, done, err := parseRoute(b, 1); local && (err != nil || !done) {
			t.Errorf("local without an answer: %v", err)
		}
	})
}
