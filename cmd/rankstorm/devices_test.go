package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cockroachdb/datadriven"
	"golang.org/x/sys/unix"

	"rankstorm/transport/rdma"
)

// surveyOf reads a machine: files of its sysfs, and words for what else is known.
func surveyOf(t *testing.T, text string) survey {
	t.Helper()
	s := survey{addresses: map[string][]string{}}
	fsys, known, denied := fstest.MapFS{}, "", ""
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "":
		case "rdma":
			s.rdma = errors.New("rdma: " + rest)
		case "note":
			s.notes = append(s.notes, rest)
		case "address":
			f := strings.Fields(rest)
			s.addresses[f[0]] = f[1:]
		case "limit":
			name, value, _ := strings.Cut(rest, "=")
			s.limits = append(s.limits, rdma.Limit{Name: name, Value: value})
		case "known":
			known = rest
		case "denied":
			denied = rest
		default:
			if !strings.HasPrefix(word, "sys/") {
				t.Fatalf("unknown line %q", line)
			}
			fsys[word] = &fstest.MapFile{Data: []byte(rest + "\n")}
		}
	}
	s.devices = rdma.DevicesIn(fsys)
	for i := range s.devices {
		switch d := &s.devices[i]; d.Name {
		case known:
			d.MTUs = []rdma.MTU{{Active: 1024, Max: 4096}}
			d.InUse = map[string]int64{"qp": 1, "cq": 2, "mr": 0, "pd": 1, "cm_id": 12345, "ctx": 3}
			d.Limits = &rdma.DeviceLimits{
				QPs: 1048560, QPWorkRequests: 16384, SGEs: 30, CQs: 65536, CQEntries: 32767, MRs: 524287, PDs: 1000, AHs: 32767,
				ReadsAsTarget: 16, ReadsAsInitiator: 8, MRSize: 1 << 40,
			}
		case denied:
			d.Err = unix.EACCES
		}
	}
	return s
}

// TestDevicesText compares what is printed about the machines in testdata.
// Rewrite with -rewrite, then read the difference.
func TestDevicesText(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "devices"), func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return surveyOf(t, d.Input).report().text()
		})
	})
}

// TestDevicesCommand: it explains this machine, whatever it has, exit code 0,
// the same in both forms.
func TestDevicesCommand(t *testing.T) {
	var text, asJSON, stderr bytes.Buffer
	if code := run(t.Context(), []string{"devices"}, nil, &text, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit %d, %s", code, stderr.String())
	}
	if code := run(t.Context(), []string{"devices", "--json"}, nil, &asJSON, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit %d, %s", code, stderr.String())
	}
	var r deviceReport
	if err := json.Unmarshal(asJSON.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Providers) != 2 || !r.Providers[0].Usable || r.Providers[1].Usable != (r.Providers[1].Reason == nil) {
		t.Errorf("providers %+v", r.Providers)
	}
	if r.Devices == nil || len(r.Limits) == 0 {
		t.Errorf("%s", asJSON.String())
	}
	for _, p := range r.Providers {
		want := "usable"
		if p.Reason != nil {
			want = "not usable: " + *p.Reason
		}
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("the text does not say %q of %s:\n%s", want, p.Name, text.String())
		}
	}
	if code := run(t.Context(), []string{"devices", "all"}, nil, &text, &stderr); code != 2 {
		t.Errorf("a word too many: exit %d", code)
	}
}
