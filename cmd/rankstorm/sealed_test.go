package main

import (
	"strings"
	"testing"

	"rankstorm/phases"
	"rankstorm/phases/runner"
	"rankstorm/rank"
)

// TestPreflightSealed: a topology that depends on hosts is judged with the
// table, and judged the same wherever the limits are the same.
func TestPreflightSealed(t *testing.T) {
	sealed := func(addresses ...string) *rank.Table {
		records := make([]rank.Record, 4)
		for i := range records {
			records[i] = rank.Record{Nonce: [16]byte{byte(i + 1)}, Host: []string{"a", "a", "b", "b"}[i], LauncherProc: i, LocalIndex: -1}
			if addresses != nil {
				records[i].Own = []rank.KV{{Key: runner.OwnBind, Value: addresses[i]}}
			}
		}
		table, err := rank.Build(records, 1, "r")
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	j := &prepared{spec: phases.DefaultSpec(), provider: providers["tcp"]()}
	j.spec.Procs, j.spec.RanksPerProc, j.spec.Connections = 4, 1, 100
	for _, c := range []struct {
		params    rank.Params
		limits    limits
		addresses []string
		warning   string
		err       string
	}{
		{params: rank.Params{Name: "rail"}, limits: limits{fdsHard: 1000}},
		{params: rank.Params{Name: "rail"}, limits: limits{fdsHard: 200}, err: "file descriptors, has 200: ulimit -n"},
		// Both ranks of the other host reach one listener: 200 ports of a host.
		{params: rank.Params{Name: "incast", ExcludeSameHost: true}, limits: limits{portLow: 1, portHigh: 150}, err: "needs 200 local ports towards one listener, has 146 (4 of 150"},
		{params: rank.Params{Name: "incast", ExcludeSameHost: true}, limits: limits{portLow: 1, portHigh: 150}, addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}},
		{params: rank.Params{Name: "rail"}, limits: limits{somaxconn: 50}, warning: "up to 100 connections reach one listener at once"},
	} {
		table := sealed(c.addresses...)
		topo, err := rank.NewTopology(table, c.params)
		if err != nil {
			t.Fatal(err)
		}
		j.limits = c.limits
		warnings, err := preflightSealed(j, topo, table)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || rank.ExitCode(err) != 2 {
				t.Errorf("%+v: got %v, want %q", c, err, c.err)
			}
			continue
		}
		said := strings.Join(warnings, "; ")
		if err != nil || !strings.Contains(said, c.warning) || (said != "") != (c.warning != "") {
			t.Errorf("%+v: got %q, %v", c, said, err)
		}
	}
}
