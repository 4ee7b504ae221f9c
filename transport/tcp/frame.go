package tcp

import (
	"encoding/binary"

	"rankstorm/transport"
)

// Every frame begins with the magic, the version, its kind, and its status.
// Integers are big endian.
//
//	hello   magic[4] version kind 0 0, hello[48]                     56 bytes, the most RDMA CM carries
//	answer  magic[4] version kind status 0, reason[2], 0[6]          16 bytes
//	probe   magic[4] version kind 0 0, 0[8]                          16 bytes, and its echo
const (
	frameVersion = 1
	headerSize   = 8
	helloFrame   = headerSize + transport.HelloSize
	shortFrame   = 16
)

var magic = [4]byte{'r', 'k', 's', 't'}

const (
	kindHello = iota + 1
	kindAnswer
	kindPing
	kindPong
)

const (
	statusAccepted = iota + 1
	statusRejected
)

// ReasonNoRoom is the reason of a reject that the provider itself gives: more
// requests came than the target had reserved for.
const ReasonNoRoom = 0xffff

func putHeader(b []byte, kind, status byte) {
	copy(b, magic[:])
	b[4], b[5], b[6], b[7] = frameVersion, kind, status, 0
}

func putHello(b *[helloFrame]byte, h *transport.Hello) {
	putHeader(b[:], kindHello, 0)
	copy(b[headerSize:], h[:])
}

func putShort(b *[shortFrame]byte, kind, status byte, reason uint16) {
	*b = [shortFrame]byte{}
	putHeader(b[:], kind, status)
	binary.BigEndian.PutUint16(b[headerSize:], reason)
}

// helloSoFar says whether b can be the beginning of a hello; a stranger is
// turned away at its first wrong byte.
func helloSoFar(b []byte) bool {
	want := [headerSize]byte{magic[0], magic[1], magic[2], magic[3], frameVersion, kindHello}
	n := min(len(b), headerSize)
	return string(b[:n]) == string(want[:n])
}

// parseShort checks a whole short frame.
func parseShort(b *[shortFrame]byte) (kind, status byte, reason uint16, ok bool) {
	if [4]byte(b[:4]) != magic || b[4] != frameVersion || b[7] != 0 || [6]byte(b[10:16]) != [6]byte{} {
		return 0, 0, 0, false
	}
	kind, status, reason = b[5], b[6], binary.BigEndian.Uint16(b[headerSize:])
	switch kind {
	case kindAnswer:
		ok = status == statusRejected || status == statusAccepted && reason == 0
	case kindPing, kindPong:
		ok = status == 0 && reason == 0
	}
	return kind, status, reason, ok
}
