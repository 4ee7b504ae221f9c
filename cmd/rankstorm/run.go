package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"rankstorm/phases"
	"rankstorm/phases/runner"
	"rankstorm/rank"
	"rankstorm/rendezvous"
	"rankstorm/transport"
)

func (a *app) runCommand() *cobra.Command {
	var r runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Be one process of a job, or start all of them on this machine",
		Long: `run makes this process part of a job: it finds the others at the controller,
becomes one rank (or several, --ranks-per-proc), and storms them over the chosen
topology. Rank 0 prints the table.

  rankstorm run --spawn 8 --topology all_to_all -c 16
  rankstorm run -C n0 -P 64 --topology incast -c 100     the same line on every node
  srun -N 64 rankstorm run --topology shift              Slurm says the rest

What a launcher (Slurm, Open MPI, MPICH, Flux, PALS, jsrun, torchrun, Kubernetes)
left in the environment is used where no flag says otherwise; -v prints it.

Every flag can be given as an environment variable as well: RANKSTORM_ and its
long name in capitals with underscores (RANKSTORM_RANKS_PER_PROC=4). Flags win;
an empty variable counts as not set.

With a secret (--secret-file, or its text in RANKSTORM_SECRET, never on the
command line; --spawn makes one by itself) nobody takes part without it, and
what the processes tell each other is encrypted. The connections that are
measured carry a token and are not.

Exit codes: 0 clean, 1 job failed or partial, 2 usage or missing resources,
3 the job did not form, 130, 143 and 129 interrupted.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runJob(cmd.Context(), cmd.Flags(), &r) },
	}
	r.register(cmd.Flags())
	return cmd
}

// runJob checks everything that can be checked, then becomes the parent of a
// spawned job or one process of it.
func (a *app) runJob(ctx context.Context, flags *pflag.FlagSet, r *runFlags) error {
	in, err := rendezvous.Inherited()
	if err != nil {
		return err
	}
	if in != nil {
		defer in.Close()
	} else {
		a.warnMisspelt(flags)
	}
	if err := a.env.apply("run", flags); err != nil {
		return err
	}
	job, err := a.prepare(flags, r, in)
	if err != nil {
		return err
	}
	if r.verbose > 0 && job.spawn == 0 && in == nil {
		fmt.Fprintf(a.stderr, "rankstorm: %s\n", oneLine(launchLine(job.launch)))
	}
	for _, w := range job.warnings {
		// Elsewhere the root says it, once for the job and about the hosts that there are.
		if job.spawn > 0 && !r.quiet {
			fmt.Fprintf(a.stderr, "rankstorm: warning: %s\n", w)
		}
	}
	if job.spawn > 0 {
		return a.spawn(ctx, flags, r, job.secret)
	}
	return a.runProcess(ctx, r, job, in)
}

// prepared is a job whose settings have been checked.
type prepared struct {
	command  string // for messages
	spec     phases.Spec
	launch   rendezvous.Launch
	bind     []string
	bindFrom string // where they came from, if not from -b or -B
	secret   []byte
	provider transport.Provider
	spawn    int // processes to start, 0: be one
	limits   limits
	warnings []string
}

// prepare parses and validates without opening a socket.
func (a *app) prepare(flags *pflag.FlagSet, r *runFlags, in *rendezvous.Inheritance) (*prepared, error) {
	job := &prepared{command: "run"}
	var err error
	switch {
	case r.quiet && r.verbose > 0:
		return nil, usagef("run: -q/--quiet and -v/--verbose contradict each other: leave one of them out")
	case r.host != "" && rendezvous.CheckHost(r.host) != "":
		return nil, usagef("run: --host: %s", rendezvous.CheckHost(r.host))
	case flags.Changed("spawn"):
		if err := r.spawnConflicts(flags.Changed); err != nil {
			return nil, err
		}
		job.spawn = r.spawn
		job.launch = rendezvous.Launch{Procs: r.spawn, Proc: -1}
	case flags.Changed("spawn-hosts"):
		return nil, usagef("run: --spawn-hosts goes with --spawn: elsewhere give each process its name with --host")
	default:
		if job.launch, err = a.findLaunch(r, in); err != nil {
			return nil, err
		}
		if _, err := controllerKey(job.launch.Controller, job.launch.Port); err != nil {
			return nil, err
		}
	}
	if job.spec, err = r.spec(job.launch.Procs, flags.Changed); err != nil {
		return nil, err
	}
	if job.spawn > 0 || job.launch.Proc == 0 { // it writes the document; elsewhere who does is known with the table
		if err := runner.CheckOut(r.out); err != nil {
			return nil, rank.Errorf(rank.KindResource, "run: %w", err)
		}
	}
	if job.secret, err = a.secret("run", r.secretFile, in); err != nil {
		return nil, err
	}
	// A spawned job makes its own if it is given none.
	job.spec.Secret = len(job.secret) > 0 || job.spawn > 0
	links, err := localLinks()
	if err != nil {
		return nil, err
	}
	if job.spawn > 0 && !hasLoopback(links) {
		return nil, rank.Errorf(rank.KindResource, "run: --spawn needs 127.0.0.1, which no interface that is up has: ip link set lo up")
	}
	job.provider = providers[job.spec.Transport]()
	if job.spec.Transport == overRDMA {
		if job.bind, job.bindFrom, err = r.rdmaAddresses(links); err == nil {
			err = r.probeRDMA(job)
		}
	} else {
		job.bind, err = chooseAddresses(r.iface, r.bind, r.ipv6, links)
	}
	if err != nil {
		return nil, err
	}
	job.limits = readLimits()
	job.warnings, err = preflight(job, r.spawnHosts)
	return job, err
}

// findLaunch puts the flags over what a parent or a launcher left.
func (a *app) findLaunch(r *runFlags, in *rendezvous.Inheritance) (rendezvous.Launch, error) {
	if in != nil {
		return r.launch(in.Launch)
	}
	found, err := rendezvous.Detect(a.env.get)
	if err != nil {
		return found, err
	}
	return r.launch(found)
}

// launchLine says how this process knows its place in the job.
func launchLine(l rendezvous.Launch) string {
	var b strings.Builder
	b.WriteString("launcher: ")
	if l.Family == "" {
		b.WriteString("none")
	} else {
		b.WriteString(l.Family)
	}
	if l.Proc >= 0 {
		fmt.Fprintf(&b, ": process %d of %d", l.Proc, l.Procs)
	} else {
		fmt.Fprintf(&b, ": not numbered, -P %d", l.Procs)
	}
	if at, err := controllerKey(l.Controller, l.Port); err == nil {
		fmt.Fprintf(&b, "; controller %s", at)
	}
	if l.ControllerFrom != "" {
		fmt.Fprintf(&b, " (%s)", l.ControllerFrom)
	}
	if l.JobKey != "" {
		fmt.Fprintf(&b, "; job %q", l.JobKey)
	}
	if len(l.Ignored) > 0 {
		fmt.Fprintf(&b, "; not counted: %s", strings.Join(l.Ignored, ", "))
	}
	return b.String()
}

// spawn is the parent of a job on this machine: it hosts no rank.
func (a *app) spawn(ctx context.Context, flags *pflag.FlagSet, r *runFlags, secret []byte) error {
	code, err := rendezvous.Spawn(ctx, rendezvous.SpawnConfig{
		N: r.spawn, Args: childArgs(flags), Typed: a.args, Hosts: r.spawnHosts, Secret: secret,
	})
	if err != nil {
		return err
	}
	if code != 0 {
		return childrenTold(code)
	}
	return nil
}

// childrenTold is the end of a spawned job that its processes have reported.
type childrenTold int

func (c childrenTold) Error() string { return "the job ended with exit code " + strconv.Itoa(int(c)) }

// childArgs is the command line of the children: all that was given by flag or
// variable, except what concerns the parent alone.
func childArgs(flags *pflag.FlagSet) []string {
	args := []string{"run"}
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "spawn" && f.Name != "spawn-hosts" && f.Name != "secret-file" {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// runProcess is one process of a job.
func (a *app) runProcess(ctx context.Context, r *runFlags, job *prepared, in *rendezvous.Inheritance) error {
	record, err := ownRecord(r, job, in)
	if err != nil {
		return err
	}
	l := job.launch
	if l.JobKey == "" {
		if l.JobKey, err = controllerKey(l.Controller, l.Port); err != nil {
			return err
		}
	}
	ctx, stop := withSignals(ctx, in, a.stderr)
	defer stop()
	ctx, joined, release := withParent(ctx, in)
	defer release()

	cfg := runner.Config{
		Spec: job.spec,
		Rendezvous: rendezvous.Config{
			Controller: l.Controller, Port: l.Port, JobKey: l.JobKey, Secret: job.secret, Record: record, Launch: l,
		},
		Provider: job.provider, Clock: transport.NewClock(), Bind: job.bind, Options: job.spec.Options,
		Out: r.out, Quiet: r.quiet, Verbose: r.verbose, Version: version, Args: a.args,
		Stdout: a.stdout, Stderr: a.stderr, CPUs: runtime.NumCPU(), Limits: job.limits.list(), Joined: joined,
	}
	cfg.Preflight = func(t rank.Topology, table *rank.Table) ([]string, error) {
		warnings, err := preflightSealed(job, t, table)
		if in != nil {
			warnings = nil // the parent has told them
		}
		return warnings, err
	}
	if in != nil {
		if len(in.Typed) > 0 {
			cfg.Args = in.Typed
		}
		cfg.Rendezvous.Listener, cfg.Rendezvous.Packet = in.Listener, in.Packet
	}
	a.terminal(&cfg)
	if in != nil {
		cfg.Watched = false
		return leftToParent(runner.Run(ctx, cfg))
	}
	return runner.Run(ctx, cfg)
}

// terminal says how the job may be shown here.
func (a *app) terminal(cfg *runner.Config) {
	if !cfg.Quiet {
		cfg.Rendezvous.Notice = func(text string) { fmt.Fprintf(a.stderr, "rankstorm: %s\n", oneLine(text)) }
	}
	if f, ok := a.stdout.(*os.File); ok && a.env.get("NO_COLOR") == "" {
		cfg.Color = term.IsTerminal(int(f.Fd())) && a.env.get("TERM") != "dumb"
	}
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		cfg.StderrTTY = a.env.get("TERM") != "dumb"
		cfg.Watched = !cfg.Quiet && cfg.Witness == nil && cfg.Rendezvous.Launch.Family == ""
	}
	cfg.Columns, cfg.StderrColumns = columns(a.stdout), columns(a.stderr)
}

// ownRecord is what this process says about itself.
func ownRecord(r *runFlags, job *prepared, in *rendezvous.Inheritance) (rank.Record, error) {
	record := rendezvous.ThisProcess()
	record.LauncherProc, record.LocalIndex = job.launch.Proc, job.launch.LocalIndex
	switch {
	case r.host != "":
		record.Host = r.host
	case in != nil && in.Host != "":
		record.Host = in.Host
	}
	if record.Host == "" {
		return record, rank.Errorf(rank.KindResource, "run: this host has no name: give it one with --host")
	}
	from := job.bindFrom
	switch {
	case r.bind != "":
		from = "-b"
	case r.iface != "":
		from = "-B"
	}
	for _, kv := range []rank.KV{
		{Key: runner.OwnBind, Value: strings.Join(job.bind, ",")}, {Key: runner.OwnBindFrom, Value: from}, {Key: "out", Value: r.out},
	} {
		if kv.Value != "" {
			record.Own = append(record.Own, kv)
		}
	}
	return record, nil
}

// controllerKey is the controller's host:port in one spelling; it names a job
// that has no other name. port counts where the text names none. A zone is no
// part of it: other hosts may have another interface on the same link.
func controllerKey(text string, port int) (string, error) {
	bad := func(what string) (string, error) {
		return "", usagef("run: -C/--controller %q: %s: write host, host:port or [IPv6]:port", text, what)
	}
	bare := text
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		bare = text[1 : len(text)-1]
	}
	if addr, err := netip.ParseAddr(bare); err == nil {
		return net.JoinHostPort(addr.Unmap().WithZone("").String(), strconv.Itoa(port)), nil
	}
	if !strings.Contains(text, ":") {
		return net.JoinHostPort(strings.ToLower(text), strconv.Itoa(port)), nil
	}
	host, portText, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return bad("not an address")
	}
	if n, err := strconv.Atoi(portText); err != nil || n < 1 || n > 65535 {
		return bad("the port must be 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().WithZone("").String()
	}
	return net.JoinHostPort(strings.ToLower(host), portText), nil
}

func (a *app) warnMisspelt(flags *pflag.FlagSet) {
	var plan planFlags
	others := pflag.NewFlagSet("plan", pflag.ContinueOnError)
	plan.register(others)
	for name, meant := range a.env.misspelt(flags, others) {
		fmt.Fprintf(a.stderr, "rankstorm: warning: %s is not a setting: did you mean %s?\n", name, meant)
	}
}
