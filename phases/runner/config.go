package runner

import (
	"io"

	"rankstorm/phases"
	"rankstorm/rendezvous"
	"rankstorm/transport"
)

// Config of one process of a job.
type Config struct {
	Spec       phases.Spec
	Rendezvous rendezvous.Config // Procs, K, Settings, timeouts and arity are filled in from Spec
	Provider   transport.Provider
	Clock      transport.Clock
	Bind       []string // local data addresses, in turn over the local ranks; empty: the address of the control link
	Out        string   // result document: file, "-" for stdout instead of the table, "" for the default name
	Quiet      bool
	Verbose    int
	Version    string
	Args       []string // command line, for the document
	Stdout     io.Writer
	Stderr     io.Writer
	StderrTTY  bool // progress may use cursor movement
	Columns    int  // width of the terminal, 0 unknown
	CPUs       int  // that spinners may use
}
