package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rankstorm/phases"
	"rankstorm/rank"
)

// helpCommand prints a command's help, and the topics, which come from the
// catalogues that the program itself works with.
func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	topics := map[string]func() error{"phases": a.helpPhases, "topologies": a.helpTopologies}
	return &cobra.Command{
		Use:   "help [command | phases | topologies]",
		Short: "Help about a command, the phases of a job or the topologies",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return root.Help()
			}
			if topic, ok := topics[args[0]]; ok && len(args) == 1 {
				return topic()
			}
			cmd, rest, err := root.Find(args)
			if err != nil || cmd == root || len(rest) > 0 {
				return usagef("no help about %q: there is help for run, plan, devices, cmtime, version, phases and topologies", strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
}

func (a *app) helpPhases() error {
	var b strings.Builder
	b.WriteString("The phases of a job, in order. Those in lockstep begin on all ranks at an\nagreed moment.\n\n")
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range phases.Catalogue() {
		var notes []string
		if e.Lockstep {
			notes = append(notes, "lockstep")
		}
		if e.Once {
			notes = append(notes, "once")
		}
		if e.Staged {
			notes = append(notes, "per stage")
		}
		if !phases.Enters(e.Token) {
			notes = append(notes, "nothing to do in this version")
		}
		steps := make([]string, len(e.Steps))
		for i, s := range e.Steps {
			steps[i] = s.String()
		}
		line := e.Title
		if len(notes) > 0 {
			line += " (" + strings.Join(notes, ", ") + ")"
		}
		fmt.Fprintf(tab, "  %s\t%s\n", e.Token, line)
		for ; len(steps) > 0; steps = steps[min(4, len(steps)):] {
			fmt.Fprintf(tab, "  \t  %s\n", strings.Join(steps[:min(4, len(steps))], ", "))
		}
	}
	return a.printTable(&b, tab)
}

func (a *app) helpTopologies() error {
	var b strings.Builder
	b.WriteString("The topologies: who connects to whom. No rank connects to itself.\n\n")
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range rank.TopologyNames() {
		fmt.Fprintf(tab, "  %s\t%s\n", name, rank.TopologySummary(name))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	b.WriteString(topologyNotes)
	return a.print(b.String())
}

const topologyNotes = `
--initiators, --targets and --hot take ranks, ranges and hosts, separated by
commas: 7, 0-3, 0-15:2 (every second), n1, gpu*, n[01-16].

The file of --custom is a list of edges or a matrix. Empty lines and what
follows a # do not count. A list has the initiators, a colon, and their targets,
each with a weight if you like (1):

  0: 1, 2-5
  n1: 0*3, 4

A matrix has a line for each rank, with the bytes that it has for each rank in
turn, separated by blanks or commas; K, M, G, T are powers of 1024, and 0 is no
edge:

  0 4K 4K
  1M 0 0
  0 0 0

Weights (hotspot, custom) are shares of the data of an initiator. This version
transfers none: each edge gets the connections of -c, whatever it weighs.
`

func (a *app) printTable(b *strings.Builder, tab *tabwriter.Writer) error {
	if err := tab.Flush(); err != nil {
		return err
	}
	return a.print(b.String())
}
