package main

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"rankstorm/transport"
	"rankstorm/transport/sim"
)

// withRDMA makes a provider of that name be there: which one a build has is no matter here.
func withRDMA(t *testing.T) {
	t.Helper()
	was, had := providers["rdma"]
	providers["rdma"] = func() transport.Provider { return sim.New(sim.NewFabric(sim.FabricConfig{Steps: sim.StepsRDMA})) }
	t.Cleanup(func() {
		delete(providers, "rdma")
		if had {
			providers["rdma"] = was
		}
	})
}

// TestCmtimeOptions: one line per command line, and what differs from the
// defaults after it, or how it is refused. All but the long ones behave as with
// cmtime, where cmtime does not crash, hang or read half of a number.
func TestCmtimeOptions(t *testing.T) {
	withRDMA(t)
	base := func(change func(*cmtimeFlags)) *cmtimeFlags {
		f := &cmtimeFlags{
			bind: "10.0.0.1", controller: "n0", connections: 100, threads: 1, peers: 2, port: 7471, qpn: 1000, retries: 2, timeoutMS: 2000,
			cmtimeLong: cmtimeLong{
				transport: "rdma", noQPPass: true, joinTimeout: 60 * time.Second, phaseTimeout: 3 * time.Minute, livenessTimeout: 10 * time.Second,
			},
		}
		change(f)
		return f
	}
	type F = cmtimeFlags
	for _, c := range []struct {
		line    string
		environ string
		want    func(*F) // of base; nil: refused
		err     string   // "usage" or the message
		said    string   // by getopt
	}{
		{line: "-b 10.0.0.1 -C n0", want: func(*F) {}},
		{line: "-b10.0.0.1 -Cn0", want: func(*F) {}},
		{line: "-C n1 -b 10.0.0.1 -C n0", want: func(*F) {}},
		{line: "-B eth0 -C n0", want: func(f *F) { f.bind, f.iface = "", "eth0" }},
		{line: "-b 10.0.0.1 -C n0 -c10", want: func(f *F) { f.connections = 10 }},
		{line: "-b 10.0.0.1 -C n0 -c 10", want: func(f *F) { f.connections = 10 }},
		{line: "-c 5 -b 10.0.0.1 -C n0 -c +7", want: func(f *F) { f.connections = 7 }},
		{line: "-Lc 10 -b 10.0.0.1 -C n0", want: func(f *F) { f.listener, f.connections = true, 10 }},
		{line: "-LLC n0 -b 10.0.0.1", want: func(f *F) { f.listener = true }},
		{line: "-b 10.0.0.1 -C n0 -- -L", want: func(f *F) { f.operands = []string{"-L"} }},
		{line: "word -b 10.0.0.1 - -C n0 more", want: func(f *F) { f.operands = []string{"word", "-", "more"} }},
		{line: "-b 10.0.0.1 -C -L", want: func(f *F) { f.controller = "-L" }},
		{line: "-b 10.0.0.1 -C n0 -n4 -q 5000 -p 80", want: func(f *F) { f.threads, f.qpn, f.port = 4, 5000, 80 }},
		{line: "-b 10.0.0.1 -C n0 -r 5 -t1500", want: func(f *F) { f.retries, f.timeoutMS, f.resolving = 5, 1500, true }},
		{line: "-b 10.0.0.1 -C n0 -m 0", want: func(f *F) { f.mimicked = true }},
		{line: "-b 10.0.0.1 -C n0 -m 1000000", want: func(f *F) { f.mimicked, f.mimic = true, 1000000 }},
		{line: "-b 10.0.0.1 -C n0 -P 5", want: func(f *F) { f.peers, f.all, f.noQPPass = 5, true, false }},
		{line: "-b 10.0.0.1 -C n0 -P 5 --no-qp-pass --all=false", want: func(f *F) { f.peers = 5 }},
		{line: "-b 10.0.0.1 -C n0 --no-qp-pass=false", want: func(f *F) { f.noQPPass = false }},
		{line: "-S -b 10.0.0.1 -C n0", want: func(f *F) { f.sockets, f.transport, f.noQPPass = true, "tcp", false }},
		{line: "-SP 3 -b 10.0.0.1 -C n0", want: func(f *F) { f.sockets, f.transport, f.noQPPass, f.peers, f.all = true, "tcp", false, 3, true }},
		{line: "--transport tcp -b 10.0.0.1 -C n0 --join-timeout=5s", want: func(f *F) { f.transport, f.joinTimeout = "tcp", 5*time.Second }},
		{line: "-b 10.0.0.1 -C n0", environ: "RANKSTORM_TRANSPORT=tcp", want: func(f *F) { f.transport = "tcp" }},
		{line: "-b 10.0.0.1 -C n0", environ: "RANKSTORM_CONNECTIONS=7", want: func(*F) {}},

		{line: "", err: "usage"},
		{line: "-b 10.0.0.1", err: "usage", said: "rankstorm: cmtime: -C is missing: where do the instances meet? The same host for all, one that an instance runs on"},
		{line: "-C n0", err: "usage", said: "rankstorm: cmtime: -B or -b is missing: the local interface, or its address"},
		{line: "-b 10.0.0.1 -b 10.0.0.1 -C n0", err: "usage", said: "rankstorm: cmtime: -b 10.0.0.1 comes after -B or -b, which are given once"},
		{line: "-B eth0 -b 10.0.0.1 -C n0", err: "usage", said: "rankstorm: cmtime: -b 10.0.0.1 comes after -B or -b, which are given once"},
		{line: "-B eth0 -B eth0 -C n0", err: "usage", said: "rankstorm: cmtime: -B eth0 comes after -B or -b, which are given once"},
		{line: "-b 10.0.0.1 -C n0 -P 1", err: "usage", said: "rankstorm: cmtime: -P 1: clients and servers together are at least 2"},
		{line: "-b 10.0.0.1 -C n0 -x", err: "usage", said: "invalid option -- 'x'"},
		{line: "-b 10.0.0.1 -C n0 -Lx", err: "usage", said: "invalid option -- 'x'"},
		{line: "-h", err: "usage", said: "invalid option -- 'h'"},
		{line: "-s n1 -b 10.0.0.1", err: "usage", said: "invalid option -- 's'\nrankstorm: cmtime: -s is the older cmtime's: here the server has -L, and client and server the same -C"},
		{line: "-b 10.0.0.1 -C n0 -c", err: "usage", said: "option requires an argument -- 'c'"},
		{line: "--help", err: "help"},

		{line: "-b 10.0.0.1 -C n0 -c 0", err: "cmtime: -c 0: give 1 to 16777215 connections between a client and a server"},
		{line: "-b 10.0.0.1 -C n0 -c -5", err: "cmtime: -c -5: give 1 to 16777215 connections between a client and a server"},
		{line: "-b 10.0.0.1 -C n0 -c 10x", err: `cmtime: -c "10x" is not a whole number`},
		{line: "-b 10.0.0.1 -C n0 -c ten", err: `cmtime: -c "ten" is not a whole number`},
		{line: "-b 10.0.0.1 -C n0 -c 99999999999999999999", err: "cmtime: -c 99999999999999999999: give 1 to 16777215 connections between a client and a server"},
		{line: "-b 10.0.0.1 -C n0 -n 0", err: "cmtime: -n 0: give 1 to 1024 threads"},
		{line: "-b 10.0.0.1 -C n0 -m -1", err: "cmtime: -m -1: give 0 to 60000000 µs"},
		{line: "-b 10.0.0.1 -C n0 -q 16777216", err: "cmtime: -q 16777216: give 0 to 16777215 as number of the first queue pair"},
		{line: "-b 10.0.0.1 -C n0 -t 0", err: "cmtime: -t 0: give 1 to 600000 ms"},
		{line: "-b 10.0.0.1 -C n0 -r -1", err: "cmtime: -r -1: give 0 to 1000 retries"},
		{line: "-b 10.0.0.1 -C n0 -p 70000", err: `cmtime: -p "70000" is neither a port from 1 to 65535 nor the name of a service`},
		{line: "-S -m 5 -b 10.0.0.1 -C n0", err: "cmtime: -m plays queue pairs and -S has none: leave one of them out"},
		{line: "-S --transport rdma -b 10.0.0.1 -C n0", err: "cmtime: -S runs over sockets and --transport rdma does not: leave one of them out"},
		{line: "-b 10.0.0.1 -C n0 --transprot tcp", err: "cmtime: unknown option --transprot: did you mean --transport?"},
		{line: "-b 10.0.0.1 -C n0 --frobnicate", err: "cmtime: unknown option --frobnicate: see rankstorm cmtime --help"},
		{line: "-b 10.0.0.1 -C n0 --transport udp", err: `cmtime: --transport "udp" is not known: use rdma or tcp`},
		{line: "-b 10.0.0.1 -C n0 --join-timeout", err: "cmtime: --join-timeout: a value is missing after it"},
		{line: "-b 10.0.0.1 -C n0 --out -", err: "cmtime: --out -: the tables are on standard output: name a file"},
	} {
		var said bytes.Buffer
		got, err := parseCmtime("cmtime", strings.Fields(c.line), newEnvironment([]string{c.environ}), &said)
		if text := strings.TrimSpace(strings.TrimPrefix(said.String(), "cmtime: ")); text != c.said {
			t.Errorf("cmtime %s: said %q, want %q", c.line, text, c.said)
		}
		if c.want == nil {
			if err == nil || err.Error() != c.err {
				t.Errorf("cmtime %s: error %v, want %s", c.line, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("cmtime %s: %v", c.line, err)
			continue
		}
		got.named = nil
		if want := base(c.want); !reflect.DeepEqual(got, want) {
			t.Errorf("cmtime %s: got\n%+v, want\n%+v", c.line, got, want)
		}
	}
}

// TestCmtimeWithoutRDMA: a build without it says so, and what there is.
func TestCmtimeWithoutRDMA(t *testing.T) {
	withRDMA(t)
	delete(providers, "rdma")
	_, err := parseCmtime("cmtime", []string{"-b", "10.0.0.1", "-C", "n0"}, environment{}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "built without RDMA: use --transport tcp") {
		t.Errorf("error %v", err)
	}
}

// TestCmtimeUsageText: the form that cmtime has, and every option of the parser in it.
func TestCmtimeUsageText(t *testing.T) {
	var b bytes.Buffer
	writeCmtimeUsage(&b, "rankstorm cmtime")
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if lines[0] != "usage: rankstorm cmtime" {
		t.Errorf("first line %q", lines[0])
	}
	var letters string
	for _, l := range lines[1:] {
		if !strings.HasPrefix(l, "\t") {
			t.Errorf("line %q does not begin with a tab", l)
		}
		if at := strings.Index(l, "-"); l[at+1] != '-' {
			letters += l[at+1 : at+2]
		}
	}
	if letters != "BbCcLmnPpqrSt" {
		t.Errorf("options %s", letters)
	}
	if _, err := parseCmtime("x", nil, environment{}, &b); !errors.Is(err, errCmtimeUsage) {
		t.Errorf("no options: %v", err)
	}
}

// lacking is a provider that cannot run on this machine.
type lacking struct{ transport.Provider }

func (lacking) Probe(transport.Config) error {
	return errors.New("rdma: no device here: load the driver")
}

func (lacking) Name() string { return "rdma" }

// TestCmtimeSaysAtOnceWhatLacks: a machine without RDMA is told so before the
// instance waits for any other, in one line, with exit code 2.
func TestCmtimeSaysAtOnceWhatLacks(t *testing.T) {
	withRDMA(t)
	provider := providers["rdma"]()
	providers["rdma"] = func() transport.Provider { return lacking{provider} }
	for _, role := range []string{"-L", "-c10"} {
		var stdout, stderr bytes.Buffer
		// Nobody is at the other end: who waits is told of the time and ends with 3.
		code := run(t.Context(), []string{"cmtime", "-b", "127.0.0.1", "-C", "127.0.0.1", "-p", "9", role, "--join-timeout", "20ms"}, nil, &stdout, &stderr)
		const want = "rankstorm: cmtime: rdma: no device here: load the driver; --transport tcp runs it without RDMA\n"
		if code != 2 || stdout.String() != "" || stderr.String() != want {
			t.Errorf("%s: exit %d\n%s%s", role, code, &stdout, &stderr)
		}
	}
}
