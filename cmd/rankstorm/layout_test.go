package main

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"rankstorm/rank"
)

func TestLayout(t *testing.T) {
	const text = `plan prints edges, connections and ports
of a job.

  -c, --connections int   connections per edge (default 1)
      --seed number       number that all random choices derive from
ports   28,232   at most

`
	for columns, want := range map[int]string{
		0:  text,
		68: text,
		50: `plan prints edges, connections and ports
of a job.

  -c, --connections int   connections per edge
                          (default 1)
      --seed number       number that all random
                          choices derive from
ports   28,232   at most

`,
		30: `plan prints edges, connections
and ports of a job.

  -c, --connections int
      connections per edge
      (default 1)
      --seed number
          number that all
          random choices
          derive from
ports   28,232   at most

`,
	} {
		if got := layout(text, columns); got != want {
			t.Errorf("%d columns: got\n%s\nwant\n%s", columns, got, want)
		}
	}
	const figures = "   a rank has    fewest    median      most   in all\n"
	if got := layout(figures, 40); got != figures {
		t.Errorf("a row of figures was torn: %q", got)
	}
}

// TestHelpFits: no help text has a line that a terminal breaks in a word, and
// none is lost in the way.
func TestHelpFits(t *testing.T) {
	var texts []string
	root := (&app{}).rootCommand()
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		texts = append(texts, c.Long+"\n\n"+c.UsageString())
	}
	texts = append(texts, topologyNotes)
	for _, text := range texts {
		for _, columns := range []int{40, 80} {
			laid := layout(text, columns)
			for line := range strings.Lines(laid) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%d cells on %d: %q", n, columns, line)
				}
			}
			if got, want := strings.Fields(laid), strings.Fields(text); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("on %d columns words were lost or moved:\n%s", columns, laid)
			}
		}
	}
}

// TestTopologyNotes: the examples in the help text are custom files that the program reads.
func TestTopologyNotes(t *testing.T) {
	examples := regexp.MustCompile(`(?m)(?:^  .*\n)+`).FindAllString(topologyNotes, -1)
	if len(examples) != 2 {
		t.Fatalf("%d examples: %q", len(examples), examples)
	}
	for i, view := range []rank.View{rank.NewLayout(6, 3), rank.NewLayout(3, 1)} {
		topology, err := rank.NewTopology(view, rank.Params{Name: "custom", File: "help", Custom: []byte(examples[i])})
		if err != nil {
			t.Errorf("%v: %q", err, examples[i])
			continue
		}
		if !rank.Weighted(topology) == (i == 0) {
			t.Errorf("weights of %q are not seen", examples[i])
		}
	}
}
