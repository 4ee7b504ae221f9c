package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rankstorm/phases"
	"rankstorm/phases/runner"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/transport"
)

// cmtimeName is what usage text and complaints of getopt call the program.
const cmtimeName = "rankstorm cmtime"

func (a *app) cmtimeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cmtime -C ADDRESS (-B INTERFACE | -b ADDRESS) [-L] [options]",
		Short: "Time the steps of connecting, with the options and tables of cmtime",
		Long: `cmtime does what rdma-core's cmtime does, version 59 and later: clients connect
to every server (-L), step by step, and each instance prints its table.

  server$ rankstorm cmtime -B eth0 -C 192.0.2.1 -L
  client$ rankstorm cmtime -B eth0 -C 192.0.2.1

  -B name   local interface, or -b address: its address; one of them, once
  -C host   where the instances meet: the same for all, the host of any of them
  -c n      connections of each client to each server (100)
  -L        be a server
  -m us     play queue pairs: creating and moving one is a sleep of that long
  -n n      threads of this instance (1)
  -P n      instances, clients and servers together (2)
  -p port   of the controller (7471)
  -q n      first of the numbers that stand for queue pairs where there are none (1000)
  -r n      retries of an address or a route that was not resolved (2)
  -S        over sockets
  -t ms     how long an address or a route may take to resolve (2000)

Options are read as getopt does: -Lc10, -c 10; the last one counts; -- ends them.
The instances are started in any order. One of them on the host of -C is the
controller; if there are more than two it prints the tables of all together too.

What cmtime does not have is long, and can be given as an environment variable as
well (--join-timeout: RANKSTORM_JOIN_TIMEOUT). docs/CMTIME.md says what differs.

Exit codes: 0 all passes done, 1 wrong options or a failed job, 2 missing
resources, 3 the instances did not come together, 130, 143 and 129 interrupted.`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := parseCmtime(cmtimeName, args, a.env, a.stderr)
			switch {
			case errors.Is(err, errCmtimeUsage):
				writeCmtimeUsage(a.text, cmtimeName)
				return told{1}
			case errors.Is(err, errCmtimeHelp):
				return cmd.Help()
			case err != nil:
				return withCode{err, 1}
			}
			return a.runCmtime(cmd.Context(), f)
		},
	}
	// For the help text; parseCmtime reads them.
	(&cmtimeLong{}).register(cmd.Flags())
	cmd.Flags().Bool("help", false, "print this")
	return cmd
}

// told ends the program with a code; the user has read why.
type told struct{ code int }

func (t told) Error() string { return "exit code " + strconv.Itoa(t.code) }

// withCode gives an error another exit code than its kind has.
type withCode struct {
	error
	code int
}

func (w withCode) Unwrap() error { return w.error }

// errRoles is an arrangement without clients or without servers.
var errRoles = errors.New("roles")

// Keys of what an instance says of itself in its record.
const (
	ownRole    = "role" // "client" or "server"
	ownThreads = "threads"
	ownQPN     = "base_qpn"
)

// cmtimePlan is what all instances agree on: the passes of the face as rounds of
// one job, without a word of data.
func cmtimePlan(f *cmtimeFlags) phases.Spec {
	s := phases.DefaultSpec()
	s.Procs, s.Connections, s.Transport = f.peers, f.connections, f.transport
	s.Topology = rank.Params{Name: "m2n"}
	s.JoinTimeout, s.PhaseTimeout, s.LivenessTimeout = f.joinTimeout, f.phaseTimeout, f.livenessTimeout
	s.NoProbe, s.FromCreate = true, true
	delay := time.Duration(f.mimic) * time.Microsecond
	s.Passes = []phases.Pass{{Connections: 1}, {NoQPs: f.mimicked, Delay: delay}}
	if f.sockets {
		s.Passes = []phases.Pass{{}}
	}
	if f.noQPPass {
		s.Passes = append(s.Passes, phases.Pass{NoQPs: true})
	}
	s.Rounds = len(s.Passes)
	mimic := notGiven
	if f.mimicked {
		mimic = strconv.Itoa(f.mimic)
	}
	lastPass := "default"
	if f.noQPPass != f.endsWithoutQPs() {
		lastPass = strconv.FormatBool(f.noQPPass)
	}
	s.Face = []rank.KV{
		{Key: "-S", Value: map[bool]string{true: "given", false: notGiven}[f.sockets]},
		{Key: "-c", Value: strconv.Itoa(f.connections)},
		{Key: "-m", Value: mimic},
		{Key: "--no-qp-pass", Value: lastPass},
	}
	return s
}

// notGiven is the value of an option that was left out.
const notGiven = "not given"

// runCmtime is one instance.
func (a *app) runCmtime(ctx context.Context, f *cmtimeFlags) error {
	links, err := localLinks()
	if err != nil {
		return err
	}
	bind, err := a.cmtimeAddress(ctx, f, links)
	if err != nil {
		return withCode{err, 1}
	}
	if _, err := netip.ParseAddr(strings.Trim(f.controller, "[]")); err != nil && strings.Contains(f.controller, ":") {
		return withCode{usagef("cmtime: -C %s: name a host or an address here, and the port with -p", f.controller), 1}
	}
	for _, word := range f.operands {
		fmt.Fprintf(a.stderr, "rankstorm: cmtime: %q is no option and means nothing here\n", word)
	}
	if f.resolving && f.transport != "rdma" {
		fmt.Fprintf(a.stderr, "rankstorm: cmtime: -r and -t mean nothing over %s: addresses and routes are looked up on this host\n", f.transport)
	}
	if f.qpn != cmtimeQPN && f.transport != "rdma" {
		fmt.Fprintf(a.stderr, "rankstorm: cmtime: -q means nothing over %s: there are no queue pairs to number\n", f.transport)
	}
	spec := cmtimePlan(f)
	if err := spec.Validate(); err != nil {
		return withCode{inCommand("cmtime", err), 1}
	}
	secret, err := a.secret("cmtime", f.secretFile, nil)
	if err != nil {
		return withCode{err, 1}
	}
	spec.Secret = len(secret) > 0
	ctx, stop := withSignals(ctx, nil, a.stderr)
	defer stop()
	cfg, err := a.cmtimeConfig(f, spec, bind, secret)
	if err != nil {
		return err
	}
	if err := probeInstance(cfg); err != nil {
		return err
	}
	err = runner.Run(ctx, cfg)
	if errors.Is(err, errRoles) {
		return withCode{err, 1}
	}
	return err
}

// probeInstance asks the provider about the address of this instance before
// anything is joined: what this host lacks is said at once and not when the
// others have come, and it is exit code 2.
func probeInstance(cfg runner.Config) error {
	err := cfg.Provider.Probe(transport.Config{
		Clock: cfg.Clock, Name: "probe", Bind: cfg.Bind, Advertise: cfg.Bind[0], Workers: cfg.Threads, Options: cfg.Options,
	})
	switch {
	case err == nil:
		return nil
	case cfg.Provider.Name() == overRDMA:
		return rank.Errorf(rank.KindResource, "cmtime: %w; --transport tcp runs it without RDMA", err)
	default:
		return rank.Errorf(rank.KindResource, "cmtime: %w", err)
	}
}

// cmtimeConfig is one instance as the runner needs it.
func (a *app) cmtimeConfig(f *cmtimeFlags, spec phases.Spec, bind string, secret []byte) (runner.Config, error) {
	record, err := cmtimeRecord(f, bind)
	if err != nil {
		return runner.Config{}, err
	}
	report := &cmtimeReport{
		out: a.text, flags: f, nonce: record.Nonce,
		say: func(format string, args ...any) { fmt.Fprintf(a.stderr, "rankstorm: "+format+"\n", args...) },
	}
	job := &prepared{command: "cmtime", spec: spec, provider: providers[f.transport](), limits: readLimits()}
	job.spec.Threads = f.threads
	report.verbs = job.provider.Steps().Has(transport.StepRTR)
	cfg := runner.Config{
		Spec: spec,
		Rendezvous: rendezvous.Config{
			// Instances may spell the controller differently: where they meet is the port there.
			Controller: f.controller, Port: f.port, JobKey: "cmtime " + strconv.Itoa(f.port), Secret: secret, Record: record, Lead: true,
		},
		Provider: job.provider, Clock: transport.NewClock(), Bind: []string{bind}, Threads: f.threads,
		Out: f.out, Quiet: f.quiet, Version: version, Args: a.args, Stdout: a.stdout, Stderr: a.stderr,
		CPUs: runtime.NumCPU(), Limits: job.limits.list(),
		Arrange: report.arrange, Witness: report,
		Preflight: func(t rank.Topology, table *rank.Table) ([]string, error) { return preflightSealed(job, t, table) },
	}
	if f.transport == "rdma" {
		cfg.Options = map[string]string{
			transport.OptionResolveTimeout: strconv.Itoa(f.timeoutMS),
			transport.OptionResolveRetries: strconv.Itoa(f.retries),
		}
	}
	a.terminal(&cfg)
	return cfg, nil
}

// cmtimeAddress is the local address of -B or -b. That of an interface is told,
// as cmtime does.
func (a *app) cmtimeAddress(ctx context.Context, f *cmtimeFlags, links []link) (string, error) {
	if f.iface != "" {
		at := slices.IndexFunc(links, func(l link) bool { return l.name == f.iface })
		if at < 0 {
			return "", usagef("cmtime: -B %s: no such interface on this host: there are %s", f.iface, linkNames(links))
		}
		addr, ok := preferred(links[at].addrs, false)
		if !ok {
			return "", usagef("cmtime: -B %s: this interface has no address: give it one (ip addr add ADDRESS/PREFIX dev %s) or choose another of %s", f.iface, f.iface, linkNames(links))
		}
		fmt.Fprintf(a.text, "Picking source address %s for interface %s\n", addr.WithZone(""), f.iface)
		return addr.String(), nil
	}
	found := []netip.Addr{}
	if addr, err := netip.ParseAddr(strings.Trim(f.bind, "[]")); err == nil {
		found = append(found, addr.Unmap())
	} else {
		ctx, cancel := context.WithTimeout(ctx, f.joinTimeout)
		defer cancel()
		if found, err = net.DefaultResolver.LookupNetIP(ctx, "ip", f.bind); err != nil {
			return "", usagef("cmtime: -b %s is neither an address nor a name that resolves here: there are %s", f.bind, linkAddresses(links))
		}
	}
	if c, err := netip.ParseAddr(strings.Trim(f.controller, "[]")); err == nil { // a name may have addresses of both families
		slices.SortStableFunc(found, func(x, y netip.Addr) int {
			return btoi(x.Unmap().Is4() != c.Unmap().Is4()) - btoi(y.Unmap().Is4() != c.Unmap().Is4())
		})
	}
	for _, addr := range found {
		if local, ok := findLocal(addr.Unmap(), links); ok {
			return local.String(), nil
		}
	}
	return "", usagef("cmtime: -b %s is not an address of this host: there are %s", f.bind, linkAddresses(links))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// cmtimeRecord is what this instance tells the others about itself.
func cmtimeRecord(f *cmtimeFlags, bind string) (rank.Record, error) {
	record := rendezvous.ThisProcess()
	if f.host != "" {
		if wrong := rendezvous.CheckHost(f.host); wrong != "" {
			return record, withCode{usagef("cmtime: --host: %s", wrong), 1}
		}
		record.Host = f.host
	}
	if record.Host == "" {
		return record, rank.Errorf(rank.KindResource, "cmtime: this host has no name: give it one with --host")
	}
	if _, err := io.ReadFull(rand.Reader, record.Nonce[:]); err != nil {
		return record, rank.Errorf(rank.KindResource, "cmtime: no random numbers: %w", err)
	}
	from, role := "-b", "client"
	if f.iface != "" {
		from = "-B"
	}
	if f.listener {
		role = "server"
	}
	record.Own = []rank.KV{
		{Key: runner.OwnBind, Value: bind},
		{Key: runner.OwnBindFrom, Value: from},
		{Key: ownRole, Value: role},
		{Key: ownThreads, Value: strconv.Itoa(f.threads)},
		{Key: ownQPN, Value: strconv.Itoa(f.qpn)},
	}
	return record, nil
}
