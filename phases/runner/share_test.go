package runner

import (
	"os"
	"strconv"
	"testing"
)

// share is how many of so many seeded jobs, or of so many processes, a test runs: a tenth with -short, and of all others
// RANKSTORM_SHARE percent, 100 if it is not set. Under the race detector a job takes ten times as long.
func share(t *testing.T, all int) int {
	t.Helper()
	percent := 100
	if testing.Short() {
		percent = 10
	}
	if s := os.Getenv("RANKSTORM_SHARE"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 100_000 {
			t.Fatalf("RANKSTORM_SHARE=%s: want a percentage from 1 to 100000", s)
		}
		percent = n
	}
	return max(1, all*percent/100)
}

// seeds from 1 to n, or the one of -seed.
func seeds(n int) (list []uint64) {
	if *faultSeed != 0 {
		return []uint64{*faultSeed}
	}
	for i := range n {
		list = append(list, uint64(i)+1)
	}
	return list
}
