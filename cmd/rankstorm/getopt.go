package main

import (
	"fmt"
	"io"
	"strings"
)

// getopt takes a command line apart as getopt(3) of the GNU library does: letters
// may share a word, a value follows in the same word or is the next one, whatever
// that is, words that are no option are passed over, and -- ends the options. A
// word that begins with -- and goes on is left to the caller.
type getopt struct {
	name     string // of the program, for complaints
	spec     string // letters; a colon after one that takes a value
	args     []string
	complain io.Writer

	cluster  string   // rest of the word in hand
	operands []string // words that are no option, complete at the end
}

// shortOption is one letter with its value, or a whole word that begins with --;
// neither at the end.
type shortOption struct {
	letter byte
	value  string
	long   string
}

// shown is a letter as a complaint can show it.
func shown(letter byte) string {
	if letter < ' ' || letter > '~' {
		return "?"
	}
	return string(letter)
}

// next option. The error is errCmtimeUsage; what is wrong has been complained
// about, as getopt does.
func (g *getopt) next() (shortOption, error) {
	for g.cluster == "" {
		if len(g.args) == 0 {
			return shortOption{}, nil
		}
		word := g.args[0]
		g.args = g.args[1:]
		switch {
		case word == "--":
			g.operands = append(g.operands, g.args...)
			g.args = nil
		case strings.HasPrefix(word, "--"):
			return shortOption{long: word}, nil
		case len(word) > 1 && word[0] == '-':
			g.cluster = word[1:]
		default:
			g.operands = append(g.operands, word)
		}
	}
	o := shortOption{letter: g.cluster[0]}
	g.cluster = g.cluster[1:]
	at := strings.IndexByte(g.spec, o.letter)
	switch {
	case at < 0 || o.letter == ':':
		fmt.Fprintf(g.complain, "%s: invalid option -- '%s'\n", g.name, shown(o.letter))
		return o, errCmtimeUsage
	case at+1 == len(g.spec) || g.spec[at+1] != ':': // no value
	case g.cluster != "":
		o.value, g.cluster = g.cluster, ""
	case len(g.args) == 0:
		fmt.Fprintf(g.complain, "%s: option requires an argument -- '%c'\n", g.name, o.letter)
		return o, errCmtimeUsage
	default:
		o.value, g.args = g.args[0], g.args[1:]
	}
	return o, nil
}
