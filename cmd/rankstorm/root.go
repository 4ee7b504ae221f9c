package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rankstorm/rank"
)

// app is what the commands share: where to write, and the environment.
type app struct {
	args   []string // as typed, without the program's name
	env    environment
	stdout io.Writer   // of a job that leaves a document as well
	text   *textOutput // standard output of all others
	stderr io.Writer
}

// textOutput is standard output of a command that leaves nothing else. Who prints in passing need not look at errors: the first
// is kept. A reader that has seen enough (| head) is none.
type textOutput struct {
	w   io.Writer
	err error
}

func (t *textOutput) Write(b []byte) (int, error) {
	if t.err == nil {
		_, t.err = t.w.Write(b)
	}
	return len(b), t.lost()
}

// lost says that text did not come out that somebody would have read.
func (t *textOutput) lost() error {
	if errors.Is(t.err, syscall.EPIPE) {
		return nil
	}
	return t.err
}

// run is the program as a function: it returns the exit code. Standard input
// is not among its arguments because rankstorm never reads it.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	a := &app{args: args, env: newEnvironment(environ), stdout: stdout, text: &textOutput{w: stdout}, stderr: stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetOut(a.text)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.text.lost()
	}
	if err != nil && !alreadyTold(err) {
		fmt.Fprintf(stderr, "rankstorm: %s\n", oneLine(err.Error()))
	}
	return exitCode(err)
}

// oneLine keeps an error that quotes foreign text on its one line, and the cursor of the terminal on it.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r):
			return '?'
		}
		return r
	}, text)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "rankstorm",
		Short: "Measure what it costs when N processes connect to each other at once",
		Long: `rankstorm starts N processes that find each other, become ranks, and connect
to each other in any topology through timed lockstep phases. Rank 0 prints one
table for the whole job.

  rankstorm run --spawn 8 --topology all_to_all -c 16   on one machine
  rankstorm run -C n0 -P 64 --topology incast -c 100    the same line on every node
  rankstorm plan --ranks 4096 --topology shift          what would run`,
		Version:           versionLine(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root {
			return a.rootFlagError(root, err)
		}
		return flagError(cmd, err)
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_ = a.print(cmp.Or(cmd.Long, cmd.Short) + "\n\n" + cmd.UsageString()) // a.text keeps what goes wrong
	})
	root.SetVersionTemplate("{{.Version}}\n")
	commands := []*cobra.Command{a.runCommand(), a.planCommand(), a.devicesCommand(), a.cmtimeCommand(), a.versionCommand()}
	root.AddCommand(commands...)
	root.SetHelpCommand(a.helpCommand(root))
	return root
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and what it was built with",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.text, versionLine())
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("rankstorm %s %s %s/%s%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, revision())
}

// revision is the commit the binary was built from, if the build recorded it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var commit, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				modified = "+changes"
			}
		}
	}
	if commit == "" {
		return ""
	}
	return " " + commit[:min(12, len(commit))] + modified
}

// noArguments refuses operands: none of the commands that use it has any.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s: %q is one word too many: this command takes flags only, see %s --help", cmd.Name(), args[0], cmd.CommandPath())
}

func unknownCommand(root *cobra.Command, word string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := rank.Nearest(word, names); near != "" {
		return usagef("unknown command %q: did you mean %s?", word, near)
	}
	return usagef("unknown command %q: there are %s", word, strings.Join(names, ", "))
}

// rootFlagError is about a flag where a command should be, or a command that
// there is not, whose flags nobody knows.
func (a *app) rootFlagError(root *cobra.Command, err error) error {
	if word := a.args[0]; !strings.HasPrefix(word, "-") {
		return unknownCommand(root, word)
	}
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		for _, c := range root.Commands() {
			f := c.Flags().Lookup(missing.GetSpecifiedName())
			if missing.GetSpecifiedShortnames() != "" {
				f = c.Flags().ShorthandLookup(missing.GetSpecifiedName())
			}
			if f != nil && c.Name() == "run" {
				return usagef("%s: name the command first: rankstorm run %s", flagLabel(f), strings.Join(a.args, " "))
			}
		}
	}
	return flagError(root, err)
}

// flagError turns what pflag says into one line that says what to do.
func flagError(cmd *cobra.Command, err error) error {
	at, help := cmd.Name()+": ", cmd.CommandPath()+" --help"
	if !cmd.HasParent() {
		at = ""
	}
	names := flagNames(cmd.Flags())
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		typed, word := "--", missing.GetSpecifiedName()
		if short := missing.GetSpecifiedShortnames(); short != "" {
			typed, word = "-", short
		}
		if near := rank.Nearest(word, names); near != "" && (typed == "--" || len(word) > 2) {
			return usagef("%sunknown flag %s%s: did you mean --%s?", at, typed, word, near)
		}
		return usagef("%sunknown flag %s%s: see %s", at, typed, missing.GetSpecifiedName(), help)
	}
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := value.GetFlag()
		if long := f.Shorthand + value.GetValue(); f.Shorthand != "" && slices.Contains(names, long) {
			return usagef("%sunknown flag -%s: did you mean --%s?", at, long, long)
		}
		return usagef("%s%s: %s", at, flagLabel(f), badValue(f, value.GetValue(), value.Unwrap()))
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef("%s%s: a value is missing after it: see %s", at, flagLabel(bare.GetFlag()), help)
	}
	return usagef("%s%v: see %s", at, err, help)
}

// flagNames of a command, without dashes.
func flagNames(flags *pflag.FlagSet) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// flagLabel is how messages name a flag: "-c/--connections".
func flagLabel(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand + "/--" + f.Name
	}
	return "--" + f.Name
}

// badValue says why a flag cannot take a value, and what it takes.
func badValue(f *pflag.Flag, value string, cause error) string {
	if errors.Is(cause, strconv.ErrRange) || (cause != nil && strings.Contains(cause.Error(), "out of range")) {
		return fmt.Sprintf("%q is too large", value)
	}
	switch f.Value.Type() {
	case "int", "count":
		if errors.Is(cause, errNegative) {
			return fmt.Sprintf("%q: give 0 or more", value)
		}
		return fmt.Sprintf("%q is not a whole number", value)
	case "uint64":
		return fmt.Sprintf("%q is not a whole number ≥ 0", value)
	case "float64":
		return fmt.Sprintf("%q is not a number", value)
	case "duration":
		return fmt.Sprintf("%q is not a duration: write for instance 500ms, 10s or 2m", value)
	case "bool":
		return fmt.Sprintf("%q is neither true nor false", value)
	}
	return fmt.Sprintf("%q: %v", value, cause)
}

// usagef is a mistake in the command line: exit code 2.
func usagef(format string, args ...any) *rank.Error {
	return rank.Errorf(rank.KindUsage, format, args...)
}
