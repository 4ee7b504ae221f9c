// Package cmtime prints what a job measured in the form of cmtime, rdma-core's
// connection timer, version 59 and later: its lines, its table, its formulas. It
// is pure; docs/CMTIME.md says what is the same and what differs.
package cmtime

import "fmt"

// Role of an instance.
type Role uint8

// The roles: clients connect to every server.
const (
	Client Role = iota
	Server
)

// String is the name of the role in lines: "Client" or "Server".
func (r Role) String() string {
	if r == Server {
		return "Server"
	}
	return "Client"
}

// Kind of a pass.
type Kind uint8

// The passes: a warm-up of one connection to each server, with queue pairs, with
// played ones (-m), without any, and over sockets (-S).
const (
	WarmUp Kind = iota
	QPs
	Simulated
	NoQPs
	Sockets
)

// Title is the line that a pass begins with. conns are the instance's
// connections, delayUS how long a played queue pair step sleeps.
func Title(r Role, k Kind, conns int64, delayUS int64) string {
	verb := "Connect"
	if r == Server {
		verb = "Accept"
	}
	switch k {
	case WarmUp:
		return r.String() + " warmup"
	case Simulated:
		return fmt.Sprintf("%s (%d) simulated QPs test (delay %d us)", verb, conns, delayUS)
	case NoQPs:
		return fmt.Sprintf("%s (%d) test - no QPs", verb, conns)
	case Sockets:
		return r.String() + " baseline socket setup"
	}
	return fmt.Sprintf("%s (%d) QPs test", verb, conns)
}

// AllTitle is the line before the table of all instances of a role together.
func AllTitle(r Role, k Kind, instances int, conns, delayUS int64) string {
	of := Title(r, k, conns, delayUS)
	if k == Sockets {
		of = fmt.Sprintf("%d sockets", conns)
	}
	noun := "clients"
	if r == Server {
		noun = "servers"
	}
	return fmt.Sprintf("All %s (%d): %s", noun, instances, of)
}

// Results is the line before the table of a pass, "" if there is none.
func Results(r Role, k Kind) string {
	if k == Sockets {
		return r.String() + " baseline socket results:"
	}
	return ""
}

// Lines are printed when a pass comes to a phase, by its token. verbs says that
// there are verbs resources to allocate in this pass.
func Lines(r Role, k Kind, phase string, verbs bool) []string {
	if k == Sockets {
		return socketLines(r, phase)
	}
	var lines []string
	if r == Server {
		switch phase {
		case "connect":
			lines = append(lines, "\tAccepting")
			if verbs {
				lines = append(lines, "\tAllocating verbs resources")
			}
		case "disconnect":
			lines = append(lines, "\tDisconnecting")
		}
		return lines
	}
	switch phase {
	case "create":
		lines = append(lines, "\tCreating IDs")
	case "bind":
		lines = append(lines, "\tBinding addresses")
	case "resolve":
		lines = append(lines, "\tResolving addresses", "\tResolving routes")
	case "qp":
		lines = append(lines, "\tCreating QPs")
		if verbs {
			lines = append(lines, "\tAllocating verbs resources")
		}
		lines = append(lines, "\tModify QPs to INIT")
	case "connect":
		lines = append(lines, "\tConnecting")
	case "disconnect":
		lines = append(lines, "\tDisconnecting")
	case "destroy":
		lines = append(lines, "\tDestroying QPs", "\tDestroying IDs")
	}
	return lines
}

func socketLines(r Role, phase string) []string {
	switch {
	case phase == "create" && r == Client:
		return []string{"Creating sockets"}
	case phase == "connect" && r == Client:
		return []string{"Connecting sockets"}
	case phase == "connect":
		return []string{"Accept sockets"}
	case phase == "destroy":
		return []string{"Closing sockets"}
	}
	return nil
}
