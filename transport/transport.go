// Package transport is the contract of the data plane: what the runner asks of
// whatever carries the connections, and the names of steps and causes.
//
// A Provider opens one Endpoint per rank, an endpoint one Worker per thread, and
// a worker begins steps on ranges of connections and tells what has happened
// since. docs/ARCHITECTURE.md says why it looks this way.
package transport

import "time"

// HelloSize is the room of a hello. RDMA CM allows 56 bytes of private data
// on PS_TCP; 48 leaves room for a header.
const HelloSize = 48

// Hello is what the initiator says first on a new connection. Opaque here.
type Hello [HelloSize]byte

// Address is an endpoint's address, at most 256 bytes, opaque to everybody
// but its provider.
type Address []byte

// Conn is the index of a connection within its worker. Connections that the
// worker initiates are 0 … out-1 in the order given to Reserve; accepted ones
// follow at out, out+1, … in order of acceptance; the index of a rejected
// request is used again first.
type Conn int32

// Clock is the monotonic clock all stamps are taken from, in ns. It is the
// process's CLOCK_MONOTONIC, or a fake one in a bubble.
type Clock interface {
	Now() int64
	// SleepUntil returns at or after t; it may spin for the last spin of the wait.
	SleepUntil(t int64, spin time.Duration)
}

// Config of an endpoint. One endpoint serves one rank.
type Config struct {
	Clock     Clock
	Name      string   // for messages: "rank 3"
	Bind      []string // local addresses to use, in turn over connections; empty: the wildcard of Advertise's family
	Advertise string   // address the peers reach the listener at
	Workers   int      // ≥ 1
	Device    string   // provider specific
	Options   map[string]string
	// Park lets Wait sleep without holding a thread, for many more workers than cores; a wake-up takes a little longer.
	Park bool
	// Busy is how long Wait polls without sleeping before it sleeps, 0 = sleep at once.
	Busy time.Duration
}

// Keys of Config.Options at providers that ask the network for addresses and
// routes. Values are decimal numbers.
const (
	OptionResolveTimeout = "resolve_timeout_ms" // of one try, 1 to 600000
	OptionResolveRetries = "resolve_retries"    // tries after the first, 0 to 1000
)

// Provider is one way to connect: tcp, sim, later shm and rdma. Safe for
// concurrent use.
type Provider interface {
	Name() string
	// Probe says whether the provider can run here; the error says why not and what to do.
	Probe(Config) error
	// Steps that the provider really has. What is absent is never started and is reported as "–".
	Steps() StepSet
	// FDs needed in a process by one connection at the initiator, one at the target and one endpoint with w workers.
	FDs(workers int) (out, in, endpoint int)
	Open(Config) (Endpoint, error)
}

// Endpoint is one rank's presence. Methods are for one goroutine, except
// Counters and ListenDrops; the workers belong to one goroutine each.
type Endpoint interface {
	// Listen starts to take requests and tells the address to publish. begin and end are stamps of the step.
	// Requests arrive as events at the workers.
	Listen(backlog int) (addr Address, begin, end int64, err error)
	Workers() int
	Worker(i int) Worker
	Counters() Counters
	// Close releases everything; idempotent. Open connections are aborted.
	Close() error
}

// Counters are the resources that the endpoint holds now, counted by the
// provider itself (never read back from the kernel, so that they can be
// checked against it). ListenDrops and the like grow only.
type Counters struct {
	FDs         int64 // descriptors of connections, listeners and workers
	Conns       int64 // connections not destroyed, both sides
	Listeners   int64
	IDs, QPs    int64 // rdma
	CQs, MRs    int64 // rdma
	Mappings    int64 // shm
	ListenDrops int64 // requests the listener dropped; -1: not known
	SYNRetries  int64 // set-up packets sent again on initiated connections, complete once they are probed, disconnected or destroyed; -1: not known
	Foreign     int64 // accepted and closed again: said nothing in time, something foreign, or no room was left; grows only
	Starved     int64 // times that requests had to wait because the target had no descriptor for them; grows only
	Cramped     int64 // the same for want of memory
}

// Mimicker is an Endpoint that can connect without queue pairs, to rehearse a
// set-up past what the hardware has room for.
type Mimicker interface {
	// Mimic says how the connections of the next round are made: as ever, or without queue pairs. Call it while
	// there is no connection, before the Reserve of the round; all workers of the endpoint follow it.
	Mimic(Mimic) error
}

// Mimic of a round. When it is on, creating a queue pair and moving it, on
// either side, are sleeps of Delay, reported as the steps that they stand for;
// the steps that fetch attributes are taken as ever, and destroying a queue pair
// has nothing to do.
type Mimic struct {
	On    bool
	Delay time.Duration // ≥ 0
	// First … First+Count-1 are the numbers (24 bits) that the connections of the endpoint, either side, tell their
	// peers in place of those of queue pairs, each of them once in a round.
	First, Count uint32
}

// Worker carries the connections of one goroutine. Nothing here blocks except
// Wait. After Reserve no method allocates on the path of a single connection.
//
// The life of an initiated connection c:
//
//	Reserve → Start(StepCreateID) → Start(StepBindAddr) → Assign → Start(StepResolveAddr, StepResolveRoute)
//	→ Start(StepCreateQP, …) → Start(StepConnect) → Start(StepProbe) → Start(StepDisconnect)
//	→ Start(StepDestroyQP) → Start(StepDestroyID)
//
// StepConnect drives everything up to the target's answer: the events
// StepConnect, [StepRTRAttr, StepRTR, StepRTSAttr, StepRTS,] StepEstablish and
// StepFullConnect follow for the same connection, each when it happened. A
// failure is one event with Kind StepFailed and the step that failed; no
// further step of that connection follows, and only StepDisconnect (a no-op
// that reports no event) and the destroy steps may be started on it.
//
// Where StepConnect is done the path has answered, and the target is waited for.
// A connection that is then given up because the time is over (Abandon, or a
// StepFailed of StepEstablish with CauseTimeout) is dead: it is up for all that
// the path says, and nobody is there. One without StepConnect has failed, and so
// has one that was refused, reset, closed or rejected.
//
// A target is passive: it sees EventRequest, calls Answer, gets StepAccept
// (and where the provider has them StepAcceptCreateQP, …), then
// StepProbeAnswer and StepPeerDisconnect as the initiator moves on, and at the
// end is told to destroy its side with Start(StepDestroyQP) and
// Start(StepDestroyID) like an initiator; the first may be left out. A request
// that was rejected is over: it reports nothing more, is not destroyed, and its
// index goes to a later request, so that strangers take nobody's place.
//
// A failed or abandoned connection may stand in the range of any Start: it is
// passed over, counted as begun, and only the destroy steps report it.
//
// A step that had nothing to do for a connection, because an earlier one did
// the work for all (the route to the same peer) or because there is nothing
// left (destroying what was never created), reports StepDone with Begin and
// End 0: it is complete, but is not counted and adds to no figure.
type Worker interface {
	// Reserve prepares for out initiated and at most in accepted connections: tables, stamps, buffers and
	// the process's descriptor table are grown now, so that no timed phase pays for it. Call again for the next
	// round, when all connections are destroyed: what is left of requests that nobody answered goes with the round
	// before, and so does every event that was not taken.
	Reserve(out, in int) error

	// Assign tells where connection c goes and what it says first. Before StepResolveAddr.
	Assign(c Conn, to Address, hello *Hello) error

	// Start begins step s on the connections first, first+1, … first+n-1. It returns how many were begun;
	// fewer than n only with a typed error that concerns the next one, ErrAgain if the queue is full.
	// due, if not nil, holds the moment each was meant to begin (paced shapes): StepFullConnect counts from it.
	// Every connection begun yields exactly one StepDone or StepFailed event for s, unless it had failed before.
	Start(s Step, first Conn, n int, due []int64) (int, error)

	// Poll moves what has happened into ev and returns how many; it never blocks.
	Poll(ev []Event) int

	// Wait is Poll that sleeps until something happened, Wake was called or the clock reaches until.
	Wait(until int64, ev []Event) (int, error)

	// Wake ends a running or the next Wait; the only method other goroutines may call.
	Wake()

	// Answer accepts or rejects the request of an EventRequest; reason travels to the initiator on reject, which
	// ends the request here.
	// The error is for misuse only (c has no open request); a peer that is gone shows as StepFailed of StepAccept.
	Answer(c Conn, accept bool, reason uint16) error

	// Abandon fails a connection that is still under way (deadline): no event follows, its descriptor stays
	// until destroy.
	Abandon(c Conn)

	// Accepting turns taking new requests off and on (for delays and for tests of the backlog).
	Accepting(on bool)

	Close() error
}

// EventKind says what an Event tells.
type EventKind uint8

// The kinds of events.
const (
	StepDone EventKind = iota + 1
	StepFailed
	EventRequest    // a new request at the target, Hello filled; call Answer
	EventPeerClosed // the peer's side went away outside a disconnect
)

// Event is one thing that happened on one connection.
type Event struct {
	Conn       Conn
	Step       Step // StepAccept for EventRequest, StepCount for EventPeerClosed
	Kind       EventKind
	Cause      Cause
	Reason     uint16 // of a reject
	Begin, End int64  // ns on Config.Clock, stamped by the provider; both 0 on a StepDone that had nothing to do
	Hello      Hello  // EventRequest only
	Err        error  // StepFailed only; may be nil, Cause then says all
}
