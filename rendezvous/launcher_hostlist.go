package rendezvous

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds an expanded host list: an environment variable may hold
// ranges of any length.
const maxHosts = 1 << 20

// expandHostList expands Slurm's compressed lists: "a[01-03,9],b5",
// "r[1-2]n[0-3]". The list has at least one host.
func expandHostList(text string) ([]string, error) {
	var hosts []string
	for rest := text; ; {
		word, after, more, err := cutHostWord(rest)
		if err != nil {
			return nil, err
		}
		names, err := expandHostWord(word, maxHosts-len(hosts))
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, names...)
		if !more {
			return hosts, nil
		}
		rest = after
	}
}

// cutHostWord cuts at the first comma outside brackets.
func cutHostWord(text string) (word, after string, more bool, err error) {
	depth := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			return text[:i], text[i+1:], true, nil
		}
		if depth < 0 || depth > 1 {
			return "", "", false, errors.New("brackets do not match")
		}
	}
	if depth != 0 {
		return "", "", false, errors.New("brackets do not match")
	}
	return text, "", false, nil
}

// expandHostWord expands the brackets of one word; the last one runs fastest.
func expandHostWord(word string, most int) ([]string, error) {
	if word == "" {
		return nil, errors.New("an empty name in the host list")
	}
	names := []string{""}
	for word != "" {
		plain, rest, bracket := strings.Cut(word, "[")
		inside := ""
		if bracket {
			inside, rest, _ = strings.Cut(rest, "]") // they match, see cutHostWord
		}
		tails := []string{""}
		if bracket {
			var err error
			if tails, err = expandRanges(inside, most); err != nil {
				return nil, err
			}
		}
		if len(tails) > most/len(names) {
			return nil, fmt.Errorf("more than %d hosts", maxHosts)
		}
		grown := make([]string, 0, len(names)*len(tails))
		for _, n := range names {
			for _, t := range tails {
				grown = append(grown, n+plain+t)
			}
		}
		names, word = grown, rest
	}
	return names, nil
}

// expandRanges expands "01-03,9" to 01 02 03 9: the first number's width is
// kept.
func expandRanges(text string, most int) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.ParseUint(low, 10, 63)
		to, errTo := strconv.ParseUint(high, 10, 63)
		switch {
		case errFrom != nil || errTo != nil || to < from:
			return nil, fmt.Errorf("%s is no range of numbers", quote(part))
		case to-from >= uint64(max(most-len(out), 0)):
			return nil, fmt.Errorf("more than %d hosts", maxHosts)
		}
		for n := from; n <= to; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(low), n))
		}
	}
	return out, nil
}

// expandCounts expands "5,1(x3)" to 5 1 1 1; nil if it is not that, or longer
// than most.
func expandCounts(text string, most int) []int {
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		times := 1
		if before, repeat, ok := strings.Cut(part, "(x"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(repeat, ")"))
			if err != nil || n < 1 {
				return nil
			}
			part, times = before, n
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || times > most-len(out) {
			return nil
		}
		for range times {
			out = append(out, n)
		}
	}
	return out
}
