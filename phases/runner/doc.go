// Package runner carries a job out for one process: it joins the group, opens
// one endpoint per local rank, lets the pure machines of phases decide, and
// does what they say. Everything that knows both the control plane and the
// data plane is here, and nothing else.
//
// Threads. One driver goroutine owns the machines, the group and the display.
// One worker goroutine per rank and thread owns one transport.Worker; it gets
// commands over a channel of one and answers on a channel the driver reads.
// Nothing else is shared but two atomics per worker: stop and completed.
package runner
