package verbs

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PrivateSize is the room of what an initiator says with its request.
const PrivateSize = 56

// Sockaddr is a sockaddr_in or sockaddr_in6 in the kernel's form.
type Sockaddr [28]byte

// NewSockaddr makes one; scope is the interface's index for a link-local address.
func NewSockaddr(ip netip.Addr, port uint16, scope uint32) (s Sockaddr) {
	binary.BigEndian.PutUint16(s[2:], port)
	if ip.Is4() {
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		a := ip.As4()
		copy(s[4:], a[:])
		return s
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	a := ip.As16()
	copy(s[8:], a[:])
	binary.NativeEndian.PutUint32(s[24:], scope)
	return s
}

// Knobs are what is asked of every connection. -1 leaves a value to RDMA CM.
type Knobs struct {
	TOS        int32 // 0 to 255
	SL         int32 // service level, 0 to 15
	MTU        int32 // enum ibv_mtu: 1 = 256 bytes … 5 = 4096
	AckTimeout int32 // 0 to 31: 4.096 µs × 2^n
	GIDIndex   int32
	RetryCnt   int32 // 0 to 7
	RNRRetry   int32 // 0 to 7, 7 = for ever
	MinRNR     int32 // 0 to 31, see the verbs' table
}

// Stamp says when the call on one connection began and ended, in ns of
// CLOCK_MONOTONIC, and its errno. Begin 0: it was not made.
type Stamp struct {
	Begin, End int64
	Slot, Err  int32
}

// The stages that follow the peer's word within one crossing.
const (
	StageCreateQP = iota // target
	StageInitAttr        // target
	StageInitQP          // target
	StageRTRAttr
	StageRTR
	StageRTSAttr
	StageRTS
	StageLast // rdma_establish or rdma_accept
	stages
)

// Stages are the stamps of all stages; those not made are zero.
type Stages [stages]Stamp

// EventKind is the kernel's rdma_cm_event_type.
type EventKind int32

// The kinds of events.
const (
	AddrResolved EventKind = iota
	AddrError
	RouteResolved
	RouteError
	ConnectRequest
	ConnectResponse
	ConnectError
	Unreachable
	Rejected
	Established
	Disconnected
	DeviceRemoval
	MulticastJoin
	MulticastError
	AddrChange
	TimewaitExit
	EventKinds
)

// Event is a copy of one event of the connection manager; the original has
// been acknowledged.
type Event struct {
	ID     uint64 // of a ConnectRequest: the new identifier
	At     int64  // when it was read, ns of CLOCK_MONOTONIC
	Slot   int32  // -1: of the listener
	Gen    uint32
	Kind   EventKind
	Status int32
	Len    uint8 // of Data; may be more than was sent, with zeros
	Data   [PrivateSize + 7]byte
}

// DoneKind says what a completion was.
type DoneKind int32

// The kinds of completions. A send that succeeded is not told.
const (
	Sent DoneKind = iota
	Ping
	Pong
	Strange
)

// Done is a completion that is worth telling.
type Done struct {
	At     int64
	Slot   int32
	Gen    uint32
	Status int32 // of the work completion, 0 = success
	Kind   DoneKind
}

// The layouts that C fills; a test compares them with C's.
const (
	stampSize  = unsafe.Sizeof(Stamp{})
	stagesSize = unsafe.Sizeof(Stages{})
	eventSize  = unsafe.Sizeof(Event{})
	doneSize   = unsafe.Sizeof(Done{})
	knobsSize  = unsafe.Sizeof(Knobs{})
)

// QPState is what a test wants to know of a queue pair.
type QPState struct {
	AccessFlags                         uint32
	MinRNR, Timeout, RetryCnt, RNRRetry uint8
	MTU                                 int32
	SGIDIndex, SL, TrafficClass         uint8
}
