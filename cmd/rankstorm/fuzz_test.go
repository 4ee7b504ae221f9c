package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
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

// Command lines of cmtime, one argument a line, and one variable: settings that make a job, or one line that says what is
// wrong.
func FuzzCmtimeFlags(f *testing.F) {
	for _, s := range []string{
		"-B\neth0\n-C\n192.0.2.1\n-L", "-Lc10\n-b127.0.0.1\n-C\nn0\n-P5\n-p\nssh", "-S\n-b\n::1\n-C\n[::1]\n-m\n5",
		"-b\na\n-C\nb\n--no-qp-pass=false\n--transport\ntcp\n-r3\n-t9", "-b\na\n-C\nb\n-n\n0", "-b\na\n-C\nb\n-c\n 7\n-q1\nword\n--\n-S",
		"-b\na\n-B\nb", "-x", "-C", "--help", "--out\n-", "-b\na\n-C\nb\n--join-timeout=x", "-b\na\n-C\nb\n-p0", "-\x1b", "-\n",
	} {
		f.Add(s, "RANKSTORM_JOIN_TIMEOUT=5s")
	}
	f.Add("-b\na\n-C\nb", "RANKSTORM_TRANSPORT=tcp")
	f.Add("-b\na\n-C\nb", "RANKSTORM_PHASE_TIMEOUT=-1")
	f.Fuzz(func(t *testing.T, text, variable string) {
		var complaints strings.Builder
		flags, err := parseCmtime(cmtimeName, strings.Split(text, "\n"), newEnvironment([]string{variable}), &complaints)
		if said := complaints.String(); strings.ContainsRune(said, '\x1b') || strings.Count(said, "\n") > 1 {
			t.Errorf("%q: complains %q", text, said)
		}
		var e *rank.Error
		switch {
		case errors.Is(err, errCmtimeUsage), errors.Is(err, errCmtimeHelp):
			return
		case err != nil:
			if !errors.As(err, &e) || e.Kind != rank.KindUsage || strings.ContainsAny(oneLine(err.Error()), "\n\x1b") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if (flags.iface == "") == (flags.bind == "") || flags.controller == "" || flags.port < 1 || flags.port > 65535 {
			t.Errorf("%q: taken without what it needs: %+v", text, flags)
		}
		// Only times are left to be found out later.
		spec := cmtimePlan(flags)
		if err := spec.Validate(); err != nil && !strings.Contains(err.Error(), "-timeout") {
			t.Errorf("%q makes a job that cannot be: %v", text, err)
		}
		if spec.Connections < 1 || spec.Procs < 2 || len(spec.Passes) != spec.Rounds || len(spec.Face) == 0 {
			t.Errorf("%q: %+v", text, spec)
		}
	})
}

// A secret is the text of its file without line breaks at the end, or there is none; no message repeats a part of it.
func FuzzReadSecret(f *testing.F) {
	for _, c := range []struct {
		text   string
		repeat uint16
		mode   uint16
	}{{"secret\n", 1, 0o600}, {"", 1, 0o600}, {"\r\n\n", 1, 0o400}, {"a\x00b\nc\r\n", 1, 0o600}, {"open", 1, 0o644}, {"x\n", 60_000, 0o600}, {"abc", 1, 0}} {
		f.Add([]byte(c.text), c.repeat, c.mode)
	}
	name := filepath.Join(f.TempDir(), "secret")
	f.Fuzz(func(t *testing.T, text []byte, repeat, mode uint16) {
		text = bytes.Repeat(text, int(repeat)%(2*maxSecret/(len(text)+1)+2))
		perm := os.FileMode(mode) & 0o777
		if err := errors.Join(os.WriteFile(name, text, 0o600), os.Chmod(name, perm)); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(name)
		secret, err := readSecret(name)
		want := bytes.TrimRight(text, "\r\n")
		fits := perm&0o077 == 0 && len(want) > 0 && len(text) <= maxSecret
		switch {
		case err == nil && (!fits || !bytes.Equal(secret, want)):
			t.Errorf("%d bytes, mode %04o: taken as %d bytes", len(text), perm, len(secret))
		case err != nil && fits && perm&0o400 != 0:
			t.Errorf("%d bytes, mode %04o: %v", len(text), perm, err)
		case err != nil && (len(want) > 8 && strings.Contains(err.Error(), string(want)) || strings.ContainsAny(err.Error(), "\n\x1b")):
			t.Errorf("the message tells the secret, or on two lines: %q", err)
		}
	})
}
