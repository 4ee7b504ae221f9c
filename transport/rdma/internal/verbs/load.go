// Package verbs is the only place that speaks C: it opens librdmacm and
// libibverbs at run time, declares the few structures of their stable ABI
// itself, and carries out calls on ranges of connections in one crossing each,
// with the stamps of CLOCK_MONOTONIC taken beside the call.
//
// What C keeps of Go are integers: an identifier's context is the index and
// generation of its connection.
package verbs

import "fmt"

// LoadError says that the RDMA libraries could not be opened.
type LoadError struct {
	File string // "": both are there, but one is too old
	Text string // the loader's words
}

func (e *LoadError) Error() string {
	if !Built {
		return "this build has no RDMA: it was made with CGO_ENABLED=0; build with a C compiler: go build ./cmd/rankstorm"
	}
	if e.File == "" {
		return fmt.Sprintf("the RDMA libraries are too old: %s: rdma-core 23 or later is needed", e.Text)
	}
	return fmt.Sprintf("%s cannot be opened (%s): install rdma-core's libraries (Debian: librdmacm1 ibverbs-providers)", e.File, e.Text)
}
