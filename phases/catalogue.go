package phases

import "rankstorm/transport"

// Token names a phase in flags and documents.
type Token string

// The phases, in order.
const (
	Gather     Token = "gather"
	Seal       Token = "seal"
	ClockSync  Token = "clock"
	Create     Token = "create"
	Bind       Token = "bind"
	Listen     Token = "listen"
	Publish    Token = "publish"
	Resolve    Token = "resolve"
	Register   Token = "register"
	QP         Token = "qp"
	Connect    Token = "connect"
	Probe      Token = "probe"
	Transfer   Token = "transfer"
	Disconnect Token = "disconnect"
	Destroy    Token = "destroy"
)

// Entry describes one phase.
type Entry struct {
	Token    Token
	Title    string
	Steps    []transport.Step // in the order they are started and reported
	Lockstep bool             // entered through barrier and go
	PerConn  bool             // its steps are per connection
	Once     bool             // not repeated by --rounds (the listener and its port stay)
	Exchange bool             // Done bodies are gathered and come back with Collect
	Staged   bool             // repeated per stage of the topology
}
