package main

import (
	"errors"
	"sort"
	"strings"

	"github.com/spf13/pflag"

	"rankstorm/rank"
)

// envPrefix starts the names of all variables that stand for flags.
const envPrefix = "RANKSTORM_"

// environment is the process's environment by name. Empty values count as not
// set.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func newEnvironment(environ []string) environment {
	env := environment{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && value != "" {
			env[name] = value
		}
	}
	return env
}

// envName is the variable of a flag: --ranks-per-proc is RANKSTORM_RANKS_PER_PROC.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// notFlags are variables with the prefix that stand for no flag: one that the
// tests read, one that --spawn leaves to its children, and a secret's text,
// which must not stand on a command line.
var notFlags = []string{"RANKSTORM_REQUIRE", "RANKSTORM_INHERITED", secretVariable}

// apply sets every flag that was not given on the command line from its
// variable. A value the flag cannot take is a usage error that names the variable.
func (e environment) apply(command string, flags *pflag.FlagSet) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := e[envName(f.Name)]
		if !ok || f.Changed || f.Name == "help" || failed != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = usagef("%s: %s: %s", command, envName(f.Name), badValue(f, value, errors.Unwrap(err)))
		}
	})
	return failed
}

// misspelt finds variables that look like a flag of the program but are none,
// and the name that was probably meant. Variables that resemble nothing are
// left alone: Kubernetes sets RANKSTORM_SERVICE_HOST and the like by itself.
func (e environment) misspelt(sets ...*pflag.FlagSet) map[string]string {
	known := map[string]bool{}
	for _, name := range notFlags {
		known[name] = true
	}
	for _, flags := range sets {
		flags.VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	}
	candidates := make([]string, 0, len(known))
	for name := range known {
		candidates = append(candidates, strings.ToLower(strings.TrimPrefix(name, envPrefix)))
	}
	sort.Strings(candidates)
	found := map[string]string{}
	for name := range e {
		word := strings.ToLower(strings.TrimPrefix(name, envPrefix))
		if !strings.HasPrefix(name, envPrefix) || known[name] || len(word) < 5 {
			continue
		}
		if near := rank.Nearest(word, candidates); near != "" {
			found[name] = envPrefix + strings.ToUpper(near)
		}
	}
	return found
}
