package rank

import "strings"

// Nearest is the candidate that a typed word was probably meant to be, "" if
// none is close: at most 2 edits, and at most half of the word; failing that,
// the first that begins with it. Case and separators do not count.
func Nearest(word string, candidates []string) string {
	fold := strings.NewReplacer("-", "", "_", "", " ", "")
	plain := func(s string) string { return fold.Replace(strings.ToLower(s)) }
	want := plain(word)
	best, bestAt := "", 3
	for _, c := range candidates {
		if d := edits(plain(c), want); d < bestAt && 2*d <= len(want) {
			best, bestAt = c, d
		}
	}
	if best != "" || len(want) < 3 {
		return best
	}
	for _, c := range candidates {
		if strings.HasPrefix(plain(c), want) {
			return c
		}
	}
	return ""
}

// edits is the Levenshtein distance. Long input is cut: it is a typed word.
func edits(a, b string) int {
	if len(b) > 64 {
		b = b[:64]
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
