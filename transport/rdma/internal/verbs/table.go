//go:build cgo

package verbs

// #include "table.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Table is a worker's event channel, identifiers, queue pairs and what they
// share. Its methods are for one goroutine. Slots are the connections' indices.
type Table struct {
	t *C.struct_rsv_table
}

// errno is nil for 0.
func errno(n C.int) error {
	if n == 0 {
		return nil
	}
	return unix.Errno(n)
}

// ErrTooMany says that a worker's connections need a completion queue larger than the device's largest.
var ErrTooMany = errors.New("more than the device's completion queue can hold")

// NewTable opens an event channel and makes what the devices of the local
// addresses need: protection domain, completion queue, memory. If it fails for
// one address, which says for which; -1 for none in particular.
func NewTable(k Knobs, local []Sockaddr) (t *Table, which int, err error) {
	t = &Table{}
	if err := errno(C.rsv_table_new(&t.t, (*C.struct_rsv_knobs)(unsafe.Pointer(&k)))); err != nil {
		return nil, -1, fmt.Errorf("rdma_create_event_channel: %w", err)
	}
	var at C.int
	if err := errno(C.rsv_table_local(t.t, sockaddrs(local), C.int(len(local)), &at)); err != nil {
		t.Close()
		return nil, int(at), err
	}
	return t, -1, nil
}

func sockaddrs(s []Sockaddr) *C.struct_sockaddr_in6 {
	return (*C.struct_sockaddr_in6)(unsafe.Pointer(unsafe.SliceData(s)))
}

// Close destroys all queue pairs and identifiers, which ends their connections, and releases the rest.
func (t *Table) Close() {
	if t.t != nil {
		C.rsv_table_free(t.t)
		t.t = nil
	}
}

// FD is the event channel's descriptor.
func (t *Table) FD() int { return int(t.t.channel.fd) }

// Rails is how many devices the local addresses belong to.
func (t *Table) Rails() int { return int(t.t.rails) }

// NotifyFD is the descriptor of a device's completion channel, -1 without queue pairs.
func (t *Table) NotifyFD(rail int) int {
	if n := t.t.rail[rail].notify; n != nil {
		return int(n.fd)
	}
	return -1
}

// Resize makes room for n connections; all of before must be destroyed.
func (t *Table) Resize(n int) error {
	err := errno(C.rsv_table_size(t.t, C.int(n)))
	if errors.Is(err, unix.E2BIG) {
		return ErrTooMany
	}
	return err
}

func (t *Table) conn(slot int32) *C.struct_rsv_conn {
	return &unsafe.Slice(t.t.conns, t.t.n)[slot]
}

// Aim tells where a connection goes and what it says with its request.
func (t *Table) Aim(slot int32, to *Sockaddr, said *[PrivateSize]byte) {
	c := t.conn(slot)
	*(*Sockaddr)(unsafe.Pointer(&c.to)) = *to
	*(*[PrivateSize]byte)(unsafe.Pointer(&c.said)) = *said
}

// Place tells which of the local addresses a connection is bound to.
func (t *Table) Place(slot int32, local int) { t.conn(slot).local = C.uint16_t(local) }

// Number gives a connection without a queue pair the number that it names.
func (t *Table) Number(slot int32, qpn uint32) { t.conn(slot).qpn = C.uint32_t(qpn) }

// Play has the connections of the next Resize made without queue pairs: what
// would be done to one takes ns instead. Off with on false.
func (t *Table) Play(on bool, ns int64) {
	t.t.no_qp, t.t.nap_ns = 0, C.int64_t(ns)
	if on {
		t.t.no_qp = 1
	}
}

// IWARP says that the connection's device speaks iWARP.
func (t *Table) IWARP(slot int32) bool {
	r := t.conn(slot).rail
	return r >= 0 && t.t.rail[r].iwarp != 0
}

func slotsPtr(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(s))) }
func stampsPtr(s []Stamp) *C.struct_rsv_stamp {
	return (*C.struct_rsv_stamp)(unsafe.Pointer(unsafe.SliceData(s)))
}

// The steps, each on the connections in slots; out has a stamp for each.

// CreateIDs makes identifiers with the options of Knobs; gens are their generations.
func (t *Table) CreateIDs(slots []int32, gens []uint32, out []Stamp) {
	C.rsv_create_ids(t.t, slotsPtr(slots), (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(gens))), C.int(len(slots)), stampsPtr(out))
}

// Bind binds to the local addresses that Place chose.
func (t *Table) Bind(slots []int32, out []Stamp) {
	C.rsv_bind(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// ResolveAddr begins to; AddrResolved or AddrError follows.
func (t *Table) ResolveAddr(slots []int32, timeoutMS int, out []Stamp) {
	C.rsv_resolve_addr(t.t, slotsPtr(slots), C.int(len(slots)), C.int(timeoutMS), stampsPtr(out))
}

// ResolveRoute begins to; RouteResolved or RouteError follows.
func (t *Table) ResolveRoute(slots []int32, timeoutMS int, out []Stamp) {
	C.rsv_resolve_route(t.t, slotsPtr(slots), C.int(len(slots)), C.int(timeoutMS), stampsPtr(out))
}

// CreateQP makes queue pairs that librdmacm does not know.
func (t *Table) CreateQP(slots []int32, out []Stamp) {
	C.rsv_create_qp(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// InitAttr fetches the attributes of INIT.
func (t *Table) InitAttr(slots []int32, out []Stamp) {
	C.rsv_init_attr(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// InitQP moves to INIT and posts a receive.
func (t *Table) InitQP(slots []int32, out []Stamp) {
	C.rsv_init_qp(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// Connect sends the request; ConnectResponse or a refusal follows, on iWARP Established.
func (t *Table) Connect(slots []int32, out []Stamp) {
	C.rsv_connect(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// Establish moves the queue pairs to RTR and RTS and tells the targets.
func (t *Table) Establish(slots []int32, out []Stages) {
	C.rsv_establish(t.t, slotsPtr(slots), C.int(len(slots)), (*C.struct_rsv_stages)(unsafe.Pointer(unsafe.SliceData(out))))
}

// Adopt makes the identifier of a request that of a connection of this table, events included.
func (t *Table) Adopt(slot int32, gen uint32, id uint64) error {
	return errno(C.rsv_adopt(t.t, C.int32_t(slot), C.uint32_t(gen), C.uint64_t(id)))
}

// Accept makes an adopted connection's queue pair, moves it to RTS and accepts.
func (t *Table) Accept(slot int32, out *Stages) {
	C.rsv_accept(t.t, C.int32_t(slot), (*C.struct_rsv_stages)(unsafe.Pointer(out)))
}

// Refuse rejects an adopted connection's request with data; the identifier is still to be destroyed.
func (t *Table) Refuse(slot int32, data []byte) error {
	return errno(C.rsv_reject(C.uint64_t(uintptr(unsafe.Pointer(t.conn(slot).id))), (*C.uint8_t)(unsafe.SliceData(data)), C.int(len(data))))
}

// TurnAway rejects a request that no table has adopted, and destroys its identifier.
func TurnAway(id uint64, data []byte) {
	C.rsv_reject(C.uint64_t(id), (*C.uint8_t)(unsafe.SliceData(data)), C.int(len(data)))
	C.rsv_drop(C.uint64_t(id))
}

// Disconnect asks for the end, or answers the peer's asking; Disconnected follows.
func (t *Table) Disconnect(slots []int32, out []Stamp) {
	C.rsv_disconnect(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// DestroyQP destroys queue pairs; where there is none it does nothing.
func (t *Table) DestroyQP(slots []int32, out []Stamp) {
	C.rsv_destroy_qp(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// DestroyID destroys identifiers, which ends their connections.
func (t *Table) DestroyID(slots []int32, out []Stamp) {
	C.rsv_destroy_id(t.t, slotsPtr(slots), C.int(len(slots)), stampsPtr(out))
}

// Probe sends a ping, or answers the one received with a pong.
func (t *Table) Probe(slots []int32, kind DoneKind, out []Stamp) {
	C.rsv_probe(t.t, slotsPtr(slots), C.int(len(slots)), C.int(kind), stampsPtr(out))
}

// HasQP says that the connection has a queue pair.
func (t *Table) HasQP(slot int32) bool { return t.conn(slot).qp != nil }

// HasID says that the connection has an identifier.
func (t *Table) HasID(slot int32) bool { return t.conn(slot).id != nil }

// Completions takes from the completion queues.
func (t *Table) Completions(out []Done) (int, error) {
	n := C.rsv_completions(t.t, (*C.struct_rsv_done)(unsafe.Pointer(unsafe.SliceData(out))), C.int(len(out)))
	if n < 0 {
		return 0, unix.Errno(-n)
	}
	return int(n), nil
}

// Arm asks for a notification with the next completion. What completed before is not notified of: take it after arming.
func (t *Table) Arm() error { return errno(C.rsv_arm(t.t)) }

// Notified takes the notifications of a device.
func (t *Table) Notified(rail int) { C.rsv_notified(t.t, C.int(rail)) }

// Events reads and acknowledges what has happened, as far as out has room.
func (t *Table) Events(out []Event) (int, error) { return events(t.t.channel, out) }

func events(channel *C.struct_rs_rdma_event_channel, out []Event) (int, error) {
	n := C.rsv_events(channel, (*C.struct_rsv_event)(unsafe.Pointer(unsafe.SliceData(out))), C.int(len(out)))
	if n < 0 {
		return 0, unix.Errno(-n)
	}
	return int(n), nil
}

// Query asks the device for a queue pair's attributes.
func (t *Table) Query(slot int32) (QPState, error) {
	var a C.struct_rs_ibv_qp_attr
	if err := errno(C.rsv_query(t.t, C.int32_t(slot), &a)); err != nil {
		return QPState{}, err
	}
	return QPState{
		AccessFlags: uint32(a.qp_access_flags), MinRNR: uint8(a.min_rnr_timer), Timeout: uint8(a.timeout), RetryCnt: uint8(a.retry_cnt),
		RNRRetry: uint8(a.rnr_retry), MTU: int32(a.path_mtu), SGIDIndex: uint8(a.ah_attr.grh.sgid_index), SL: uint8(a.ah_attr.sl),
		TrafficClass: uint8(a.ah_attr.grh.traffic_class),
	}, nil
}

// Listener takes requests, on an event channel of its own.
type Listener struct {
	l C.struct_rsv_listener
}

// Listen binds to an address (port 0: a free one) and listens; backlog 0 is the largest possible.
func Listen(k Knobs, at *Sockaddr, backlog int) (l *Listener, port uint16, s Stamp, err error) {
	l = &Listener{}
	var p C.uint16_t
	err = errno(C.rsv_listen(&l.l, (*C.struct_rsv_knobs)(unsafe.Pointer(&k)), (*C.struct_sockaddr_in6)(unsafe.Pointer(at)), C.int(backlog),
		(*C.struct_rsv_stamp)(unsafe.Pointer(&s)), &p))
	return l, uint16(p), s, err
}

// FD is the event channel's descriptor.
func (l *Listener) FD() int { return int(l.l.channel.fd) }

// Events is Table.Events of the listener's channel; for one goroutine at a time.
func (l *Listener) Events(out []Event) (int, error) { return events(l.l.channel, out) }

// Close rejects the requests that nobody has read, and ends listening.
func (l *Listener) Close() { C.rsv_unlisten(&l.l) }

// Behind is the device behind a local address.
type Behind struct {
	Device     string
	Port       int
	IWARP      bool
	MaxEntries int // of a completion queue
}

// Lookup binds an identifier to a local address to learn the device behind it.
func Lookup(at *Sockaddr) (Behind, error) {
	var name [64]C.char
	var port, iwarp, cqe C.int
	err := errno(C.rsv_lookup((*C.struct_sockaddr_in6)(unsafe.Pointer(at)), &name[0], C.int(len(name)), &port, &iwarp, &cqe))
	return Behind{Device: C.GoString(&name[0]), Port: int(port), IWARP: iwarp != 0, MaxEntries: int(cqe)}, err
}

// layouts are the sizes of what C fills, beside Go's.
func layouts() [][2]uintptr {
	return [][2]uintptr{
		{stampSize, C.sizeof_struct_rsv_stamp},
		{stagesSize, C.sizeof_struct_rsv_stages},
		{eventSize, C.sizeof_struct_rsv_event},
		{doneSize, C.sizeof_struct_rsv_done},
		{knobsSize, C.sizeof_struct_rsv_knobs},
		{unsafe.Sizeof(Sockaddr{}), C.sizeof_struct_sockaddr_in6},
		{PrivateSize, C.RSV_PRIVATE},
		{stages, C.RSV_STAGES},
		{uintptr(StageRTS), C.RSV_RTS},
		{uintptr(Pong), C.RSV_PONG},
		{uintptr(TimewaitExit), C.RS_EVENT_TIMEWAIT_EXIT},
		{uintptr(ConnectResponse), C.RS_EVENT_CONNECT_RESPONSE},
		{unsafe.Offsetof(Event{}.Data), C.RSV_EVENT_DATA},
		{unsafe.Offsetof(Event{}.Kind), C.RSV_EVENT_KIND},
	}
}
