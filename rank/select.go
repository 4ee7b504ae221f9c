package rank

import (
	"slices"
	"strconv"
	"strings"
)

// ParseSelection reads a selection of ranks of v: words separated by commas,
// each
//
//	7        a rank
//	0-3      a range
//	0-15:2   a range with a stride
//	n1, gpu* all ranks of the hosts of that name or pattern
//
// In patterns * is any text, ? one character, [abc] and [a-f] and [^x] one
// character of a set, and brackets of numbers only are numbers as in host
// lists: n[0-15] or n[01-16,20]. A word that reads as a number or range is
// never a host. The result is ascending without repeats. Errors are *Error of
// KindUsage and name the bad word and what is valid.
func ParseSelection(text string, v View) ([]Rank, error) {
	var ranks []Rank
	for _, word := range splitWords(text) {
		word = strings.TrimSpace(word)
		found, err := selectWord(ranks, word, v)
		if err != nil {
			return nil, err
		}
		ranks = found
	}
	slices.Sort(ranks)
	return slices.Compact(ranks), nil
}

// selectWord appends the ranks that one word names.
func selectWord(ranks []Rank, word string, v View) ([]Rank, error) {
	if word == "" {
		return nil, Errorf(KindUsage, "empty word in a selection: give ranks (%s), ranges or host names", validRanks(v))
	}
	if strings.Trim(word, "0123456789-:") == "" {
		lo, hi, step, ok := parseRange(word)
		switch {
		case !ok || step < 1:
			return nil, Errorf(KindUsage, "%q is no rank or range: write 7, 0-3 or 0-15:2; ranks are %s", word, validRanks(v))
		case lo > hi:
			return nil, Errorf(KindUsage, "range %q runs backwards: write %d-%d", word, hi, lo)
		case hi >= int64(v.Size()):
			return nil, Errorf(KindUsage, "%q is outside the job: ranks are %s", word, validRanks(v))
		}
		for r := lo; r <= hi; r += step {
			ranks = append(ranks, Rank(r))
		}
		return ranks, nil
	}
	if !strings.ContainsAny(word, "*?[") {
		if on := v.HostRanks(word); len(on) > 0 {
			return append(ranks, on...), nil
		}
	} else {
		pattern, ok := parsePattern(word)
		if !ok {
			return nil, Errorf(KindUsage, "%q is no host pattern: a bracket is not closed or empty", word)
		}
		before := len(ranks)
		for _, h := range v.Hosts() {
			if pattern.match(h) {
				ranks = append(ranks, v.HostRanks(h)...)
			}
		}
		if len(ranks) > before {
			return ranks, nil
		}
	}
	return nil, Errorf(KindUsage, "%q matches no host: hosts are %s; ranks are %s", word, listOf(v.Hosts()), validRanks(v))
}

func validRanks(v View) string {
	if v.Size() <= 1 {
		return "0"
	}
	return "0-" + strconv.Itoa(v.Size()-1)
}

// splitWords splits at commas outside brackets.
func splitWords(text string) []string {
	var words []string
	begin, open := 0, false
	for i := range len(text) {
		switch text[i] {
		case '[':
			open = true
		case ']':
			open = false
		case ',':
			if !open {
				words = append(words, text[begin:i])
				begin = i + 1
			}
		}
	}
	return append(words, text[begin:])
}

func itoa(n int) string { return strconv.Itoa(n) }
