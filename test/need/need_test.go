package need

import (
	"errors"
	"testing"
)

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

func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		require string
		code    int
		err     error
		want    int
		ran     bool
	}{{"", 3, nil, 0, false}, {"rdma", 3, nil, 0, false}, {"hosts", 3, nil, 3, true}, {"hosts", 0, nil, 0, true}, {"hosts", 0, broken, 1, true}} {
		t.Setenv("RANKSTORM_REQUIRE", c.require)
		ran := false
		got := Run("hosts", "do nothing", func() (int, error) { ran = true; return c.code, c.err })
		if got != c.want || ran != c.ran {
			t.Errorf("%+v: %d, ran %v", c, got, ran)
		}
	}
}
