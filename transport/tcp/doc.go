// Package tcp connects ranks over TCP: raw non-blocking sockets and one
// edge-triggered epoll set per worker.
//
// # Steps
//
//	create id        socket(2)
//	bind addr        bind(2) to the next address of Config.Bind, or to the wildcard, with
//	                 IP_BIND_ADDRESS_NO_PORT: the port is chosen by connect, so it need be free
//	                 only towards one peer
//	listen           socket, bind to the advertised address, listen; backlog 0 is net.core.somaxconn
//	resolve addr     the published address is checked and prepared for the kernel, once per
//	                 distinct peer and worker; addresses are numeric, no name is looked up
//	resolve route    RTM_GETROUTE over rtnetlink, once per distinct peer and worker
//	create qp        TCP_NODELAY, into the epoll set
//	connect          connect(2) called → the kernel takes the hello (the path has answered)
//	establish        hello about to be written → answer read; begins where connect ends
//	full connect     connect(2) called, or due → answer read
//	accept           accept4(2) returned → answer written
//	first round trip 16-byte ping about to be written → echo read
//	probe answer     ping read → echo written
//	disconnect       shutdown(SHUT_WR) called → the target's FIN read
//	peer disconnect  the initiator's FIN read → own shutdown returned
//	destroy qp       out of the epoll set
//	destroy id       close(2)
//
// Connections that share a peer with an earlier one of their worker report
// both resolve steps with Begin and End 0: nothing was done for them, so these
// steps count peers, not connections.
//
// # System calls per connection from connect to answer
//
// Initiator: connect, write, read, and its share of epoll_wait. To another
// host the hello waits for EPOLLOUT, which adds an event but no call. Target:
// accept4, read, write, epoll_ctl, and its share of epoll_wait; if the hello
// is not there yet when the request is taken, one more read.
//
// A connection costs its process a slot of 112 bytes beside the kernel's
// socket; the kernel holds about 7.3 kB a connection, both ends of it and
// their places in the epoll sets together (Linux 6.18, slab).
//
// # Several workers
//
// All workers of an endpoint watch the one listener with EPOLLEXCLUSIVE. In a
// storm of 8,000 connections four workers took 2,500, 1,900, 1,700 and 1,900
// of them; without it 700, 1,000, 1,800 and 4,500, at the same rate.
// Each takes at most 8 requests between two looks at its other sockets.
//
// # Close order and ports
//
// The initiator closes first (shutdown), the target answers with its own
// shutdown once it has read the end, and both close(2) in destroy. TIME_WAIT
// therefore stays at the initiator: the listener's port is never held, and a
// target can serve any number of initiators. An initiator has one port per
// connection towards one listener, 28,232 with the default
// net.ipv4.ip_local_port_range, and a port is used again after 60 s, or on
// loopback after 1 s (net.ipv4.tcp_tw_reuse = 2, the default; 1 does the same
// for other peers). More than that in a minute needs a wider range, more
// addresses in Config.Bind, or both; running out is counted as "no ports".
// Before ports run out they become slow: connect(2) tries the even half of the
// range first and walks over every port in TIME_WAIT. Rounds of 8,000
// connections to one listener that follow each other within a second drop from
// 40,000 to 10,000 connections/s that way, in C as well; it shows in the
// connect step.
//
// Nothing here sets SO_LINGER, so no close discards what was written.
//
// # Strangers
//
// An accepted socket becomes a connection only with a complete hello. One that
// says something else is closed at its first wrong byte; one that says nothing
// is closed after 10 s, or earlier if more than 256 wait: whoever has been silent
// for longest goes first. They are counted in Counters.Foreign and disturb nobody
// else.
//
// A complete hello that may be forged has a place among the reserved ones only
// until the caller has answered. While all places are taken and one of them by a
// request without an answer, others wait for it; they are told that there is no
// room only when all places are those of accepted connections.
package tcp
