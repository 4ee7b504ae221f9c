// Package test holds what concerns the module as a whole and the program as a
// user runs it.
package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "rankstorm"

// room says what a package may import of the module and of other modules. A
// name stands for that package; a name that ends in /… for it and all below.
type room struct {
	ours   []string
	others []string
}

// rooms keeps ARCHITECTURE's direction of dependence. A package that is not
// listed fails the test: its place has to be decided here.
var rooms = map[string]room{
	"rank":                         {},
	"internal/wellformed":          {},
	"transport":                    {ours: []string{"transport/internal/…"}, others: []string{"golang.org/x/sys/unix"}},
	"transport/internal/epoll":     {others: []string{"golang.org/x/sys/unix"}},
	"transport/internal/errno":     {ours: []string{"transport"}, others: []string{"golang.org/x/sys/unix"}},
	"transport/internal/eventring": {ours: []string{"transport"}},
	"transport/internal/monotime":  {ours: []string{"transport"}, others: []string{"golang.org/x/sys/unix"}},
	"transport/tcp":                {ours: []string{"transport", "transport/internal/…"}, others: []string{"golang.org/x/sys/unix"}},
	"transport/rdma": {
		ours:   []string{"transport", "transport/internal/…", "transport/rdma/internal/…"},
		others: []string{"golang.org/x/sys/unix"},
	},
	"transport/rdma/internal/nldev": {others: []string{"golang.org/x/sys/unix"}},
	"transport/rdma/internal/sysfs": {},
	"transport/rdma/internal/verbs": {others: []string{"golang.org/x/sys/unix"}},
	"transport/sim":                 {ours: []string{"transport", "transport/internal/…"}},
	"transport/transporttest":       {ours: []string{"transport", "transport/internal/…"}},
	"phases":                        {ours: []string{"rank", "transport"}, others: []string{"github.com/vmihailenco/msgpack/v5/…"}},
	"collect": {
		ours: []string{"rank", "transport", "phases", "internal/wellformed"},
		others: []string{
			"github.com/HdrHistogram/hdrhistogram-go", "github.com/vmihailenco/msgpack/v5/…",
			"github.com/santhosh-tekuri/jsonschema/v6/…", "github.com/mattn/go-runewidth",
		},
	},
	"collect/cmtime": {ours: []string{"collect", "transport"}},
	"rendezvous": {
		ours:   []string{"rank", "internal/wellformed"},
		others: []string{"github.com/hashicorp/memberlist", "github.com/vmihailenco/msgpack/v5/…", "golang.org/x/sys/unix"},
	},
	"rendezvous/memnet": {
		ours:   []string{"rank", "rendezvous"},
		others: []string{"github.com/hashicorp/memberlist"},
	},
	"phases/runner": {
		ours:   []string{"rank", "phases", "rendezvous", "collect", "transport", "transport/internal/…"},
		others: []string{"github.com/vmihailenco/msgpack/v5/…", "golang.org/x/sys/unix"},
	},
	"cmd/rankstorm": {
		ours:   []string{"rank", "phases", "phases/runner", "rendezvous", "collect", "collect/cmtime", "transport", "transport/tcp", "transport/rdma", "transport/sim"},
		others: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys/unix", "golang.org/x/term"},
	},
	"test":            {},
	"test/freeport":   {},
	"test/hosts":      {},
	"test/junk":       {},
	"test/junk/cmd":   {ours: []string{"test/junk"}},
	"test/killmatrix": {others: []string{"golang.org/x/sys/unix"}},
	"test/cmtables":   {},
	"test/need":       {},
	"test/printed":    {},
	"test/corpus":     {},
	"test/rdma":       {},
}

type listed struct {
	ImportPath string
	Imports    []string
	CgoFiles   []string
}

func TestDependenciesPointOneWay(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "bench") || strings.HasPrefix(name, "examples") {
			continue // programs that nothing depends on
		}
		allowed, ok := rooms[name]
		if !ok {
			t.Errorf("package %s has no place: add it to rooms with what it may import", name)
			continue
		}
		for _, path := range p.Imports {
			if reason := forbidden(path, allowed); reason != "" {
				t.Errorf("%s imports %s: %s", name, path, reason)
			}
		}
		if len(p.CgoFiles) > 0 && name != "transport/rdma/internal/verbs" {
			t.Errorf("%s says import \"C\" in %v: only transport/rdma/internal/verbs may", name, p.CgoFiles)
		}
	}
}

// TestForbiddenSees proves that the rule can fail.
func TestForbiddenSees(t *testing.T) {
	cases := []struct {
		path string
		from string
		bad  bool
	}{
		{"fmt", "rank", false},
		{"C", "rank", false}, // judged by CgoFiles
		{"rankstorm/transport", "rank", true},
		{"rankstorm/transport", "phases", false},
		{"rankstorm/transport/tcp", "phases", true},
		{"rankstorm/phases/runner", "phases", true},
		{"rankstorm/phases", "rendezvous", true},
		{"rankstorm/transport/internal/monotime", "transport/tcp", false},
		{"github.com/hashicorp/memberlist", "phases/runner", true},
		{"github.com/hashicorp/memberlist", "rendezvous", false},
		{"github.com/spf13/cobra", "phases/runner", true},
		{"github.com/HdrHistogram/hdrhistogram-go", "phases/runner", true},
		{"golang.org/x/sys/unix", "rank", true},
	}
	for _, c := range cases {
		if got := forbidden(c.path, rooms[c.from]); (got != "") != c.bad {
			t.Errorf("%s imports %s: got %q, want bad %v", c.from, c.path, got, c.bad)
		}
	}
}

func forbidden(path string, allowed room) string {
	list, own := allowed.others, false
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		path, list, own = rest, allowed.ours, true
	} else if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return "" // standard library
	}
	match := func(rule string) bool {
		if below, ok := strings.CutSuffix(rule, "/…"); ok {
			return path == below || strings.HasPrefix(path, below+"/")
		}
		return path == rule
	}
	if slices.ContainsFunc(list, match) {
		return ""
	}
	if own {
		return "dependencies point one way (docs/ARCHITECTURE.md)"
	}
	return "this library belongs to another room (docs/ARCHITECTURE.md)"
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,CgoFiles", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var found []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		found = append(found, p)
	}
	if len(found) < 8 {
		t.Fatalf("go list found only %d packages", len(found))
	}
	return found
}
