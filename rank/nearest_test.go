package rank

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"topology", "threads", "targets", "run", "plan", "all_to_all", "ranks-per-proc"}
	for word, want := range map[string]string{
		"topolgy": "topology", "treads": "threads", "plna": "plan", "target": "targets", "topo": "topology", "x": "", "all2all": "all_to_all", "RANKS-PER-PORC": "ranks-per-proc", "frobnicate": "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
