package phases

import (
	"testing"

	"rankstorm/rank"
)

// Values of --connect, --hold and --delay: what is taken says the same when it is written again.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{
		"burst", "parallel=8", "rate=0.5", "rate=1e9", "rate=NaN", "parallel=99999999999", "connect=2s", "probe=-1s", "create=1h1m1ns",
		"rank=3,phase=connect,ms=300", "ms=0.000001,phase=probe,rank=0", "rank=1,rank=2,phase=connect,ms=1", "rank=0,phase=gather,ms=1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		usage := func(err error) {
			if rank.ExitCode(err) != 2 {
				t.Errorf("%q: %v is no usage error", text, err)
			}
		}
		if s, err := ParseShape(text); err != nil {
			usage(err)
		} else if again, err := ParseShape(s.String()); err != nil || again != s {
			t.Errorf("%q: %v became %v (%v)", text, s, again, err)
		}
		if h, err := ParseHold(text); err != nil {
			usage(err)
		} else if again, err := ParseHold(h.String()); err != nil || again != h {
			t.Errorf("%q: %v became %v (%v)", text, h, again, err)
		}
		if d, err := ParseDelay(text); err != nil {
			usage(err)
		} else if again, err := ParseDelay(d.String()); err != nil || again != d {
			t.Errorf("%q: %v became %v (%v)", text, d, again, err)
		}
	})
}
