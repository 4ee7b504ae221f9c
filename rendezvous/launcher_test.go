package rendezvous

import (
	"strings"
	"testing"

	"rankstorm/rank"
)

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want Launch
		err  string
	}{
		{nil, Launch{Proc: -1, LocalIndex: -1}, ""},
		{map[string]string{"RANKSTORM_RANK": "3", "RANKSTORM_PROCS": "4", "RANKSTORM_JOB": "j", "RANKSTORM_CONTROLLER": "n0:1"},
			Launch{Family: "rankstorm", Proc: 3, Procs: 4, LocalIndex: -1, JobKey: "j", Controller: "n0:1"}, ""},
		{map[string]string{"RANKSTORM_RANK": "0"}, Launch{Family: "rankstorm", Proc: 0, LocalIndex: -1}, ""},
		{map[string]string{"RANKSTORM_CONTROLLER": "n0"}, Launch{Family: "rankstorm", Proc: -1, LocalIndex: -1, Controller: "n0"}, ""},
		{map[string]string{"RANKSTORM_RANK": "x"}, Launch{}, "RANKSTORM_RANK=x"},
		{map[string]string{"RANKSTORM_RANK": "-1"}, Launch{}, "RANKSTORM_RANK=-1"},
		{map[string]string{"RANKSTORM_PROCS": "0"}, Launch{}, "RANKSTORM_PROCS=0"},
		{map[string]string{"RANKSTORM_RANK": "4", "RANKSTORM_PROCS": "4"}, Launch{}, "RANKSTORM_RANK=4 is outside 0 … 3"},
	} {
		got, err := Detect(func(name string) string { return c.env[name] })
		if c.err == "" {
			if err != nil || got != c.want {
				t.Errorf("%v: %+v, %v", c.env, got, err)
			}
			continue
		}
		if errorKind(err) != rank.KindUsage || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: error %v, want %q", c.env, err, c.err)
		}
	}
}

// An outer launcher's variables must not count when an inner one is complete.
func TestFamiliesInOrder(t *testing.T) {
	old := families
	defer func() { families = old }()
	families = append(families[:len(families):len(families)], family{"outer", func(env func(string) string) (Launch, bool, error) {
		l := unknownLaunch()
		l.Proc = 9
		return l, env("OUTER") != "", nil
	}})
	both := map[string]string{"OUTER": "1", "RANKSTORM_RANK": "1"}
	if l, err := Detect(func(n string) string { return both[n] }); err != nil || l.Family != "rankstorm" || l.Proc != 1 {
		t.Errorf("%+v %v", l, err)
	}
	if l, err := Detect(func(n string) string { return map[string]string{"OUTER": "1"}[n] }); err != nil || l.Family != "outer" || l.Proc != 9 {
		t.Errorf("%+v %v", l, err)
	}
}
