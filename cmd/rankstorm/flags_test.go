package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"rankstorm/phases"
)

// runSamples holds a value other than the default for every flag of run.
var runSamples = map[string]string{
	"controller": "n7:9", "procs": "5", "rank": "2", "job": "nightly", "secret-file": "secret.txt", "spawn": "3", "spawn-hosts": "2", "host": "n9",
	"ranks-per-proc": "4", "topology": "ring", "custom": "edges.txt", "initiators": "0-2", "targets": "3", "m2n": "2:3",
	"offsets": "1,2", "staged": "true", "hot": "1", "hot-share": "0.5", "exclude-same-host": "true", "seed": "42",
	"connections": "16", "threads": "2", "transport": "sim", "interface": "lo", "bind": "127.0.0.1", "ipv6": "true",
	"device": "rxe0", "gid-index": "3", "tos": "104", "sl": "2", "mtu": "1024", "retry-cnt": "3", "rnr-retry": "4", "ack-timeout": "14",
	"connect": "parallel=8", "rounds": "3", "mimic": "20000", "backlog": "128", "hold": "connect=2s;probe=1s",
	"delay": "rank=3,phase=connect,ms=300", "join-timeout": "5s", "phase-timeout": "6s", "liveness-timeout": "7s",
	"max-time": "8s", "tree-arity": "2", "procs-per-agent": "9", "out": "x.json", "quiet": "true", "verbose": "2",
}

var planSamples = map[string]string{
	"ranks": "8", "ranks-per-host": "4", "rank": "3", "list": "2", "json": "true", "ranks-per-proc": "2",
	"topology": "ring", "custom": "edges.txt", "initiators": "0-2", "targets": "3", "m2n": "2:3", "offsets": "1,2",
	"staged": "true", "hot": "1", "hot-share": "0.5", "exclude-same-host": "true", "seed": "42", "connections": "16",
	"threads": "2", "transport": "sim",
}

// flagSet registers a command's flags on a fresh struct.
type flagSet struct {
	name    string
	samples map[string]string
	fresh   func(*pflag.FlagSet) any // the struct that the flags fill
}

func flagSets() []flagSet {
	return []flagSet{
		{"run", runSamples, func(f *pflag.FlagSet) any { r := &runFlags{}; r.register(f); return r }},
		{"plan", planSamples, func(f *pflag.FlagSet) any { p := &planFlags{}; p.register(f); return p }},
		{"devices", map[string]string{"json": "true"}, func(f *pflag.FlagSet) any { d := &devicesFlags{}; d.register(f); return d }},
	}
}

// filled gives the struct after a command line and an environment.
func (s flagSet) filled(t *testing.T, args, environ []string) (any, *pflag.FlagSet) {
	t.Helper()
	flags := pflag.NewFlagSet(s.name, pflag.ContinueOnError)
	target := s.fresh(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if err := newEnvironment(environ).apply(s.name, flags); err != nil {
		t.Fatalf("%v: %v", environ, err)
	}
	return target, flags
}

// TestEveryFlagIsHonoured sets each flag from the command line and from its
// variable: both must change the settings, and to the same.
func TestEveryFlagIsHonoured(t *testing.T) {
	for _, s := range flagSets() {
		defaults, flags := s.filled(t, nil, nil)
		names := map[string]bool{}
		flags.VisitAll(func(f *pflag.Flag) {
			names[f.Name] = true
			sample, ok := s.samples[f.Name]
			if !ok {
				t.Errorf("%s --%s has no sample value in this test", s.name, f.Name)
				return
			}
			typed, _ := s.filled(t, []string{"--" + f.Name + "=" + sample}, nil)
			if reflect.DeepEqual(typed, defaults) {
				t.Errorf("%s --%s=%s changes nothing", s.name, f.Name, sample)
			}
			variable := envName(f.Name) + "=" + sample
			fromEnv, set := s.filled(t, nil, []string{variable, "OTHER=1"})
			if !reflect.DeepEqual(typed, fromEnv) {
				t.Errorf("%s %s: got %+v, want as by flag %+v", s.name, variable, fromEnv, typed)
			}
			if !set.Changed(f.Name) {
				t.Errorf("%s %s does not count as given", s.name, variable)
			}
			wins, _ := s.filled(t, []string{"--" + f.Name + "=" + sample}, []string{envName(f.Name) + "=" + f.DefValue})
			if !reflect.DeepEqual(wins, typed) {
				t.Errorf("%s --%s does not win over its variable", s.name, f.Name)
			}
			empty, _ := s.filled(t, nil, []string{envName(f.Name) + "="})
			if !reflect.DeepEqual(empty, defaults) {
				t.Errorf("%s: an empty %s is not the same as none", s.name, envName(f.Name))
			}
		})
		for name := range s.samples {
			if !names[name] {
				t.Errorf("%s has a sample for --%s, which does not exist", s.name, name)
			}
		}
	}
}

// TestChildArgs: the children of --spawn get what the parent was given, by
// flag or variable, and nothing that concerns the parent alone.
func TestChildArgs(t *testing.T) {
	s := flagSets()[0]
	environ := []string{secretVariable + "=s3cret"}
	for name, value := range runSamples {
		environ = append(environ, envName(name)+"="+value)
	}
	parent, flags := s.filled(t, nil, environ)
	args := childArgs(flags)
	if args[0] != "run" {
		t.Fatalf("got %v", args)
	}
	for _, a := range args {
		if strings.HasPrefix(a, "--spawn") || strings.Contains(a, "secret") {
			t.Errorf("children get %s", a)
		}
	}
	child, _ := s.filled(t, args[1:], nil)
	want := *parent.(*runFlags)
	want.spawn, want.spawnHosts, want.secretFile = 0, 0, ""
	if got := *child.(*runFlags); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestListRepeats(t *testing.T) {
	s := flagSets()[0]
	got, _ := s.filled(t, []string{"--hold", "connect=2s", "--hold", "probe=1s"}, nil)
	if want := []string{"connect=2s", "probe=1s"}; !slices.Equal(got.(*runFlags).holds.values, want) {
		t.Errorf("got %v, want %v", got.(*runFlags).holds.values, want)
	}
}

func TestMisspelt(t *testing.T) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(flags)
	env := newEnvironment([]string{
		"RANKSTORM_TOPOLGY=ring", "RANKSTORM_TOPOLOGY=ring", "RANKSTORM_SERVICE_HOST=10.0.0.1", "RANKSTORM_PORT=tcp://x",
		"RANKSTORM_REQUIRE=race", "TOPOLGY=x",
	})
	want := map[string]string{"RANKSTORM_TOPOLGY": "RANKSTORM_TOPOLOGY"}
	if got := env.misspelt(flags); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSpecReachesTheJob checks that every job-wide flag arrives in the spec.
func TestSpecReachesTheJob(t *testing.T) {
	file := filepath.Join(t.TempDir(), "edges.txt")
	if err := os.WriteFile(file, []byte("0: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	local := map[string]bool{ // of one process only, or not yet a setting of the job
		"controller": true, "procs": true, "rank": true, "job": true, "secret-file": true, "spawn": true, "spawn-hosts": true, "host": true,
		"interface": true, "bind": true, "ipv6": true, "out": true, "quiet": true, "verbose": true, "transport": true,
		"device": true,
	}
	s := flagSets()[0]
	spec := func(args ...string) (phases.Spec, error) {
		given, set := s.filled(t, args, nil)
		return given.(*runFlags).spec(8, set.Changed)
	}
	for name, sample := range runSamples {
		if local[name] {
			continue
		}
		if name == "custom" {
			sample = file
		}
		over := "--transport=tcp"
		if _, only := (&rdmaFlags{}).numbers()[strings.ReplaceAll(name, "-", "_")]; only {
			over = "--transport=rdma"
		}
		base, err := spec(over)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := spec(over, "--"+name+"="+sample)
		if err != nil {
			t.Errorf("--%s=%s: %v", name, sample, err)
			continue
		}
		if reflect.DeepEqual(spec, base) {
			t.Errorf("--%s=%s does not reach the spec", name, sample)
		}
		if reflect.DeepEqual(spec.Settings(), base.Settings()) {
			t.Errorf("--%s=%s is not among the settings that processes compare", name, sample)
		}
	}
}

// TestHelpNamesEveryFlag keeps run --help complete and free of errors.
func TestHelpNamesEveryFlag(t *testing.T) {
	for _, s := range flagSets() {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{s.name, "--help"}, nil, &out, &errs); code != 0 || errs.Len() > 0 {
			t.Fatalf("%s --help: code %d, stderr %q", s.name, code, errs.String())
		}
		for name := range s.samples {
			if !strings.Contains(out.String(), "--"+name) {
				t.Errorf("%s --help does not name --%s", s.name, name)
			}
		}
	}
}
