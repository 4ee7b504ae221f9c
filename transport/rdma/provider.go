package rdma

import (
	"sync/atomic"

	"rankstorm/transport"
)

// steps that are really carried out; see the package comment for each.
var steps = transport.Steps(
	transport.StepCreateID, transport.StepBindAddr, transport.StepListen, transport.StepResolveAddr, transport.StepResolveRoute,
	transport.StepCreateQP, transport.StepInitQPAttr, transport.StepInitQP,
	transport.StepConnect, transport.StepRTRAttr, transport.StepRTR, transport.StepRTSAttr, transport.StepRTS,
	transport.StepEstablish, transport.StepFullConnect,
	transport.StepAccept, transport.StepAcceptCreateQP, transport.StepAcceptInitQPAttr, transport.StepAcceptInitQP,
	transport.StepAcceptRTRAttr, transport.StepAcceptRTR, transport.StepAcceptRTSAttr, transport.StepAcceptRTS,
	transport.StepProbe, transport.StepProbeAnswer, transport.StepDisconnect, transport.StepPeerDisconnect,
	transport.StepDestroyQP, transport.StepDestroyID,
)

type provider struct{}

// New is the RDMA provider. Its endpoints are transport.Mimickers.
func New() transport.Provider { return provider{} }

func (provider) Name() string             { return name }
func (provider) Steps() transport.StepSet { return steps }

// contextFDs are what librdmacm and libibverbs keep open for each device that
// was used, for the life of the process.
const contextFDs = 3

// FDs: connections have none. An endpoint has the listener's event channel, and
// per worker an epoll set, an eventfd, an event channel and, for one device,
// a completion channel; the libraries hold the device's context.
func (provider) FDs(workers int) (out, in, endpoint int) { return 0, 0, 1 + contextFDs + 4*workers }

// Probe says whether RDMA can be used here with these addresses and options.
func (provider) Probe(cfg transport.Config) error {
	s, err := parseConfig(cfg)
	if err != nil {
		return err
	}
	if err := usableOnce(); err != nil {
		return err
	}
	return s.check()
}

// found is set once RDMA was found usable: a process asks for each of its ranks.
var found atomic.Bool

func usableOnce() error {
	if found.Load() {
		return nil
	}
	err := Usable()
	found.Store(err == nil)
	return err
}

// Open makes the endpoint of one rank with its workers; it does not listen yet.
func (provider) Open(cfg transport.Config) (transport.Endpoint, error) {
	s, err := parseConfig(cfg)
	if err != nil {
		return nil, err
	}
	return open(s, cfg)
}
