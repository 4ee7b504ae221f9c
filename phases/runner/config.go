package runner

import (
	"io"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/transport"
)

// Config of one process of a job.
type Config struct {
	Spec       phases.Spec
	Rendezvous rendezvous.Config // Procs, K, Settings, timeouts and arity are filled in from Spec
	Provider   transport.Provider
	Clock      transport.Clock
	// Bind are local data addresses, in turn over the ranks of the host; {local_rank} in one stands for the rank's
	// place on its host. Empty: the address of the control link.
	Bind      []string
	Out       string // result document: file, "-" for stdout instead of the table, "" for the default name
	Quiet     bool
	Verbose   int
	Version   string
	Args      []string // command line, for the document
	Stdout    io.Writer
	Stderr    io.Writer
	StderrTTY bool            // progress may use cursor movement
	Columns   int             // width of the terminal, 0 unknown
	Color     bool            // of the table
	Limits    []collect.Limit // of this process, for the document
	CPUs      int             // that spinners may use
	// Shared says that other jobs run in this OS process (tests): counts of the whole process mean nothing.
	Shared bool
	// Preflight looks at the plan once the table is known and before any data socket is opened; may be nil. Its error
	// ends the job, its warnings are told by the root.
	Preflight func(t rank.Topology, view rank.View) (warnings []string, err error)
	// Joined is called once the job is sealed; may be nil.
	Joined func()
}
