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
	Watched   bool // somebody watches this very process: it says who prints the table
	Verbose   int
	Version   string
	Args      []string // command line, for the document
	Stdout    io.Writer
	Stderr    io.Writer
	StderrTTY bool // progress may use cursor movement
	// Widths of the terminals that standard output and error are, 0 if they are none or it is not known.
	Columns, StderrColumns int
	Color                  bool            // of the table
	Limits                 []collect.Limit // of this process, for the document
	CPUs                   int             // that spinners may use
	// Shared says that other jobs run in this OS process (tests): counts of the whole process mean nothing.
	Shared bool
	// SchedStat says how the threads of the process spent their time; nil: as the kernel does, unless Shared.
	SchedStat SchedStat
	// Arrange takes from the sealed table what the spec leaves open; may be nil. It depends on nothing but the table,
	// so that every process finds the same.
	Arrange func(t *rank.Table) (Arrangement, error)
	// Threads are the workers per rank of this process, where they may differ from process to process; 0: those of Spec.
	Threads int
	// Options of the provider, see transport.Config.
	Options map[string]string
	// Witness is told what this process does, in place of the table at the end; may be nil.
	Witness Witness
	// Preflight looks at the plan once the table is known and before any data socket is opened; may be nil. Its error
	// ends the job, its warnings are told by the root.
	Preflight func(t rank.Topology, table *rank.Table) (warnings []string, err error)
	// Joined is called once the job is sealed; may be nil.
	Joined func()
}

// Arrangement is what follows from who takes part.
type Arrangement struct {
	Topology rank.Params
	FirstQPN uint32 // the first of the numbers that stand in for those of queue pairs
}

// Witness follows a job at one process, for faces that report in a form of their
// own. With one, no table is printed, and a document is written only if
// Config.Out names it. Its methods are called one after the other and must not block.
type Witness interface {
	// Begins: the work of a slot begins at this process.
	Begins(s phases.Slot)
	// Own are the figures of this process in a slot; complete is false if it was broken off. The summary must not be
	// changed.
	Own(s *collect.Summary, complete bool)
	// Whole, at the root only, are those of all processes that the summary covers.
	Whole(s *collect.Summary)
	// Ends, at the root only, is the finished document, whether it is written or not.
	Ends(d *collect.Document)
}
