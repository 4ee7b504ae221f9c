package need

import "testing"

// ended records how Absent ended the test; it goes on, unlike the real one.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper()               {}
func (e *ended) Fatalf(string, ...any) { e.how += "failed " }
func (e *ended) Skipf(string, ...any)  { e.how += "skipped " }

func TestAbsent(t *testing.T) {
	for require, want := range map[string]string{
		"": "skipped ", "python": "skipped ", "ipv60": "skipped ",
		"ipv6": "failed skipped ", "python,ipv6,x": "failed skipped ",
	} {
		t.Setenv("RANKSTORM_REQUIRE", require)
		e := &ended{TB: t}
		if Absent(e, "ipv6", "none"); e.how != want {
			t.Errorf("RANKSTORM_REQUIRE=%s: %s, want %s", require, e.how, want)
		}
	}
}
