package hosts

import (
	"testing"
	"time"
)

// 64 hosts with 4 processes each. RANKSTORM_SIZE=1 runs it: too dear for every day.
func TestSixtyFourHosts(t *testing.T) {
	if numberOf(t, "RANKSTORM_SIZE", 0) == 0 {
		t.Skip("RANKSTORM_SIZE=1 runs 256 processes on 64 hosts")
	}
	slurmUp(t, 64)
	for _, topology := range []struct {
		name        string
		connections int64
	}{{"ring", 256}, {"all_to_all", allToAll(256, 1)}} {
		dir := jobFolder(t)
		begun := time.Now()
		r := launched(t, dir, "slurm", "srun", "-N64", "--ntasks-per-node=4", "rankstorm", "run", "--topology", topology.name)
		t.Logf("%s: %v\n%s", topology.name, time.Since(begun).Round(100*time.Millisecond), r.stdout.String())
		clean(t, onlyDocument(t, dir), wanted{procs: 256, connections: topology.connections, perHost: spread(64, 4)})
	}
}
