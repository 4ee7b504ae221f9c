package rendezvous

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rankstorm/rank"
)

// launchText is what a story says about a launch. Ports that follow from a
// hash are PORT: which one it is matters to nobody, its range does.
func launchText(t *testing.T, l Launch, err error) string {
	t.Helper()
	var b strings.Builder
	line := func(name, format string, args ...any) { fmt.Fprintf(&b, name+": "+format+"\n", args...) }
	if err != nil {
		if errorKind(err) != rank.KindUsage {
			t.Errorf("%v is no usage error", err)
		}
		line("error", "%v", err)
		return b.String()
	}
	if l.Family == "" {
		line("family", "none")
	} else {
		line("family", "%s", l.Family)
	}
	text := "not numbered"
	switch {
	case l.Proc >= 0 && l.Procs > 0:
		text = fmt.Sprintf("%d of %d", l.Proc, l.Procs)
	case l.Proc >= 0:
		text = fmt.Sprintf("number %d", l.Proc)
	case l.Procs > 0:
		text = fmt.Sprintf("one of %d", l.Procs)
	}
	switch {
	case l.LocalIndex >= 0 && l.LocalSize > 0:
		text += fmt.Sprintf(", %d of %d here", l.LocalIndex, l.LocalSize)
	case l.LocalIndex >= 0:
		text += fmt.Sprintf(", %d here", l.LocalIndex)
	}
	line("process", "%s", text)
	if l.JobKey != "" {
		line("job", "%q", l.JobKey)
	}
	if l.Controller != "" {
		line("controller", "%s, %s", l.Controller, l.ControllerFrom)
	}
	switch {
	case l.Port == 0:
	case l.Family == "Slurm":
		line("port", "%d", l.Port)
	default:
		if l.Port < firstDerivedPort || l.Port >= firstDerivedPort+derivedPorts {
			t.Errorf("port %d is outside the derived range", l.Port)
		}
		line("port", "PORT")
	}
	if l.Hosts != nil {
		var hosts []string
		for _, h := range l.Hosts {
			hosts = append(hosts, fmt.Sprintf("%s=%d", h.Name, h.Procs))
		}
		line("hosts", "%s", strings.Join(hosts, " "))
	}
	if l.Advice != "" {
		line("advice", "%s", l.Advice)
	}
	if l.Ignored != nil {
		line("ignored", "%s", strings.Join(l.Ignored, ", "))
	}
	return b.String()
}

// TestDetect runs the stories in testdata/launch: an environment, as it was
// recorded, and below --- what follows from it.
func TestDetect(t *testing.T) {
	files, err := filepath.Glob("testdata/launch/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d stories, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			story, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			before, want, ok := strings.Cut(string(story), "---\n")
			if !ok {
				t.Fatal("a story without ---")
			}
			env := map[string]string{}
			for line := range strings.Lines(before) {
				if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok && line[0] != '#' {
					env[name] = value
				}
			}
			l, err := Detect(func(name string) string { return env[name] })
			seen[l.Family] = true
			if got := launchText(t, l, err); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
	for _, f := range families {
		if !seen[f.name] {
			t.Errorf("no story ends with %s", f.name)
		}
	}
}

// With nothing in the environment nothing is known, and that is no error.
func TestDetectNothing(t *testing.T) {
	l, err := Detect(func(string) string { return "" })
	if err != nil || !reflect.DeepEqual(l, Launch{Proc: -1, LocalIndex: -1}) {
		t.Errorf("%+v, %v", l, err)
	}
}

// Neighbouring jobs and steps never get the same port.
func TestSlurmPorts(t *testing.T) {
	none := func(string) string { return "" }
	at := map[int]string{}
	for job := 1_000_000; job < 1_000_512; job++ {
		for step := range uint64(16) {
			port, err := slurmPort(none, fmt.Sprint(job), step)
			if err != nil || port < firstDerivedPort || port >= firstDerivedPort+derivedPorts {
				t.Fatalf("job %d step %d: port %d, %v", job, step, port, err)
			}
			name := fmt.Sprintf("%d.%d", job, step)
			if other := at[port]; other != "" {
				t.Fatalf("%s and %s share port %d", name, other, port)
			}
			at[port] = name
		}
	}
}

func TestExpandHostList(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"h0", "h0"},
		{"h[0-3]", "h0 h1 h2 h3"},
		{"a[01-03,9],b5", "a01 a02 a03 a9 b5"},
		{"h[0-1,3]", "h0 h1 h3"},
		{"n[098-101]", "n098 n099 n100 n101"},
		{"r[1-2]n[0-2]", "r1n0 r1n1 r1n2 r2n0 r2n1 r2n2"},
		{"r[1,3]-[07-08]x,z", "r1-07x r1-08x r3-07x r3-08x z"},
		{"10.0.0.[1-2]", "10.0.0.1 10.0.0.2"},
		{"", "empty name"},
		{"a,,b", "empty name"},
		{"a[", "brackets"},
		{"a]", "brackets"},
		{"a[[1]]", "brackets"},
		{"a[]", "no range"},
		{"a[3-1]", "no range"},
		{"a[x]", "no range"},
		{"a[0-9999999999]", "more than"},
		{"a[0-9999]b[0-9999]", "more than"},
	} {
		got, err := expandHostList(c.text)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: error %v, want %s", c.text, err, c.want)
			}
			continue
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: got %v, want %s", c.text, got, c.want)
		}
	}
}

// FuzzExpandHostList: whatever a variable holds, it is expanded within bounds
// or refused.
func FuzzExpandHostList(f *testing.F) {
	f.Add("a[01-03,9],b5")
	f.Add("r[1-2]n[0-3]")
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := expandHostList(text)
		if err == nil && (len(hosts) == 0 || len(hosts) > maxHosts || slices.Contains(hosts, "")) {
			t.Errorf("%q: %d hosts", text, len(hosts))
		}
	})
}

func TestExpandCounts(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want []int
	}{
		{"5,1(x3)", 4, []int{5, 1, 1, 1}},
		{"2(x4)", 4, []int{2, 2, 2, 2}},
		{"1", 1, []int{1}},
		{"2(x5)", 4, nil},
		{"2(x1000000000)", 4, nil},
		{"", 4, nil},
		{"x", 4, nil},
		{"2(xa)", 4, nil},
		{"2(x-1)", 4, nil},
	} {
		if got := expandCounts(c.text, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, want %v", c.text, got, c.want)
		}
	}
}
