package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"rankstorm/rank"
)

// Command lines of run, one argument a line: settings that all processes share, or one line that says what is wrong.
func FuzzRunFlags(f *testing.F) {
	for _, s := range []string{
		"-P\n4\n-c\n16\n--topology\nring", "--hold=connect=2s;probe=1s\n--delay\nrank=3,phase=connect,ms=300", "--connect=rate=100",
		"--m2n\n2:3\n--topology=m2n", "--topology=shift\n--offsets=1-3", "--topology=hotspot\n--hot=1,2\n--hot-share=0.5",
		"-B\nlo\n-b\n127.0.0.1,127.0.0.{local_rank}", "--procs=-1", "-c\n99999999999999999999", "--max-time=-1s", "--rounds=0", "-n\n3",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "custom") {
			return // names a file of this machine
		}
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		flags.SetOutput(&strings.Builder{})
		r := &runFlags{}
		r.register(flags)
		if flags.Parse(strings.Split(text, "\n")) != nil {
			return
		}
		_, err := r.spec(4, flags.Changed)
		if err == nil {
			return
		}
		var e *rank.Error
		if !errors.As(err, &e) || rank.ExitCode(err) != 2 || strings.ContainsAny(oneLine(err.Error()), "\n\x1b") {
			t.Errorf("%q: %v, code %d", text, err, rank.ExitCode(err))
		}
	})
}
