package transport

// Step is one timed action on one connection (or, for StepListen and
// StepRegister, on one endpoint).
type Step uint8

// The steps in the order in which a connection meets them. A provider that
// does not have a step leaves it out of Provider.Steps; reports then show "–".
const (
	StepCreateID Step = iota
	StepBindAddr
	StepListen
	StepResolveAddr
	StepResolveRoute
	StepRegister
	StepCreateQP
	StepInitQPAttr
	StepInitQP
	StepConnect // connect called → the path answers
	StepRTRAttr // fetch attributes for ready-to-receive
	StepRTR     // move to ready-to-receive
	StepRTSAttr
	StepRTS
	StepEstablish   // hello written → the target's answer read
	StepFullConnect // connect called (paced: due moment) → answer read
	StepAccept      // target: request taken → answer written
	StepAcceptCreateQP
	StepAcceptInitQPAttr
	StepAcceptInitQP
	StepAcceptRTRAttr
	StepAcceptRTR
	StepAcceptRTSAttr
	StepAcceptRTS
	StepProbe          // first round trip
	StepProbeAnswer    // target: probe read → answer written
	StepDisconnect     // close begun → the peer's side seen closed
	StepPeerDisconnect // target: peer's close seen → own side closed
	StepDestroyQP
	StepDestroyID
	StepCount // number of steps
)

var stepNames = [StepCount]string{
	"create id", "bind addr", "listen", "resolve addr", "resolve route", "register region",
	"create qp", "init qp attr", "init qp", "connect", "rtr qp attr", "rtr qp", "rts qp attr", "rts qp",
	"establish", "full connect", "accept", "accept create qp", "accept init qp attr", "accept init qp",
	"accept rtr qp attr", "accept rtr qp", "accept rts qp attr", "accept rts qp",
	"first round trip", "probe answer", "disconnect", "peer disconnect", "destroy qp", "destroy id",
}

// String is the step's name in tables and documents.
func (s Step) String() string {
	if s < StepCount {
		return stepNames[s]
	}
	return "unknown step"
}

// TargetSide says that the step's figures are measured by the target.
func (s Step) TargetSide() bool {
	switch s {
	case StepAccept, StepAcceptCreateQP, StepAcceptInitQPAttr, StepAcceptInitQP, StepAcceptRTRAttr, StepAcceptRTR,
		StepAcceptRTSAttr, StepAcceptRTS, StepProbeAnswer, StepPeerDisconnect:
		return true
	}
	return false
}

// StepSet is a set of steps.
type StepSet uint64

// Steps makes a set.
func Steps(steps ...Step) StepSet {
	var s StepSet
	for _, st := range steps {
		s |= 1 << st
	}
	return s
}

// Has reports membership.
func (s StepSet) Has(st Step) bool { return s&(1<<st) != 0 }
