// Package rendezvous brings the processes of a job together and keeps them
// connected: launcher detection, knock, gossip, the seal of the rank table,
// the control tree and its clock.
//
// The way of a process into its job, as Join walks it:
//
//	own port     TCP and UDP of one number; the first byte of a stream says what it is:
//	             K knock, G gossip, C control link
//	controller   resolve its name again and again. Is the address one of this host's? Whoever
//	             then gets the port is the controller.
//	knock        process → controller: protocol, job, build, P, ranks per process, all job-wide
//	             settings, its record. Answer: welcome, or why not, with both values. The link
//	             stays open until the seal: its end is the death of one of the two.
//	gossip       the welcomed spread their records with memberlist; above 16 processes one agent
//	             per host speaks for the others, which find it at the host's abstract socket.
//	table        when P processes are welcomed and all their records have come by gossip, the
//	             controller makes the rank table and hands it to process 0 over the knock link
//	seal         process 0 pushes the table down a tree; all acknowledge; "sealed" comes down
//	in place     every process says so to the controller, which from then on only refuses
//
// A controller that dies before the table is handed out is replaced: another
// process of its host gets the port, the rest knock again. A process that dies
// by then is forgotten. Any death during the seal ends the job.
//
// Spawn starts the processes of a local job; the first of them inherits the
// controller port, all read their place from a pipe (Inherited), whose end
// tells that the parent is gone.
package rendezvous
