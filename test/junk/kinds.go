// Package junk is what strangers do to the ports of a job: scans, garbage,
// half-open and slow connections, oversized frames, replays. Tests and benches
// send it; nothing of the product depends on it.
package junk

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"time"
)

// Kind is one way to treat a stream port.
type Kind struct {
	Name  string
	Says  func(*rand.Rand) []byte // nil: nothing
	Slow  bool                    // one byte a second instead of all at once
	Holds bool                    // stays until the other side closes or the time is over
	Reset bool                    // ends by a reset
}

// Kinds are all ways that need nothing recorded.
var Kinds = []Kind{
	{Name: "scan"},
	{Name: "scan with reset", Reset: true},
	{Name: "mute", Holds: true},
	{Name: "one byte", Says: oneOf("\x00", "K", "G", "C", "r", "\x16"), Holds: true},
	{Name: "garbage", Says: garbage},
	{Name: "garbage after the first byte", Says: after("KGC", garbage), Holds: true},
	{Name: "http", Says: oneOf("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD / HTTP/1.0\r\n\r\n"), Holds: true},
	{Name: "ssh", Says: oneOf("SSH-2.0-OpenSSH_9.2\r\n"), Holds: true},
	{Name: "tls", Says: after("KGC", clientHello), Holds: true},
	{Name: "tls at once", Says: clientHello, Holds: true},
	{Name: "slow", Says: after("KGCr", garbage), Slow: true, Holds: true},
	{Name: "slow hello", Says: forgedHello, Slow: true, Holds: true},
	{Name: "oversized frame", Says: oversized, Holds: true},
	{Name: "foreign gossip", Says: foreignGossip, Holds: true},
	{Name: "forged hello", Says: forgedHello, Holds: true},
	{Name: "half a hello", Says: func(r *rand.Rand) []byte { return forgedHello(r)[:8+r.IntN(40)] }},
}

// Replay is a kind that says what somebody else said before.
func Replay(recorded [][]byte) Kind {
	return Kind{Name: "replay", Holds: true, Says: func(r *rand.Rand) []byte { return recorded[r.IntN(len(recorded))] }}
}

func oneOf(list ...string) func(*rand.Rand) []byte {
	return func(r *rand.Rand) []byte { return []byte(list[r.IntN(len(list))]) }
}

func after(first string, rest func(*rand.Rand) []byte) func(*rand.Rand) []byte {
	return func(r *rand.Rand) []byte { return append([]byte{first[r.IntN(len(first))]}, rest(r)...) }
}

func garbage(r *rand.Rand) []byte {
	b := make([]byte, 1+r.IntN(300))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// clientHello is a TLS record that a handshake begins with, as a browser sends it.
func clientHello(r *rand.Rand) []byte {
	b, _ := hex.DecodeString("16030100f8010000f40303")
	for range 32 {
		b = append(b, byte(r.Uint32()))
	}
	return append(b, bytes.Repeat([]byte{0x13, 0x01}, 100)...)
}

// oversized frames announce up to 4 GiB.
func oversized(r *rand.Rand) []byte {
	b := []byte{"KGC"[r.IntN(3)]}
	b = append(b, []string{"\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x00\xff\xff\xff", "\x00\x10\x00\x01"}[r.IntN(4)]...)
	return append(b, garbage(r)...)
}

// foreignGossip is what memberlist of another job says: a label, a push/pull, an encrypted message.
func foreignGossip(r *rand.Rand) []byte {
	label := append([]byte{244, 8}, "otherjob"...)
	bodies := [][]byte{
		{6, 0x83, 0xa5, 'N', 'o', 'd', 'e', 's', 0xce, 0xff, 0xff, 0xff, 0xff}, // a push/pull of 4 G nodes
		append([]byte{10}, garbage(r)...),                                      // encrypted
		{0, 0x82, 0xa5, 'S', 'e', 'q', 'N', 'o', 1, 0xa4, 'N', 'o', 'd', 'e', 0xa1, 'x'},
		append([]byte{9, 0xff, 0xff}, garbage(r)...), // compressed
		append([]byte{7, 255}, garbage(r)...),        // many in one
	}
	b := bodies[r.IntN(len(bodies))]
	if r.IntN(2) == 0 {
		b = append(label, b...)
	}
	return b
}

// forgedHello is well formed: header and length are right, nothing else is.
func forgedHello(r *rand.Rand) []byte {
	b := []byte{'r', 'k', 's', 't', 1, 1, 0, 0, 2, 0, 0, 0}
	for len(b) < 8+48 {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// Datagram is what comes to a datagram port.
func Datagram(r *rand.Rand) []byte {
	switch r.IntN(4) {
	case 0:
		return nil
	case 1:
		return append([]byte{byte(r.IntN(14))}, garbage(r)...)
	case 2:
		return foreignGossip(r)
	}
	b := make([]byte, 60000)
	copy(b, garbage(r))
	return b
}

// Do treats the port once, for at most so long. The error says that it could not
// connect; how the other side takes it is no error.
func (k Kind) Do(ctx context.Context, network, address string, r *rand.Rand, most time.Duration) error {
	d := net.Dialer{Timeout: 3 * time.Second}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn.SetDeadline(time.Now().Add(most))
	if tcp, ok := conn.(*net.TCPConn); ok && k.Reset {
		_ = tcp.SetLinger(0)
	}
	if k.Says != nil {
		said := k.Says(r)
		if !k.Slow {
			_, _ = conn.Write(said)
		}
		for i := 0; k.Slow && i < len(said); i++ {
			if _, err := conn.Write(said[i : i+1]); err != nil {
				return nil // turned away, as it should be
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
			}
		}
	}
	if k.Holds {
		_, _ = io.Copy(io.Discard, conn)
	}
	return nil
}

// Refused says that nobody listens there any more.
func Refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
