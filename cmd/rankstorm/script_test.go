package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// beProgram makes the test binary be rankstorm. It does not begin with
// RANKSTORM_, so that the children of --spawn inherit it too.
const beProgram = "TEST_BINARY_IS_RANKSTORM"

func TestMain(m *testing.M) {
	if os.Getenv(beProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestScripts runs the program as a user types it: real processes, their exit
// code, and every byte they print. A story is a file in testdata/script:
//
//	rankstorm
//	plan --ranks 0
//	----
//	exit 2
//	! rankstorm: plan: --ranks 0: give at least 1
//
// Every line before the dashes is one command line, with NAME=value words in
// front for its environment; a word in single quotes may hold blanks. Lines of
// standard error begin with "!". The directive file NAME makes a file for the
// commands after it; lines of standard output that contain none of the words
// of only=(word,…) are left out. Rewrite with -rewrite, then read the difference.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "script"), func(t *testing.T, path string) {
		dir := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				if err := os.WriteFile(filepath.Join(dir, d.CmdArgs[0].Key), []byte(d.Input+"\n"), 0o600); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return ""
			case "rankstorm":
				var only []string
				for _, a := range d.CmdArgs {
					if a.Key == "only" {
						only = a.Vals
					}
				}
				var b strings.Builder
				lines := strings.Split(d.Input, "\n")
				for i, line := range lines {
					if len(lines) > 1 {
						fmt.Fprintf(&b, "%s> rankstorm %s\n", strings.Repeat("\n", min(i, 1)), line)
					}
					b.WriteString(transcript(t, dir, line, only))
				}
				return strings.ReplaceAll(b.String(), "\n\n> ", "\n> ")
			}
			d.Fatalf(t, "unknown directive %s", d.Cmd)
			return ""
		})
	})
}

// transcript runs one command line and prints all that can be seen of it.
func transcript(t *testing.T, dir, line string, only []string) string {
	t.Helper()
	words := splitCommand(line)
	env := []string{beProgram + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "GOCOVERDIR=" + dir}
	for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
		env, words = append(env, words[0]), words[1:]
	}
	name, args := os.Args[0], words
	if len(words) > 0 && strings.HasPrefix(words[0], "ulimit:") { // run with fewer descriptors
		limit := strings.TrimPrefix(words[0], "ulimit:")
		name, args = "sh", append([]string{"-c", "ulimit -n " + limit + `; exec "$0" "$@"`, os.Args[0]}, words[1:]...)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "exit %d\n", cmd.ProcessState.ExitCode())
	for _, l := range strings.SplitAfter(mask(t, stdout.String()), "\n") {
		if matches(l, only) {
			b.WriteString(l)
		}
	}
	for _, l := range strings.SplitAfter(mask(t, stderr.String()), "\n") {
		if l != "" {
			b.WriteString("! " + l)
		}
	}
	return b.String()
}

func matches(line string, only []string) bool {
	if len(only) == 0 {
		return true
	}
	for _, word := range only {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// mask replaces what differs from machine to machine.
func mask(t *testing.T, text string) string {
	t.Helper()
	links, err := localLinks()
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{
		{linkAddresses(links), "(the addresses)"},
		{linkNames(links), "(the interfaces)"},
		{runtime.Version(), "(go version)"},
		{runtime.GOOS + "/" + runtime.GOARCH, "(platform)"},
	} {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// splitCommand splits at blanks; single quotes keep a word together.
func splitCommand(line string) []string {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}
