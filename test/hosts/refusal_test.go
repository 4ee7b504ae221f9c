package hosts

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Whoever does not fit is refused by one line of the controller and one of its
// own, both with both values, ends with 3, and the job does not care.
func TestRefusals(t *testing.T) {
	hostsUp(t, 2)
	other := filepath.Join(folder, "bin", "rankstorm-other")
	if err := build(other, "-ldflags", "-X main.version=9.9.9"); err != nil {
		t.Fatal(err)
	}
	line := []string{"run", "-C", "n0", "-P", "4"}
	cases := []struct {
		name           string
		program        string
		job            []string // added to every good line
		numbered       bool     // good ones have --rank
		offender       []string // added to the offender's line
		offenderNumber string   // its --rank
		full           bool     // it comes when everybody is there
		offenderSays   []string // all of them
		controllerSays []string
	}{
		{
			name: "another setting", job: []string{"-c", "3"}, offender: []string{"-c", "5"},
			offenderSays: []string{"setting connections", `"5"`, `"3"`}, controllerSays: []string{"refused n1 pid", "setting connections", `"5"`, `"3"`},
		},
		{
			name: "duplicate rank", numbered: true, offenderNumber: "0",
			offenderSays: []string{"process number 0 is taken by n0 pid"}, controllerSays: []string{"refused n1 pid", "process number 0 is taken by n0 pid"},
		},
		{
			name: "number not given", numbered: true,
			offenderSays: []string{"process number", "not given"}, controllerSays: []string{"refused n1 pid", "not given"},
		},
		{
			name: "another number of processes", offender: []string{"-P", "5"},
			offenderSays: []string{"-P", "is 5 here, 4 at the controller"}, controllerSays: []string{"refused n1 pid", "is 5 there, 4 here"},
		},
		{
			name: "one process too many", full: true, job: []string{"--hold", "connect=4s"}, offender: []string{"--hold", "connect=4s"},
			offenderSays: []string{"already started with -P 4"}, controllerSays: []string{"refused n1 pid", "already started with -P 4"},
		},
		{
			name: "another job", job: []string{"--job", "monday"}, offender: []string{"--job", "tuesday"},
			offenderSays: []string{"job key", `"tuesday"`, `"monday"`}, controllerSays: []string{"refused n1 pid", `"tuesday"`, `"monday"`},
		},
		{
			name: "another build", program: other,
			offenderSays: []string{"build id"}, controllerSays: []string{"refused n1 pid", "build id"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out := resultFile(t)
			good := func(i int) *running {
				args := append(append([]string{}, line...), c.job...)
				if c.numbered {
					args = append(args, "--rank", fmt.Sprint(i))
				}
				return onHost(t, host(i%2), append(args, "-o", out)...)
			}
			// The controller is process 0; the last comes after the offender.
			all := []*running{good(0)}
			all[0].says(t, "waiting for 3 of 4 processes", 20*time.Second)
			all = append(all, good(1), good(2))
			if c.full {
				all = append(all, good(3))
				all[0].says(t, "hold", 20*time.Second)
			}
			program := binary
			if c.program != "" {
				program = c.program
			}
			args := append([]string{"exec", "n1", program}, line...)
			if c.offender == nil {
				args = append(args, c.job...)
			}
			args = append(args, c.offender...)
			if c.offenderNumber != "" {
				args = append(args, "--rank", c.offenderNumber)
			}
			begun := time.Now()
			offender := start(t, "offender", lab("hosts", args...))
			offender.wait(t, 20*time.Second)
			if offender.code != 3 {
				t.Errorf("the offender ended with %d, want 3\n%s", offender.code, offender.said())
			}
			t.Logf("offender refused after %v: %s", offender.ended.Sub(begun).Round(time.Millisecond), strings.TrimSpace(offender.stderr.String()))
			for _, text := range c.offenderSays {
				if !strings.Contains(offender.stderr.String(), text) {
					t.Errorf("the offender does not say %q:\n%s", text, offender.stderr.String())
				}
			}
			if offender.stdout.String() != "" {
				t.Errorf("the offender printed:\n%s", offender.stdout.String())
			}
			if !c.full {
				all = append(all, good(3))
			}
			waitAll(t, all, 0, time.Minute)
			perEdge := 1
			if c.name == "another setting" {
				perEdge = 3
			}
			clean(t, out, wanted{procs: 4, connections: allToAll(4, perEdge), perHost: spread(2, 2)})
			for _, text := range c.controllerSays {
				if !strings.Contains(all[0].stderr.String(), text) {
					t.Errorf("the controller does not say %q:\n%s", text, all[0].stderr.String())
				}
			}
		})
	}
}
