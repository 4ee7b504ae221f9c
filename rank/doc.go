// Package rank is the pure core of a job: the rank table and its order, the
// topologies and the plans they make, the byte ranges of a segment, what a plan
// needs, and the typed error. It reads no clock, opens nothing and has no
// global state; the same input gives the same output on every process, which
// is what lets each process compute the plan of the whole job for itself.
//
// Adding a topology: one file with its kind, its test, and one line in
// topologies.go.
package rank
