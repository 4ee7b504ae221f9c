// Package rdma connects ranks through RDMA CM: librdmacm and libibverbs, which
// are opened at run time.
//
// # Steps
//
//	create id           rdma_create_id on the worker's event channel
//	bind addr           rdma_bind_addr to the next address of Config.Bind, port 0
//	listen              event channel, rdma_create_id, rdma_bind_addr, rdma_listen; backlog 0 is net.rdma_ucm.max_backlog
//	resolve addr        rdma_resolve_addr called → ADDR_RESOLVED read, repeated tries included
//	resolve route       rdma_resolve_route called → ROUTE_RESOLVED read, repeated tries included
//	create qp           ibv_create_qp
//	init qp attr        rdma_init_qp_attr(INIT)
//	init qp             ibv_modify_qp to INIT; a receive is posted after it, untimed
//	connect             rdma_connect called → CONNECT_RESPONSE read
//	rtr qp attr, …      rdma_init_qp_attr and ibv_modify_qp to RTR and RTS, where the response is read
//	establish           rdma_establish
//	full connect        rdma_connect called, or due → rdma_establish returned
//	accept              CONNECT_REQUEST read → rdma_accept returned; the steps named "accept …" lie within.
//	                    A request that was read ahead, to empty the listen queue, begins when it is taken up
//	first round trip    16 bytes sent → the same read back, both by send and receive
//	probe answer        completion of the receive taken → answer posted
//	disconnect          rdma_disconnect called → DISCONNECTED read: the target has answered.
//	                    TIMEWAIT_EXIT, seconds later, is no part of it
//	peer disconnect     DISCONNECTED read → own rdma_disconnect, the answer, returned
//	destroy qp          ibv_destroy_qp
//	destroy id          rdma_destroy_id
//
// Over iWARP the kernel moves queue pairs itself and tells an initiator only
// ESTABLISHED: the steps from rtr qp attr to establish and the target's RTR and
// RTS do not happen there, and full connect ends where connect does.
//
// # Queue pairs by hand
//
// librdmacm would create and move them inside other calls; here it never sees
// one, so each transition is timed on both sides. What it would have done, or the
// kernel does not: an initiator's access rights are set in INIT (the CM gives it
// none), min_rnr_timer is 12 (0.64 ms; the CM says 0, which is 655 ms), retry
// counts are set at RTS on both sides (rdma_accept ignores them), a receive is
// posted before the peer can send, bits that only RoCE has are masked on
// InfiniBand.
//
// # Channels
//
// Every worker has one event channel for all its connections, non-blocking and in
// its epoll set; the listener has another. Whichever worker finds a request on it
// migrates the new identifier to its own channel before it answers. So there is
// one port to publish, requests go to whoever has time, a worker that does not
// accept leaves them to the others, and the events of accepted connections come in
// as many channels as there are workers. It costs one system call a request.
// Events are copied and acknowledged at once: destroying an identifier waits for
// acknowledgements, so one that is held back anywhere would hang it.
//
// # Backlog
//
// The kernel counts requests until their event is read; what exceeds the backlog
// is dropped without a word, and the initiator's CM asks again only after its
// timer (6.1 s on RoCE). While Accepting is off events are not read.
//
// # Without queue pairs
//
// After Endpoint.Mimic the connection manager is as real as ever, queue pairs are
// numbers and sleeps. Nothing can be sent then: probe and probe answer have
// nothing to do. iWARP wants a real queue pair for each connection and refuses.
//
// # Refusals
//
// A reject carries the rank's reason in private data. One without it is the
// kernel's: nobody listens, the process ended, a stale queue pair number.
//
// # Strangers
//
// A request that does not begin with a hello of a rank is rejected, so is one
// beyond those that Reserve made room for. Both are counted in Counters.Foreign.
package rdma
