package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"rankstorm/phases"
	"rankstorm/rank"
)

// The defaults of cmtime.
const (
	cmtimeConnections = 100
	cmtimePeers       = 2
	cmtimePort        = "7471"
	cmtimeQPN         = 1000
	cmtimeRetries     = 2
	cmtimeTimeoutMS   = 2000
)

// cmtimePhaseTimeout is longer than the connection manager itself tries: its
// last request on RoCE is given up after 103 s.
const cmtimePhaseTimeout = 3 * time.Minute

// cmtimeFlags are the options of the cmtime face, as typed: those of cmtime in
// getopt's form, and our own, which are long.
type cmtimeFlags struct {
	iface       string // -B
	bind        string // -b
	controller  string // -C
	connections int    // -c, per client and server
	listener    bool   // -L
	mimicked    bool   // -m was given, 0 is a value
	mimic       int    // -m, µs
	threads     int    // -n
	peers       int    // -P
	port        int    // -p
	qpn         int    // -q
	retries     int    // -r
	sockets     bool   // -S
	timeoutMS   int    // -t
	resolving   bool   // -r or -t was given

	cmtimeLong
	named    func(flag string) bool // of the long ones, given by flag or variable
	operands []string               // words that are no option
}

// cmtimeLong are the options that cmtime does not have.
type cmtimeLong struct {
	transport       string
	all             bool
	noQPPass        bool
	joinTimeout     time.Duration
	phaseTimeout    time.Duration
	livenessTimeout time.Duration
	secretFile      string
	host            string
	out             string
	quiet           bool
}

func (l *cmtimeLong) register(flags *pflag.FlagSet) {
	d := phases.DefaultSpec()
	flags.SortFlags = false
	flags.StringVar(&l.transport, "transport", "", "what carries the connections: "+strings.Join(providerNames(), ", ")+" (default rdma, with -S tcp)")
	flags.BoolVar(&l.all, "all", false, "print the tables of all instances together at the controller (default: if there are more than 2)")
	flags.BoolVar(&l.noQPPass, "no-qp-pass", false, "end with a pass without queue pairs (default: with 2 instances and without -S, as cmtime does)")
	flags.DurationVar(&l.joinTimeout, "join-timeout", d.JoinTimeout, "give up if not everybody is there by then")
	flags.DurationVar(&l.phaseTimeout, "phase-timeout", cmtimePhaseTimeout, "longest time of one phase")
	flags.DurationVar(&l.livenessTimeout, "liveness-timeout", d.LivenessTimeout, "an instance that does not answer for this long is lost")
	flags.StringVar(&l.secretFile, "secret-file", "", "`file` with the secret that protects the job, the same everywhere")
	flags.StringVar(&l.host, "host", "", "host `name` of this instance (default: the machine's)")
	flags.StringVarP(&l.out, "out", "", "", "result document of the whole job: `file` (default: none is written)")
	flags.BoolVar(&l.quiet, "quiet", false, "no progress and no notes on standard error")
}

// errCmtimeUsage asks for cmtime's usage text, its answer to most mistakes.
var errCmtimeUsage = errors.New("usage")

// wrongUsage says what is wrong, where cmtime leaves that to the reader of the usage text.
func wrongUsage(complain io.Writer, text string) error {
	fmt.Fprintf(complain, "rankstorm: cmtime: %s\n", oneLine(text))
	return errCmtimeUsage
}

// errCmtimeHelp asks for the help text.
var errCmtimeHelp = errors.New("help")

// cmtimeOptions are cmtime's, as getopt is told them; -S takes no value, as its
// manual says.
const cmtimeOptions = "B:b:C:c:Lm:n:P:p:q:r:St:"

// parseCmtime reads a command line as cmtime does: of a repeated option the last
// counts, but -B and -b are taken once. A word that begins with -- and goes on is
// one of our long options. The error is errCmtimeUsage, errCmtimeHelp or a usage
// error about a value.
func parseCmtime(name string, args []string, env environment, complain io.Writer) (*cmtimeFlags, error) {
	f := &cmtimeFlags{
		connections: cmtimeConnections, threads: 1, peers: cmtimePeers, qpn: cmtimeQPN,
		retries: cmtimeRetries, timeoutMS: cmtimeTimeoutMS,
	}
	port := cmtimePort
	long := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.register(long)
	words := getopt{name: name, spec: cmtimeOptions, args: args, complain: complain}
	for {
		o, err := words.next()
		switch {
		case err != nil && o.letter == 's':
			return nil, wrongUsage(complain, "-s is the older cmtime's: here the server has -L, and client and server the same -C")
		case err != nil:
			return nil, err
		}
		if o == (shortOption{}) {
			break
		}
		switch {
		case o.long == "--help":
			return nil, errCmtimeHelp
		case o.long != "":
			words.args, err = f.long(long, o.long, words.args)
		case o.letter == 'p':
			port = o.value
		default:
			err = f.set(o.letter, o.value, complain)
		}
		if err != nil {
			return nil, err
		}
	}
	f.operands = words.operands
	switch {
	case len(args) == 0:
		return nil, errCmtimeUsage
	case f.controller == "":
		return nil, wrongUsage(complain, "-C is missing: where do the instances meet? The same host for all, one that an instance runs on")
	case f.iface == "" && f.bind == "":
		return nil, wrongUsage(complain, "-B or -b is missing: the local interface, or its address")
	}
	var err error
	if f.port, err = net.LookupPort("tcp", port); err != nil || f.port == 0 {
		return nil, usagef("cmtime: -p %q is neither a port from 1 to 65535 nor the name of a service", port)
	}
	if err := env.apply("cmtime", long); err != nil {
		return nil, err
	}
	f.named = long.Changed
	return f, f.check()
}

// long takes one long option, whose value may be the next word.
func (f *cmtimeFlags) long(flags *pflag.FlagSet, word string, args []string) (rest []string, err error) {
	option, _, given := strings.Cut(word[2:], "=")
	take := []string{word}
	if known := flags.Lookup(option); known != nil && !given && known.NoOptDefVal == "" && len(args) > 0 {
		take, args = append(take, args[0]), args[1:]
	}
	if err := flags.Parse(take); err != nil {
		return nil, longError(flags, err)
	}
	return args, nil
}

// set takes one option of cmtime.
func (f *cmtimeFlags) set(letter byte, value string, complain io.Writer) error {
	switch letter {
	case 'B', 'b':
		if f.iface != "" || f.bind != "" {
			return wrongUsage(complain, "-"+string(letter)+" "+value+" comes after -B or -b, which are given once")
		}
		if value == "" {
			return usagef("cmtime: -%c is empty: name the local interface with -B or its address with -b", letter)
		}
		if letter == 'B' {
			f.iface = value
		} else {
			f.bind = value
		}
	case 'C':
		f.controller = value
	case 'L':
		f.listener = true
	case 'S':
		f.sockets = true
	case 'm':
		f.mimicked = true
		return f.number(letter, value, &f.mimic, 0, int(time.Minute/time.Microsecond), "µs")
	case 'c':
		return f.number(letter, value, &f.connections, 1, 1<<24-1, "connections between a client and a server")
	case 'n':
		return f.number(letter, value, &f.threads, 1, 1024, "threads")
	case 'P':
		// The same as cmtime says of fewer than two.
		if err := f.number(letter, value, &f.peers, 0, phases.MaxProcs, "instances"); err != nil {
			return err
		}
		if f.peers < 2 {
			return wrongUsage(complain, "-P "+strings.TrimSpace(value)+": clients and servers together are at least 2")
		}
	case 'q':
		return f.number(letter, value, &f.qpn, 0, 1<<24-1, "as number of the first queue pair")
	case 'r':
		f.resolving = true
		return f.number(letter, value, &f.retries, 0, 1000, "retries")
	case 't':
		f.resolving = true
		return f.number(letter, value, &f.timeoutMS, 1, 600_000, "ms")
	}
	return nil
}

// number reads a value as atoi does, but not half of one.
func (f *cmtimeFlags) number(letter byte, value string, to *int, low, high int, what string) error {
	n, err := strconv.Atoi(strings.TrimLeft(value, " \t\n\v\f\r"))
	if errors.Is(err, strconv.ErrSyntax) {
		return usagef("cmtime: -%c %q is not a whole number", letter, value)
	}
	if err != nil || n < low || n > high {
		return usagef("cmtime: -%c %s: give %d to %d %s", letter, strings.TrimSpace(value), low, high, what)
	}
	*to = n
	return nil
}

// check looks at what options mean together.
func (f *cmtimeFlags) check() error {
	switch {
	case f.sockets && f.named("transport") && f.transport != "tcp":
		return usagef("cmtime: -S runs over sockets and --transport %s does not: leave one of them out", f.transport)
	case f.sockets && f.mimicked:
		return usagef("cmtime: -m plays queue pairs and -S has none: leave one of them out")
	case f.sockets && f.noQPPass:
		return usagef("cmtime: --no-qp-pass goes without queue pairs and so does all of -S: leave one of them out")
	case f.out == "-":
		return usagef("cmtime: --out -: the tables are on standard output: name a file")
	}
	if !f.named("transport") {
		f.transport = "rdma"
		if f.sockets {
			f.transport = "tcp"
		}
	}
	if _, ok := providers[f.transport]; !ok {
		if f.transport == "rdma" {
			return usagef("cmtime: this program was built without RDMA: use --transport %s", strings.Join(providerNames(), " or "))
		}
		return usagef("cmtime: --transport %q is not known: use %s", f.transport, strings.Join(providerNames(), " or "))
	}
	if !f.named("all") {
		f.all = f.peers > 2
	}
	if !f.named("no-qp-pass") {
		f.noQPPass = f.endsWithoutQPs()
	}
	return nil
}

// endsWithoutQPs is the default of --no-qp-pass.
func (f *cmtimeFlags) endsWithoutQPs() bool { return f.peers == 2 && !f.sockets }

// longError turns what pflag says about a long option into one line.
func longError(flags *pflag.FlagSet, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := rank.Nearest(missing.GetSpecifiedName(), flagNames(flags)); near != "" {
			return usagef("cmtime: unknown option --%s: did you mean --%s?", missing.GetSpecifiedName(), near)
		}
		return usagef("cmtime: unknown option --%s: see rankstorm cmtime --help", missing.GetSpecifiedName())
	}
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("cmtime: %s: %s", flagLabel(value.GetFlag()), badValue(value.GetFlag(), value.GetValue(), value.Unwrap()))
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef("cmtime: %s: a value is missing after it", flagLabel(bare.GetFlag()))
	}
	return usagef("cmtime: %s: %v", flags.Name(), err)
}

// writeCmtimeUsage answers a wrong command line as cmtime does, on standard
// output: one line for each of its options, and ours below.
func writeCmtimeUsage(w io.Writer, name string) {
	fmt.Fprintf(w, "usage: %s\n", name)
	for _, line := range []string{
		"-B bind_interface (this or -b, once)",
		"-b bind_address (this or -B, once)",
		"-C controller_address",
		"[-c num_conns] of each client to each server",
		"[-L] be a server",
		"[-m mimic_qp_delay_us]",
		"[-n num_threads]",
		"[-P num_peers] clients and servers together",
		"[-p controller_port]",
		"[-q base_qpn]",
		"[-r retries]",
		"[-S] over sockets, any number of peers",
		"[-t timeout_ms]",
		"[--transport name] and more: see " + name + " --help",
	} {
		fmt.Fprintf(w, "\t%s\n", line)
	}
}
