// Package need is how a test says that this machine lacks something.
package need

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Required says that RANKSTORM_REQUIRE, a list with commas that test/run.sh
// sets, has a name: what it stands for must be here.
func Required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("RANKSTORM_REQUIRE"), ","), what)
}

// Absent ends a test that cannot run here because something is absent, and says
// why: it fails where that is required, and is skipped elsewhere.
func Absent(t testing.TB, what, format string, args ...any) {
	t.Helper()
	if Required(what) {
		t.Fatalf("RANKSTORM_REQUIRE names "+what+": "+format, args...)
	}
	t.Skipf(format, args...)
}
