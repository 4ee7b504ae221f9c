package tcp

import (
	"testing"

	"rankstorm/transport"
	"rankstorm/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for _, a := range localAddrs(t) {
		t.Run(a, func(t *testing.T) { conform(t, a, false) })
	}
	t.Run("parked", func(t *testing.T) { conform(t, "127.0.0.1", true) })
}

func conform(t *testing.T, a string, park bool) {
	var nobody transport.Address
	if a == "127.0.0.1" {
		// The kernel connects TCP to no broadcast address, whatever its routes; IPv6 has none.
		broadcast, err := parseAddr("255.255.255.255:9")
		if err != nil {
			t.Fatal(err)
		}
		nobody = broadcast.encode()
	}
	transporttest.Run(t, transporttest.Harness{
		Open: func(t testing.TB, name string, workers int) (transport.Endpoint, transport.Clock) {
			cfg := config(a)
			cfg.Name, cfg.Workers, cfg.Park = name, workers, park
			e, err := New().Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return e, cfg.Clock
		},
		Unreachable: nobody,
		Steps:       New().Steps(),
		OpenFDs:     func() int { return openFDs(t) },
	})
}
