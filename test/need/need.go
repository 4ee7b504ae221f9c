// Package need is how a test says that this machine lacks something.
package need

import (
	"fmt"
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

// Run is the exit code of test/WHAT, whose tests run only where they are required, with
// make test-WHAT: these says what they do to a machine.
func Run(what, these string, tests func() (code int, err error)) int {
	if !Required(what) {
		fmt.Fprintf(os.Stderr, "test/%s: skipped: these tests %s; run them with: make test-%s\n", what, these, what)
		return 0
	}
	code, err := tests()
	if err != nil {
		fmt.Fprintf(os.Stderr, "test/%s: %v\n", what, err)
		return 1
	}
	return code
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
