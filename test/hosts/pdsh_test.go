package hosts

import (
	"strings"
	"testing"
	"time"
)

// With its default fan-out pdsh starts 32 of 40: the trap is named while they
// wait, and they give up with 3 at the join timeout.
func TestPdshDefaultFanOut(t *testing.T) {
	sshUp(t, 40)
	out := resultFile(t)
	begun := time.Now()
	r := start(t, "pdsh", lab("ssh", "exec", "pdsh", "-S", "rankstorm", "run", "-C", "n0", "-P", "40", "--join-timeout", "20s", "-o", out))
	r.says(t, "exactly 32 came: pdsh starts only 32 at a time by default: use pdsh -f 40", 30*time.Second)
	t.Logf("named after %v, 32 ssh logins included", time.Since(begun).Round(100*time.Millisecond))
	r.wait(t, 2*time.Minute) // the last 8 have their turn, and nobody to meet
	if r.code != 3 {
		t.Errorf("pdsh -S ended with %d, want 3\n%s", r.code, r.said())
	}
	if said := r.stderr.String(); !strings.Contains(said, "8 of 40 processes") {
		t.Errorf("nobody counts the 8 that are missing:\n%s", r.said())
	}
}
