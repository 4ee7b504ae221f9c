package collect

import (
	"strconv"
	"strings"
)

// FormatDuration prints ns with three significant digits and the unit that
// makes the number lie in 1 … 999: "7.10 µs". It rounds half up, in integers.
// From 1,000 s on it prints whole seconds with separators.
func FormatDuration(ns int64) string {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	if ns < 1000 {
		return sign + strconv.FormatInt(ns, 10) + " ns"
	}
	for _, u := range []struct {
		ns   int64
		name string
	}{{1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}} {
		if ns >= 1000*u.ns {
			continue
		}
		for decimals, scale := 2, int64(100); decimals >= 0; decimals, scale = decimals-1, scale/10 {
			if q := (ns*scale + u.ns/2) / u.ns; q < 1000 {
				return sign + point(q, decimals) + " " + u.name
			}
		}
	}
	s := ns / 1e9
	if ns%1e9 >= 5e8 {
		s++
	}
	return sign + FormatCount(s) + " s"
}

// FormatCount prints n with thousands separators: "3,840".
func FormatCount(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	var b strings.Builder
	b.WriteString(s[:len(s)-len(digits)])
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// FormatBytes prints a size with three significant digits, in powers of 1,024.
func FormatBytes(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	unit := int64(1024)
	for _, name := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if n < 1000*unit || name == "PiB" {
			whole, rest := n/unit, n%unit
			for decimals, scale := 2, int64(100); decimals >= 0; decimals, scale = decimals-1, scale/10 {
				if q := whole*scale + (rest*scale+unit/2)/unit; q < 1000 || decimals == 0 {
					return point(q, decimals) + " " + name
				}
			}
		}
		unit *= 1024
	}
	return strconv.FormatInt(n, 10) + " B"
}

// point prints q / 10^decimals: point(98, 2) is "0.98".
func point(q int64, decimals int) string {
	text := strconv.FormatInt(q, 10)
	if decimals == 0 {
		return text
	}
	if missing := decimals + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	return text[:len(text)-decimals] + "." + text[len(text)-decimals:]
}
