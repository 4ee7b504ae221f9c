package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"rankstorm/rank"
	"rankstorm/rendezvous"
)

// TestLaunch: flags win over their variables, these over what a parent or
// launcher left; each part on its own.
func TestLaunch(t *testing.T) {
	left := rendezvous.Launch{Family: "spawn", Proc: 1, Procs: 4, LocalIndex: 1, LocalSize: 4, JobKey: "left", Controller: "left:1", Port: 7471}
	step := rendezvous.Launch{
		Family: "Slurm", Proc: 1, Procs: 4, Launched: 4, LocalIndex: 1, LocalSize: 2, JobKey: "7.0.0", Controller: "h0", ControllerFrom: "the first host", Port: 18544,
		Hosts: []rendezvous.LaunchHost{{Name: "h0", Procs: 2}, {Name: "h1", Procs: 2}}, Ignored: []string{"Kubernetes"},
	}
	with := func(l rendezvous.Launch, change func(*rendezvous.Launch)) rendezvous.Launch { change(&l); return l }
	batch := rendezvous.Launch{Proc: -1, LocalIndex: -1, Advice: "put srun in front"}
	pod := rendezvous.Launch{Family: "Kubernetes", Proc: 3, LocalIndex: -1, Advice: "name pod 0 with -C"}
	nothing := rendezvous.Launch{Proc: -1, LocalIndex: -1}
	cases := []struct {
		name    string
		args    []string
		environ []string
		found   rendezvous.Launch
		want    rendezvous.Launch
		err     string
	}{
		{name: "left alone", found: left, want: left},
		{
			name: "by flags", args: []string{"-C", "n0", "-P", "2", "--rank", "0", "--job", "j"}, found: nothing,
			want: rendezvous.Launch{Proc: 0, Procs: 2, LocalIndex: -1, JobKey: "j", Controller: "n0", Port: 7471},
		},
		{
			name: "by variables", environ: []string{"RANKSTORM_CONTROLLER=n0", "RANKSTORM_PROCS=2", "RANKSTORM_RANK=1"}, found: nothing,
			want: rendezvous.Launch{Proc: 1, Procs: 2, LocalIndex: -1, Controller: "n0", Port: 7471},
		},
		{
			name: "each over the next", args: []string{"-C", "flag"}, environ: []string{"RANKSTORM_CONTROLLER=env", "RANKSTORM_JOB=env"}, found: left,
			want: with(left, func(l *rendezvous.Launch) { l.JobKey, l.Controller = "env", "flag" }),
		},
		{name: "a step needs no flags", found: step, want: step},
		{
			name: "a controller of one's own in a step", args: []string{"-C", "n9", "-P", "4"}, found: step,
			want: with(step, func(l *rendezvous.Launch) { l.Controller, l.ControllerFrom = "n9", "" }),
		},
		{
			name: "a job of several steps", args: []string{"-C", "h0", "-P", "8"}, found: step,
			want: rendezvous.Launch{Family: "Slurm", Proc: -1, Procs: 8, Launched: 4, LocalIndex: -1, Controller: "h0", Port: 7471, Ignored: step.Ignored},
		},
		{
			name: "a job of several steps with a name", args: []string{"--job", "j", "-C", "h0", "-P", "8", "--rank", "5"}, found: step,
			want: rendezvous.Launch{Family: "Slurm", Proc: 5, Procs: 8, Launched: 4, LocalIndex: -1, JobKey: "j", Controller: "h0", Port: 7471, Ignored: step.Ignored},
		},
		{name: "fewer than the step has", args: []string{"-P", "1"}, found: step, err: "-P/--procs 1: Slurm says that this is process 1 of 4: leave -P out, or start 1"},
		{name: "a number outside", args: []string{"--rank", "4"}, found: step, err: "--rank 4: a process of 4 has a number from 0 to 3"},
		{name: "a batch script", found: batch, err: "put srun in front"},
		{
			name: "a batch script that says all", args: []string{"-C", "n0", "-P", "2"}, found: batch,
			want: with(batch, func(l *rendezvous.Launch) { l.Controller, l.Procs, l.Port = "n0", 2, 7471 }),
		},
		{name: "a pod", found: pod, err: "name pod 0 with -C"},
		{name: "a pod without a count", args: []string{"-C", "storm-0.s"}, found: pod, err: "how many processes meet at storm-0.s"},
		{name: "nothing", found: nothing, err: "where do the processes meet, and how many"},
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
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || rank.ExitCode(err) != 2 {
				t.Errorf("%s: got %+v, %v, want error %q", c.name, got, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
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
