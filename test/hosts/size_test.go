package hosts

import (
	"testing"
	"time"
)

// Many hosts with 4 processes each: 16, or with RANKSTORM_SIZE=1 64 of them,
// which is too dear for every day.
func TestManyHosts(t *testing.T) {
	hosts := 16
	if numberOf(t, "RANKSTORM_SIZE", 0) != 0 {
		hosts = 64
	}
	procs := 4 * hosts
	slurmUp(t, hosts)
	for _, topology := range []struct {
		name        string
		connections int64
	}{{"ring", int64(procs)}, {"all_to_all", allToAll(procs, 1)}} {
		dir := jobFolder(t)
		begun := time.Now()
		r := launched(t, dir, "slurm", "srun", "-N"+itoa(hosts), "--ntasks-per-node=4", "rankstorm", "run", "--topology", topology.name)
		t.Logf("%s: %v\n%s", topology.name, time.Since(begun).Round(100*time.Millisecond), r.stdout.String())
		clean(t, onlyDocument(t, dir), wanted{procs: procs, connections: topology.connections, perHost: spread(hosts, 4)})
	}
}
