// Package rendezvous brings the processes of a job together and keeps them
// connected: launcher detection, knock, gossip, the seal of the rank table,
// the control tree and its clock.
package rendezvous
