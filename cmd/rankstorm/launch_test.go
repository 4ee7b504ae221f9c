package main

import (
	"testing"

	"github.com/spf13/pflag"

	"rankstorm/rank"
	"rankstorm/rendezvous"
)

// TestLaunch: flags win over their variables, these over what a parent or
// launcher left; each part on its own.
func TestLaunch(t *testing.T) {
	left := rendezvous.Launch{Family: "spawn", Proc: 1, Procs: 4, LocalIndex: 1, LocalSize: 4, JobKey: "left", Controller: "left:1"}
	nothing := rendezvous.Launch{Proc: -1, LocalIndex: -1}
	cases := []struct {
		name    string
		args    []string
		environ []string
		found   rendezvous.Launch
		want    rendezvous.Launch
	}{
		{name: "left alone", found: left, want: left},
		{
			name: "by flags", args: []string{"-C", "n0", "-P", "2", "--rank", "0", "--job", "j"}, found: nothing,
			want: rendezvous.Launch{Proc: 0, Procs: 2, LocalIndex: -1, JobKey: "j", Controller: "n0"},
		},
		{
			name: "by variables", environ: []string{"RANKSTORM_CONTROLLER=n0", "RANKSTORM_PROCS=2", "RANKSTORM_RANK=1"}, found: nothing,
			want: rendezvous.Launch{Proc: 1, Procs: 2, LocalIndex: -1, Controller: "n0"},
		},
		{
			name: "each over the next", args: []string{"-C", "flag"}, environ: []string{"RANKSTORM_CONTROLLER=env", "RANKSTORM_JOB=env"}, found: left,
			want: rendezvous.Launch{Family: "spawn", Proc: 1, Procs: 4, LocalIndex: 1, LocalSize: 4, JobKey: "env", Controller: "flag"},
		},
	}
	for _, c := range cases {
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		var r runFlags
		r.register(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if err := newEnvironment(c.environ).apply("run", flags); err != nil {
			t.Fatal(err)
		}
		got, err := r.launch(c.found)
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
}

func TestOwnRecord(t *testing.T) {
	job := &prepared{launch: rendezvous.Launch{Proc: 3, LocalIndex: 1}, bind: []string{"10.0.0.1", "10.0.1.1"}}
	parent := &rendezvous.Inheritance{Host: "h1"}
	plain, err := ownRecord(&runFlags{}, job, nil)
	if err != nil || plain.Host == "" || plain.PID == 0 || plain.LauncherProc != 3 || plain.LocalIndex != 1 {
		t.Fatalf("got %+v, %v", plain, err)
	}
	if want := (rank.KV{Key: "bind", Value: "10.0.0.1,10.0.1.1"}); len(plain.Own) != 1 || plain.Own[0] != want {
		t.Errorf("got %+v, want %+v", plain.Own, want)
	}
	for _, c := range []struct {
		flags runFlags
		in    *rendezvous.Inheritance
		want  string
	}{{runFlags{host: "n9"}, nil, "n9"}, {runFlags{}, parent, "h1"}, {runFlags{host: "n9"}, parent, "n9"}} {
		if got, err := ownRecord(&c.flags, job, c.in); err != nil || got.Host != c.want {
			t.Errorf("got %q, %v, want %q", got.Host, err, c.want)
		}
	}
}
