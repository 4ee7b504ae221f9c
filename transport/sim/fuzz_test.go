package sim

import (
	"fmt"
	"strings"
	"testing"

	"rankstorm/transport"
)

// An address names a host and a port, and nothing else does: what is taken is as short and plain as what an endpoint gives.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"sim/p0/7471", "sim//1", "sim/a/0", "sim/a/-1", "sim/a/1/2", "tcp/a/1", "sim/a/99999999999999999999", "sim/a/+1", ""} {
		f.Add([]byte(s))
	}
	f.Add([]byte("sim/" + strings.Repeat("h", 300) + "/1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		host, ok := parseAddress(transport.Address(text))
		if !ok {
			if host != "" {
				t.Errorf("%q: refused, but its host is %q", text, host)
			}
			return
		}
		port := 0
		if n, err := fmt.Sscanf(strings.TrimPrefix(string(text), "sim/"+host+"/"), "%d", &port); n != 1 || err != nil || port < 1 {
			t.Errorf("%q: port %d (%v) of host %q", text, port, err, host)
		}
		if len(text) > 256 || host == "" || strings.Contains(host, "/") {
			t.Errorf("%q: taken with host %q", text, host)
		}
		if again, ok := parseAddress(transport.Address(fmt.Sprintf("sim/%s/%d", host, port))); !ok || again != host {
			t.Errorf("host %q, port %d: %q, %v", host, port, again, ok)
		}
	})
}
