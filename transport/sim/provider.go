// Package sim is an in-memory transport for whole jobs on a fake clock.
//
// A [Fabric] joins the endpoints of one process by address. It plays the
// network and the kernels: packets take Latency plus a seeded jitter, set-up
// packets are lost or dropped by a full backlog and sent again by a timer, and
// all of that goes on while a rank does not poll. Everything sleeps on
// channels and timers only, so that a testing/synctest bubble can leap over
// the waits; outside a bubble the same code runs in real time.
//
// Two families of steps can be played. [StepsTCP] answers a connect from the
// listener's kernel and sends the hello afterwards. [StepsRDMA] resolves
// asynchronously, carries the hello in the request, and lets both sides drive
// their queue pairs by hand between request and answer, as RDMA CM does.
//
// One mutex per fabric guards everything; no method holds it while it sleeps.
// A worker is a serial machine: the steps it takes cost worker time
// (FabricConfig.Costs) and what arrives meanwhile waits.
package sim

import (
	"fmt"
	"slices"
	"strings"

	"rankstorm/transport"
)

// StepsTCP are the steps of a stream socket: synchronous set-up, no queue pair
// transitions.
var StepsTCP = transport.Steps(
	transport.StepCreateID, transport.StepBindAddr, transport.StepListen,
	transport.StepResolveAddr, transport.StepResolveRoute, transport.StepCreateQP,
	transport.StepConnect, transport.StepEstablish, transport.StepFullConnect, transport.StepAccept,
	transport.StepProbe, transport.StepProbeAnswer,
	transport.StepDisconnect, transport.StepPeerDisconnect,
	transport.StepDestroyQP, transport.StepDestroyID,
)

// StepsRDMA are the steps of RDMA CM with queue pairs driven by hand.
var StepsRDMA = StepsTCP | transport.Steps(
	transport.StepInitQPAttr, transport.StepInitQP,
	transport.StepRTRAttr, transport.StepRTR, transport.StepRTSAttr, transport.StepRTS,
	transport.StepAcceptCreateQP, transport.StepAcceptInitQPAttr, transport.StepAcceptInitQP,
	transport.StepAcceptRTRAttr, transport.StepAcceptRTR, transport.StepAcceptRTSAttr, transport.StepAcceptRTS,
)

type provider struct{ f *Fabric }

// New makes the provider whose endpoints live on f.
func New(f *Fabric) transport.Provider { return provider{f} }

func (provider) Name() string               { return "sim" }
func (p provider) Steps() transport.StepSet { return p.f.cfg.Steps }

// FDs is zero throughout: a simulated endpoint holds no descriptor.
func (provider) FDs(int) (out, in, endpoint int) { return 0, 0, 0 }

// Probe checks the configuration; the simulation itself runs everywhere.
// Config.Busy is accepted and taken as 0, because a fake clock stands still
// while somebody spins.
func (provider) Probe(c transport.Config) error {
	fault := ""
	switch {
	case c.Clock == nil:
		fault = "no clock given, set Config.Clock"
	case c.Workers < 1:
		fault = fmt.Sprintf("%d workers, at least 1 is needed", c.Workers)
	case c.Device != "":
		fault = fmt.Sprintf("device %q: the simulation has no devices, leave it out", c.Device)
	case strings.Contains(c.Advertise, "/"):
		fault = fmt.Sprintf("advertised address %q contains a slash", c.Advertise)
	case len(c.Advertise) > 200:
		fault = fmt.Sprintf("advertised address of %d bytes, at most 200 are allowed", len(c.Advertise))
	case len(c.Options) > 0:
		var names []string
		for k := range c.Options {
			names = append(names, k)
		}
		slices.Sort(names)
		fault = fmt.Sprintf("unknown option %s: the simulation takes none", strings.Join(names, ", "))
	}
	if fault == "" {
		return nil
	}
	return &transport.OpError{Op: "probe", Provider: "sim", Cause: transport.CauseOther, Err: fmt.Errorf("%s: %s", orUnnamed(c.Name), fault)}
}

// Open adds an endpoint to the fabric. Inside a bubble it must be called
// inside, because the endpoint's channels are made here.
func (p provider) Open(c transport.Config) (transport.Endpoint, error) {
	if err := p.Probe(c); err != nil {
		return nil, err
	}
	e := &Endpoint{f: p.f, cfg: c}
	e.host = c.Advertise
	if e.host == "" {
		e.host = orUnnamed(c.Name)
	}
	e.ident = hashString(p.f.cfg.Seed, e.host, c.Name)
	for i := range c.Workers {
		e.workers = append(e.workers, newWorker(e, i))
	}
	p.f.mu.Lock()
	p.f.endpoints = append(p.f.endpoints, e)
	p.f.hosts[e.host] = true
	p.f.mu.Unlock()
	return e, nil
}

func orUnnamed(name string) string {
	if name == "" {
		return "unnamed"
	}
	return strings.ReplaceAll(name, "/", "_")
}
