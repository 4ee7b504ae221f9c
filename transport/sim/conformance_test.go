package sim_test

import (
	"testing"
	"time"

	"rankstorm/transport"
	"rankstorm/transport/sim"
	"rankstorm/transport/transporttest"
)

// harness opens every endpoint of a subtest on one fabric, made anew for each.
func harness(bubble bool, cfg sim.FabricConfig) transporttest.Harness {
	var f *sim.Fabric
	var clk transport.Clock
	return transporttest.Harness{
		Bubble: bubble,
		Steps:  cfg.Steps,
		Begin: func(testing.TB) {
			f = sim.NewFabric(cfg)
			clk = sim.NewClock(time.Hour)
		},
		Open: func(t testing.TB, name string, workers int) (transport.Endpoint, transport.Clock) {
			ep, err := sim.New(f).Open(transport.Config{Clock: clk, Name: name, Advertise: "host of " + name, Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			return ep, clk
		},
		Kill: func(ep transport.Endpoint) {
			f.Kill(ep.(*sim.Endpoint).Name())
		},
		Unreachable: transport.Address("sim/no such host/1"),
	}
}

func TestConformance(t *testing.T) {
	costs := sim.FabricConfig{
		Latency: 50 * time.Microsecond, Jitter: 30 * time.Microsecond, PerConnCost: 2 * time.Microsecond, QueueDepth: 40,
	}
	costs.Costs[transport.StepAccept] = 10 * time.Microsecond
	for _, c := range []struct {
		name   string
		bubble bool
		cfg    sim.FabricConfig
	}{
		{"BubbleTCP", true, sim.FabricConfig{Steps: sim.StepsTCP, Latency: 50 * time.Microsecond, Jitter: 30 * time.Microsecond}},
		{"BubbleRDMA", true, sim.FabricConfig{Steps: sim.StepsRDMA, Latency: 50 * time.Microsecond, Jitter: 30 * time.Microsecond}},
		{"RealTCP", false, sim.FabricConfig{Steps: sim.StepsTCP, Latency: 50 * time.Microsecond}},
		{"RealRDMA", false, sim.FabricConfig{Steps: sim.StepsRDMA}},
		{"CostsTCP", true, with(costs, sim.StepsTCP, 0)},
		{"CostsRDMA", true, with(costs, sim.StepsRDMA, 0)},
		{"LossTCP", true, with(costs, sim.StepsTCP, 0.1)},
		{"LossRDMA", true, with(costs, sim.StepsRDMA, 0.1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := harness(c.bubble, c.cfg)
			if c.cfg.QueueDepth > 0 {
				h.Many = 100 // every packet has a moment of its own, which makes a bubble slow
			}
			transporttest.Run(t, h)
		})
	}
}

func with(c sim.FabricConfig, steps transport.StepSet, loss float64) sim.FabricConfig {
	c.Steps, c.Loss, c.Retry = steps, loss, 10*time.Millisecond
	c.DataRetry = 2 * time.Millisecond
	return c
}

func BenchmarkConnect(b *testing.B) {
	b.Run("tcp", func(b *testing.B) { transporttest.Bench(b, harness(false, sim.FabricConfig{Steps: sim.StepsTCP})) })
	b.Run("rdma", func(b *testing.B) { transporttest.Bench(b, harness(false, sim.FabricConfig{Steps: sim.StepsRDMA})) })
}
