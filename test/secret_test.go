package test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A protected job of real processes: whoever has another secret or none is
// refused by name at both ends with code 3, and the right one, whose secret
// stands in the environment, still joins.
func TestSecretOfRealProcesses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"right": "the-right-one\n", "wrong": "the-wrong-one\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := freeAddress(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := func(stderr *bytes.Buffer, env string, args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, binary, append([]string{"run", "-C", at, "-P", "2"}, args...)...)
		c.Dir, c.Stderr = dir, stderr
		c.Env = append(os.Environ(), env)
		return c
	}
	var first, second bytes.Buffer
	a := command(&first, "X=", "--secret-file", "right")
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if c, err := net.Dial("tcp", at); err == nil { // the controller is there
			c.Close()
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the controller does not listen")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--secret-file", "wrong"}, "has another secret than this process"},
		{nil, "secret is not given here, given at the controller"},
	} {
		var stderr bytes.Buffer
		odd := command(&stderr, "X=", c.args...)
		_ = odd.Run() // its code is looked at
		if code := odd.ProcessState.ExitCode(); code != 3 || !strings.Contains(stderr.String(), c.want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%v: code %d, %q; want code 3 and one line with %q", c.args, code, stderr.String(), c.want)
		}
	}
	b := command(&second, "RANKSTORM_SECRET=the-right-one", "-o", "b.json")
	if err := b.Run(); err != nil {
		t.Errorf("the second process: %v: %s", err, second.String())
	}
	if err := a.Wait(); err != nil {
		t.Errorf("the first process: %v: %s", err, first.String())
	}
	for _, part := range []string{"secret is another one", "secret is not given there, given here"} {
		if strings.Count(first.String(), part) < 1 {
			t.Errorf("the controller does not say %q: %s", part, first.String())
		}
	}
	documents, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(documents) != 1 {
		t.Fatalf("documents %v, %v", documents, err)
	}
	content, err := os.ReadFile(documents[0])
	if err != nil {
		t.Fatal(err)
	}
	if all := string(content) + first.String() + second.String(); strings.Contains(all, "the-right-one") || !strings.Contains(all, `"secret": "yes"`) {
		t.Error("the secret is told, or the document does not say that there is one")
	}
}
