package phases

import (
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
	if got := tokenNames(); got != want {
		t.Errorf("order\n%s, want\n%s", got, want)
	}
}

func TestCatalogueIsACopy(t *testing.T) {
	Catalogue()[10].Steps[0] = transport.StepDestroyID
	if e, _ := Lookup(Connect); e.Steps[0] != transport.StepConnect {
		t.Errorf("a caller changed the catalogue: connect begins with %s", e.Steps[0])
	}
}

func TestParseToken(t *testing.T) {
	for _, e := range Catalogue() {
		if got, err := ParseToken(string(e.Token)); err != nil || got != e.Token {
			t.Errorf("ParseToken(%q) = %q, %v", e.Token, got, err)
		}
	}
	_, err := ParseToken("Connect")
	if rank.ExitCode(err) != 2 {
		t.Errorf("ParseToken(Connect): %v, want a usage error", err)
	}
	if _, ok := Lookup("nonesuch"); ok {
		t.Error("Lookup found a phase that does not exist")
	}
}
