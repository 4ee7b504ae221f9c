// Package memnet is a network in memory: hosts with addresses, stream and
// packet sockets and host-wide sockets, with seeded latency, jitter and packet
// loss, links that can be cut and processes and hosts that can be killed.
//
// It lets whole jobs be rehearsed in one process, without a socket and, inside
// a testing/synctest bubble, without waiting: every wait is on a channel or a
// timer, so that a fake clock can jump over it. All objects must be made
// inside the bubble that uses them.
//
// A Proc has the methods of rendezvous.Network:
//
//	n := memnet.New(memnet.Config{Seed: 1, Latency: 50 * time.Microsecond})
//	h := n.AddHost("n0", netip.MustParseAddr("10.0.0.1"))
//	cfg.Network = h.Proc()
//
// What it models of TCP: order, bounded buffers, half-written data that still
// arrives before the end of the stream, refusal where nobody listens, silence
// over a cut link (data arrives when it is healed) and from a killed host.
// What it does not: congestion, retransmission limits, reordering by jitter.
package memnet
