package tcp

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rankstorm/transport"
)

const name = "tcp"

// steps that are really carried out; see the package comment for each.
var steps = transport.Steps(
	transport.StepCreateID, transport.StepBindAddr, transport.StepListen,
	transport.StepResolveAddr, transport.StepResolveRoute, transport.StepCreateQP,
	transport.StepConnect, transport.StepEstablish, transport.StepFullConnect,
	transport.StepAccept, transport.StepProbe, transport.StepProbeAnswer,
	transport.StepDisconnect, transport.StepPeerDisconnect,
	transport.StepDestroyQP, transport.StepDestroyID,
)

type provider struct{ table descriptorTable }

// New is the TCP provider. Make one per process: its endpoints share the
// account of how large the process's descriptor table has to be.
func New() transport.Provider { return &provider{} }

func (*provider) Name() string             { return name }
func (*provider) Steps() transport.StepSet { return steps }

// FDs: a socket a connection on either side; an endpoint has its listener and
// per worker an epoll set, an eventfd and a route socket.
func (*provider) FDs(workers int) (out, in, endpoint int) { return 1, 1, 1 + 3*workers }

// Probe checks the configuration and that the local addresses are this
// machine's, by binding to them.
func (p *provider) Probe(cfg transport.Config) error {
	s, err := parseConfig(cfg)
	if err != nil {
		return err
	}
	// A refusal that names the address is worth more than the first failing phase.
	for _, a := range append(slices.Clone(s.local), s.adv) {
		fd, err := unix.Socket(a.domain(), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return opError("socket", nil, nil, err)
		}
		a.setPort(0)
		// No port is asked for: all may be taken, or in TIME_WAIT, and the address be right.
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			unix.Close(fd)
			return opError("setsockopt", nil, nil, err)
		}
		err = unix.Bind(fd, a.sockaddr())
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%w: not an address of this machine? `ip addr` lists them", opError("bind", &a, nil, err))
		}
	}
	return nil
}

// Open makes the endpoint of one rank with its workers; it does not listen yet.
func (p *provider) Open(cfg transport.Config) (transport.Endpoint, error) {
	s, err := parseConfig(cfg)
	if err != nil {
		return nil, err
	}
	e := &endpoint{settings: s, clock: cfg.Clock, busy: int64(cfg.Busy), park: cfg.Park, table: &p.table}
	e.listener.Store(-1)
	for i := range cfg.Workers {
		w, err := newWorker(e, i, cfg.Workers)
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.workers = append(e.workers, w)
	}
	return e, nil
}

// settings are a checked Config.
type settings struct {
	local     []addr // to bind to, in turn over the connections of all workers
	adv       addr
	portRange uint32 // IP_LOCAL_PORT_RANGE: highest << 16 | lowest, 0: the system's
}

// own is the address that says on which interface this rank is.
func (s *settings) own() *addr {
	if s.local[0].ip.IsUnspecified() {
		return &s.adv
	}
	return &s.local[0]
}

func parseConfig(cfg transport.Config) (settings, error) {
	bad := func(format string, args ...any) (settings, error) {
		return settings{}, fmt.Errorf("tcp: "+format, args...)
	}
	switch {
	case cfg.Clock == nil:
		return bad("Config.Clock is missing")
	case cfg.Workers < 1:
		return bad("%d workers: at least 1 is needed", cfg.Workers)
	case cfg.Device != "":
		return bad("no devices here (%q given): bind to an address of the interface instead", cfg.Device)
	}
	var s settings
	var err error
	for k, v := range cfg.Options {
		if k != OptionPortRange {
			return bad("unknown option %q, known is %s", k, OptionPortRange)
		}
		if s.portRange, err = parsePortRange(v); err != nil {
			return bad("%w", err)
		}
	}
	if s.adv, err = parseAddr(cfg.Advertise); err != nil {
		return bad("advertised address %q %w", cfg.Advertise, err)
	}
	if s.adv.ip.IsUnspecified() {
		return bad("advertised address %s: peers cannot reach a wildcard, give an address of this machine", cfg.Advertise)
	}
	for _, b := range cfg.Bind {
		a, err := parseAddr(b)
		if err != nil {
			return bad("bind address %q %w", b, err)
		}
		if a.ip.Is4() != s.adv.ip.Is4() {
			return bad("bind address %s and advertised address %s are of different families: use IPv4 for both or IPv6 for both", b, cfg.Advertise)
		}
		if a.port != 0 {
			return bad("bind address %s: connections share it, so it takes no port; %s limits the ports", b, OptionPortRange)
		}
		s.local = append(s.local, a)
	}
	if len(s.local) == 0 {
		s.local = []addr{s.adv.wildcard()}
	}
	return s, nil
}

// OptionPortRange is the key in Config.Options that limits the local ports of
// initiated connections, "LOW-HIGH", within net.ipv4.ip_local_port_range
// (Linux 6.3 and later).
const OptionPortRange = "port_range"

func parsePortRange(v string) (uint32, error) {
	lo, hi, ok := strings.Cut(v, "-")
	l, err1 := strconv.ParseUint(lo, 10, 16)
	h, err2 := strconv.ParseUint(hi, 10, 16)
	if !ok || err1 != nil || err2 != nil || l == 0 || l > h {
		return 0, fmt.Errorf("%s %q: give LOW-HIGH, for instance 40000-49999", OptionPortRange, v)
	}
	return uint32(h)<<16 | uint32(l), nil
}
