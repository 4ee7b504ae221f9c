//go:build cgo

package rdma

import (
	"net/netip"
	"os"
	"testing"

	"rankstorm/test/need"
	"rankstorm/transport"
	"rankstorm/transport/transporttest"
)

// lab is the addresses of the machine's RDMA devices, one each.
func lab(t testing.TB) []string {
	t.Helper()
	if os.Getenv("RDMALAB") == "" {
		need.Absent(t, "rdma", "runs in a machine with RDMA devices: make test-rdma")
	}
	var ips []string
	for _, name := range []string{"RDMALAB_IP0", "RDMALAB_IP1"} {
		if ip := os.Getenv(name); ip != "" {
			ips = append(ips, ip)
		}
	}
	return ips
}

func config(ip string) transport.Config {
	return transport.Config{
		Clock: transport.NewClock(), Name: "rank", Bind: []string{ip}, Advertise: ip, Workers: 1,
		Options: map[string]string{transport.OptionResolveTimeout: "300", transport.OptionResolveRetries: "1"},
	}
}

func TestConformance(t *testing.T) {
	ips := lab(t)
	t.Run("OneDevice", func(t *testing.T) { conform(t, ips[:1], 40) })
	t.Run("TwoDevices", func(t *testing.T) { conform(t, ips, 200) })
}

// conform runs the kit with endpoints in turn at the addresses.
func conform(t *testing.T, ips []string, many int) {
	opened := 0
	transporttest.Run(t, transporttest.Harness{
		Open: func(t testing.TB, name string, workers int) (transport.Endpoint, transport.Clock) {
			cfg := config(ips[opened%len(ips)])
			cfg.Name, cfg.Workers = name, workers
			opened++
			e, err := New().Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return e, cfg.Clock
		},
		// Nobody has this address, so nobody answers for it.
		Unreachable: encodeAddr(netip.AddrPortFrom(netip.MustParseAddr(ips[0]).Next().Next().Next().Next(), 9)),
		Steps:       New().Steps(),
		Many:        many,
	})
}
