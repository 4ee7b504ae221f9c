package phases

import (
	"slices"
	"strings"

	"rankstorm/transport"
)

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
	Empty    bool             // nothing fills it yet: no job enters it, and nothing can be asked of it
}

// Catalogue lists all phases in the order in which a job meets them. The
// result belongs to the caller.
func Catalogue() []Entry {
	steps := func(s ...transport.Step) []transport.Step { return s }
	return []Entry{
		{Token: Gather, Title: "gather the processes"},
		{Token: Seal, Title: "seal the rank table"},
		{Token: ClockSync, Title: "compare the clocks"},
		{
			Token: Create, Title: "create the connections", Lockstep: true, PerConn: true,
			Steps: steps(transport.StepCreateID),
		},
		{
			Token: Bind, Title: "bind local addresses", Lockstep: true, PerConn: true,
			Steps: steps(transport.StepBindAddr),
		},
		{
			Token: Listen, Title: "listen", Lockstep: true, Once: true,
			Steps: steps(transport.StepListen),
		},
		{Token: Publish, Title: "publish endpoint addresses", Lockstep: true, Once: true, Exchange: true},
		{
			Token: Resolve, Title: "resolve addresses and routes", Lockstep: true, PerConn: true,
			Steps: steps(transport.StepResolveAddr, transport.StepResolveRoute),
		},
		{
			Token: Register, Title: "register memory", Lockstep: true, Empty: true,
			Steps: steps(transport.StepRegister),
		},
		{
			Token: QP, Title: "create queue pairs", Lockstep: true, PerConn: true,
			Steps: steps(transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP),
		},
		{
			Token: Connect, Title: "connect", Lockstep: true, PerConn: true, Staged: true,
			Steps: steps(transport.StepConnect, transport.StepRTRAttr, transport.StepRTR,
				transport.StepRTSAttr, transport.StepRTS, transport.StepEstablish, transport.StepFullConnect,
				transport.StepAccept, transport.StepAcceptCreateQP, transport.StepAcceptInitQPAttr, transport.StepAcceptInitQP,
				transport.StepAcceptRTRAttr, transport.StepAcceptRTR, transport.StepAcceptRTSAttr, transport.StepAcceptRTS),
		},
		{
			Token: Probe, Title: "first round trip", Lockstep: true, PerConn: true,
			Steps: steps(transport.StepProbe, transport.StepProbeAnswer),
		},
		{Token: Transfer, Title: "transfer data", Lockstep: true, PerConn: true, Empty: true},
		{
			Token: Disconnect, Title: "disconnect", Lockstep: true, PerConn: true,
			Steps: steps(transport.StepDisconnect, transport.StepPeerDisconnect),
		},
		{
			Token: Destroy, Title: "destroy the connections", Lockstep: true, PerConn: true,
			Steps: steps(transport.StepDestroyQP, transport.StepDestroyID),
		},
	}
}

// Lookup finds the entry of a token.
func Lookup(t Token) (Entry, bool) {
	all := Catalogue()
	if i := slices.IndexFunc(all, func(e Entry) bool { return e.Token == t }); i >= 0 {
		return all[i], true
	}
	return Entry{}, false
}

// Enters says whether jobs go through a phase.
func Enters(t Token) bool {
	e, ok := Lookup(t)
	return ok && !e.Empty
}

// enteredNames are the phases that jobs go through.
func enteredNames() string { return namesOf(func(e Entry) bool { return !e.Empty }) }

// lockstepNames are those of them that all ranks enter together.
func lockstepNames() string { return namesOf(func(e Entry) bool { return e.Lockstep && !e.Empty }) }

func namesOf(wanted func(Entry) bool) string {
	var names []string
	for _, e := range Catalogue() {
		if wanted(e) {
			names = append(names, string(e.Token))
		}
	}
	return strings.Join(names, " ")
}
