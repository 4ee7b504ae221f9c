package rank

import (
	"strconv"
	"strings"
)

// pattern matches host names. Its pieces match in turn.
type pattern []piece

type piece struct {
	any     bool          // *
	one     bool          // ?
	literal string        // this text
	chars   string        // [abc]: pairs of bounds
	not     bool          // [^…]
	numbers []numberRange // [0-15,20]
}

// numberRange matches lo … hi; width > 0 asks for that many digits.
type numberRange struct {
	lo, hi int64
	width  int
}

// parsePattern reads a host pattern; false if a bracket is not closed or
// empty.
func parsePattern(text string) (pattern, bool) {
	var p pattern
	for text != "" {
		switch text[0] {
		case '*':
			p = append(p, piece{any: true})
			text = text[1:]
		case '?':
			p = append(p, piece{one: true})
			text = text[1:]
		case '[':
			inside, rest, ok := strings.Cut(text[1:], "]")
			if !ok || inside == "" || inside == "^" {
				return nil, false
			}
			p = append(p, parseBracket(inside))
			text = rest
		default:
			n := strings.IndexAny(text, "*?[")
			if n < 0 {
				n = len(text)
			}
			p = append(p, piece{literal: text[:n]})
			text = text[n:]
		}
	}
	return p, true
}

// parseBracket reads what is between [ and ]: numbers if it can, else
// characters.
func parseBracket(inside string) piece {
	var numbers []numberRange
	for word := range strings.SplitSeq(inside, ",") {
		low, high, ranged := strings.Cut(word, "-")
		if !ranged {
			high = low
		}
		lo, ok := parseCount(low)
		hi, ok2 := parseCount(high)
		if !ok || !ok2 {
			return parseChars(inside)
		}
		r := numberRange{lo: lo, hi: hi}
		if len(low) > 1 && low[0] == '0' {
			r.width = len(low)
		}
		numbers = append(numbers, r)
	}
	return piece{numbers: numbers}
}

func parseChars(inside string) piece {
	chars, not := strings.CutPrefix(inside, "^")
	var pairs strings.Builder
	for i := 0; i < len(chars); i++ {
		lo, hi := chars[i], chars[i]
		if i+2 < len(chars) && chars[i+1] == '-' {
			hi = chars[i+2]
			i += 2
		}
		pairs.WriteByte(lo)
		pairs.WriteByte(hi)
	}
	return piece{chars: pairs.String(), not: not}
}

// match tells whether the whole name fits. It follows all ways to match at
// once, so that no pattern takes more than pieces × length² steps.
func (p pattern) match(name string) bool {
	here := make([]bool, len(name)+1) // positions that the pieces so far can end at
	next := make([]bool, len(name)+1)
	here[0] = true
	for i := range p {
		clear(next)
		for at, reached := range here {
			if reached {
				p[i].advance(name, at, next)
			}
		}
		here, next = next, here
	}
	return here[len(name)]
}

// advance marks where the piece can end if it begins at position at.
func (p *piece) advance(name string, at int, ends []bool) {
	rest := name[at:]
	switch {
	case p.any:
		for i := at; i < len(ends); i++ {
			ends[i] = true
		}
	case p.numbers != nil:
		for n := digits(rest); n > 0; n-- {
			if p.matchNumber(rest[:n]) {
				ends[at+n] = true
			}
		}
	case p.literal != "":
		if strings.HasPrefix(rest, p.literal) {
			ends[at+len(p.literal)] = true
		}
	case rest != "" && (p.one || p.matchChar(rest[0])):
		ends[at+1] = true
	}
}

func (p *piece) matchChar(c byte) bool {
	for i := 0; i+1 < len(p.chars); i += 2 {
		if p.chars[i] <= c && c <= p.chars[i+1] {
			return !p.not
		}
	}
	return p.not
}

func (p *piece) matchNumber(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return false
	}
	for _, r := range p.numbers {
		fits := len(text) == r.width || r.width == 0 && (text == "0" || text[0] != '0')
		if fits && r.lo <= n && n <= r.hi {
			return true
		}
	}
	return false
}
