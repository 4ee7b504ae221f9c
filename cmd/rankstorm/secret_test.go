package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rankstorm/rank"
	"rankstorm/rendezvous"
)

func TestSecretForms(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever umask says
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	good := file("good", "s3cret\n", 0o600)
	for _, c := range []struct {
		name, file, variable string
		in                   *rendezvous.Inheritance
		want, refusal        string
	}{
		{name: "none"},
		{name: "file", file: good, want: "s3cret"},
		{name: "read only", file: file("ro", "a b\r\n\n", 0o400), want: "a b"},
		{name: "variable", variable: "s3cret\n", want: "s3cret"},
		{name: "file wins", file: good, variable: "other", want: "s3cret"},
		{name: "parent wins", in: &rendezvous.Inheritance{Secret: []byte("from the pipe")}, variable: "other", want: "from the pipe"},
		{name: "largest", file: file("largest", strings.Repeat("x", maxSecret), 0o600), want: strings.Repeat("x", maxSecret)},
		{name: "too large", file: file("large", strings.Repeat("x", maxSecret+1), 0o600), refusal: "larger than 65536 bytes"},
		{name: "empty", file: file("empty", "", 0o600), refusal: "empty"},
		{name: "line break only", file: file("blank", "\n", 0o600), refusal: "empty"},
		{name: "empty variable text", variable: "\n", refusal: "RANKSTORM_SECRET: empty"},
		{name: "readable by the group", file: file("group", "x", 0o640), refusal: "mode 0640): chmod 600"},
		{name: "readable by all", file: file("all", "x", 0o644), refusal: "mode 0644): chmod 600"},
		{name: "missing", file: filepath.Join(dir, "missing"), refusal: "no such file"},
		{name: "directory", file: dir, refusal: "not a file"},
		{name: "pipe", file: fifo, refusal: "not a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &app{env: newEnvironment([]string{secretVariable + "=" + c.variable})}
			got, err := a.secret("run", c.file, c.in)
			if c.refusal == "" {
				if err != nil || string(got) != c.want {
					t.Errorf("got %.80q, %v; want %.80q", got, err, c.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refusal) || rank.ExitCode(err) != 2 || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v (code %d), want one line with %q and code 2", err, rank.ExitCode(err), c.refusal)
			}
			if c.file != "" && !strings.Contains(err.Error(), "--secret-file "+c.file) {
				t.Errorf("%q does not name the flag and its file", err)
			}
		})
	}
}
