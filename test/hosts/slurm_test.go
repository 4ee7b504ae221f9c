package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// jobFolder is a fresh working directory for a launcher; the document appears there.
func jobFolder(t *testing.T) string {
	t.Helper()
	return filepath.Dir(resultFile(t))
}

// onlyDocument is the result document in a folder, by the name the program gives it.
func onlyDocument(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "rankstorm-*.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("result documents in %s: %v, want one", dir, found)
	}
	return found[0]
}

// launched runs a launcher to its end in dir and demands exit code 0.
func launched(t *testing.T, dir, script string, args ...string) *running {
	t.Helper()
	cmd := lab(script, append([]string{"exec"}, args...)...)
	cmd.Dir = dir
	r := start(t, args[0], cmd)
	waitAll(t, []*running{r}, 0, 2*time.Minute)
	return r
}

// In front of the program: notes the pid of each Slurm task by its number.
const noteTask = `echo $$ >task.$SLURM_PROCID; exec "$0" "$@"`

// checkTasks holds ranks against the task numbers that noteTask wrote.
func checkTasks(t *testing.T, dir string, d *document) {
	t.Helper()
	for i, r := range d.Ranks {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("task.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if pid := strings.TrimSpace(string(b)); pid != strconv.Itoa(r.PID) {
			t.Errorf("rank %d is pid %d, Slurm's task %d is pid %s", i, r.PID, i, pid)
		}
	}
}

// Nothing else on the line; Slurm packs the tasks.
func TestSrun(t *testing.T) {
	slurmUp(t, 4)
	dir := jobFolder(t)
	r := launched(t, dir, "slurm", "srun", "-N4", "-n8", "rankstorm", "run", "--topology", "all_to_all")
	clean(t, onlyDocument(t, dir), wanted{procs: 8, connections: allToAll(8, 1), perHost: map[string]int{"n0": 5, "n1": 1, "n2": 1, "n3": 1}})
	if strings.Count(r.stdout.String(), "8 ranks · 4 hosts · all_to_all") != 1 {
		t.Errorf("one table is printed, by rank 0; stdout:\n%s", r.stdout.String())
	}
}

// Ranks are Slurm's, however the tasks are placed.
func TestSrunPlacements(t *testing.T) {
	slurmUp(t, 4)
	hostfile := filepath.Join(folder, "hostfile")
	if err := os.WriteFile(hostfile, []byte("n2\nn0\nn2\nn1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name  string
		srun  []string
		hosts []string // by rank
	}{
		{"packed", []string{"-N4", "-n8"}, []string{"n0", "n0", "n0", "n0", "n0", "n1", "n2", "n3"}},
		{"even", []string{"-N4", "--ntasks-per-node=2"}, []string{"n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"}},
		{"cyclic", []string{"-N4", "--ntasks-per-node=2", "-m", "cyclic"}, []string{"n0", "n1", "n2", "n3", "n0", "n1", "n2", "n3"}},
		{"rank 0 away from the first host", []string{"-m", "arbitrary", "-n4"}, []string{"n2", "n0", "n2", "n1"}},
		{"not from n0 on", []string{"-w", "n[1,3]", "-N2", "--ntasks-per-node=1"}, []string{"n1", "n3"}},
		{"one task", []string{"-N1", "-n1"}, []string{"n0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := jobFolder(t)
			args := append([]string{"env", "SLURM_HOSTFILE=" + hostfile, "srun"}, c.srun...)
			if c.name != "rank 0 away from the first host" {
				args = append([]string{"srun"}, c.srun...)
			}
			launched(t, dir, "slurm", append(args, "sh", "-c", noteTask, "rankstorm", "run", "-c", "2")...)
			perHost := map[string]int{}
			for _, h := range c.hosts {
				perHost[h]++
			}
			d := clean(t, onlyDocument(t, dir), wanted{procs: len(c.hosts), connections: allToAll(len(c.hosts), 2), perHost: perHost})
			for i, r := range d.Ranks {
				if r.Host != c.hosts[i] {
					t.Errorf("rank %d is on %s, want %s", i, r.Host, c.hosts[i])
				}
			}
			checkTasks(t, dir, d)
		})
	}
}

// Two steps of one allocation at once, and two jobs on the same hosts: each
// finds only its own processes.
func TestSrunSideBySide(t *testing.T) {
	slurmUp(t, 2)
	dirs := []string{jobFolder(t), jobFolder(t), jobFolder(t)}
	step := "cd %s && srun --overlap -N2 -n4 --ntasks-per-node=2 rankstorm run -c 2 --hold connect=2s"
	both := fmt.Sprintf("("+step+") & one=$!; ("+step+") & two=$!; wait $one && wait $two", dirs[0], dirs[1])
	first := lab("slurm", "exec", "salloc", "-N2", "--ntasks-per-node=4", "sh", "-c", both)
	second := lab("slurm", "exec", "srun", "-N2", "--ntasks-per-node=2", "rankstorm", "run", "-c", "2", "--hold", "connect=2s")
	second.Dir = dirs[2]
	waitAll(t, []*running{start(t, "salloc", first), start(t, "srun", second)}, 0, time.Minute)
	for _, dir := range dirs {
		clean(t, onlyDocument(t, dir), wanted{procs: 4, connections: allToAll(4, 2), perHost: spread(2, 2)})
	}
}

// A batch script is not a task, though Slurm gives it SLURM_PROCID=0 and the
// job's SLURM_NTASKS: the program says what to put in front.
func TestBatchScriptIsNoTask(t *testing.T) {
	slurmUp(t, 2)
	dir := jobFolder(t)
	script := filepath.Join(dir, "job")
	text := "#!/bin/sh\nrankstorm run >said 2>&1\necho $? >code.new\nmv code.new code\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	launched(t, dir, "slurm", "sbatch", "-N2", "--ntasks-per-node=2", "-o", "/dev/null", script)
	code := waitForFile(t, filepath.Join(dir, "code"), 30*time.Second)
	said, err := os.ReadFile(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(code) != "2" || !strings.Contains(string(said), "srun") {
		t.Errorf("exit %s, want 2 and the word srun:\n%s", code, said)
	}
}

// mpirun in an allocation starts its own daemons through srun: the ranks are
// Open MPI's, Slurm's variables are the outer ones.
func TestMpirunInSalloc(t *testing.T) {
	mpirunUp(t, 4)
	slurmUp(t, 4)
	dir := jobFolder(t)
	launched(t, dir, "slurm", "salloc", "-N4", "--ntasks-per-node=2", "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"mpirun", "rankstorm", "run", "--topology", "all_to_all", "-c", "2")
	clean(t, onlyDocument(t, dir), wanted{procs: 8, connections: allToAll(8, 2), perHost: spread(4, 2)})
}

// waitForFile waits until a file is there and returns what is in it.
func waitForFile(t *testing.T, path string, limit time.Duration) string {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil {
			return string(b)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not appear within %v", path, limit)
		}
	}
}
