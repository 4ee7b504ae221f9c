package phases

import (
	"slices"
	"strings"
	"testing"

	"rankstorm/rank"
	"rankstorm/transport"
)

func TestCatalogueHoldsEveryStepOnce(t *testing.T) {
	seen := map[transport.Step]Token{}
	tokens := map[Token]bool{}
	for _, e := range Catalogue() {
		if tokens[e.Token] {
			t.Errorf("phase %s is listed twice", e.Token)
		}
		tokens[e.Token] = true
		if e.Title == "" {
			t.Errorf("phase %s has no title", e.Token)
		}
		for _, s := range e.Steps {
			if other, twice := seen[s]; twice {
				t.Errorf("step %s is in %s and in %s", s, other, e.Token)
			}
			seen[s] = e.Token
			if !e.Lockstep {
				t.Errorf("phase %s has step %s but is not in lockstep", e.Token, s)
			}
		}
	}
	for s := range transport.StepCount {
		if _, ok := seen[s]; !ok {
			t.Errorf("no phase has step %s", s)
		}
	}
}

func TestCatalogueOrder(t *testing.T) {
	want := "gather seal clock create bind listen publish resolve register qp connect probe transfer disconnect destroy"
	if got := namesOf(func(Entry) bool { return true }); got != want {
		t.Errorf("order\n%s, want\n%s", got, want)
	}
}

func TestCatalogueIsACopy(t *testing.T) {
	Catalogue()[10].Steps[0] = transport.StepDestroyID
	if e, _ := Lookup(Connect); e.Steps[0] != transport.StepConnect {
		t.Errorf("a caller changed the catalogue: connect begins with %s", e.Steps[0])
	}
}

// What a flag lists when it refuses a phase is what it takes, and nothing else.
func TestListedPhasesAreTaken(t *testing.T) {
	for name, flag := range map[string]struct {
		take func(phase string) error
		list string
	}{
		"hold":  {func(p string) error { _, err := ParseHold(p + "=1s"); return err }, enteredNames()},
		"delay": {func(p string) error { _, err := ParseDelay("rank=0,phase=" + p + ",ms=1"); return err }, lockstepNames()},
	} {
		for _, e := range append(Catalogue(), Entry{Token: "conect"}) {
			err := flag.take(string(e.Token))
			if listed := slices.Contains(strings.Fields(flag.list), string(e.Token)); listed != (err == nil) {
				t.Errorf("--%s of phase %s: %v, but it is listed: %v", name, e.Token, err, listed)
			}
			if err != nil && (rank.ExitCode(err) != 2 || !strings.Contains(err.Error(), flag.list)) {
				t.Errorf("--%s of phase %s: %v: not a usage error that lists %s", name, e.Token, err, flag.list)
			}
		}
	}
}
