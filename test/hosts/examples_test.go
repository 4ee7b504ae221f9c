package hosts

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the examples' expected.txt from what this run prints")

// example is the absolute path of a file below examples.
func example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// differs matches what no two runs have in common: the run's name, times and
// sizes, ranks of the slowest, and counts that the machine's load decides.
var differs = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`run \d{8}T\d{6}Z-[0-9a-f]+`), "run #"},
	{regexp.MustCompile(`\d[\d.,]* (ns|µs|ms|s|min|h|B|KiB|MiB|GiB)\b`), "#"},
	{regexp.MustCompile(`\d+ \([a-z]+[-\d]*\)`), "rank"},
	{regexp.MustCompile(`\d+ fds`), "# fds"},
	{regexp.MustCompile(`(drops|retries) \d+`), "$1 #"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// shown is the table within what a launcher passed on: without colours, which
// mpirun's terminal brings, and without what stands on standard error.
func shown(output string) string {
	output = regexp.MustCompile(`\x1b\[[0-9;]*m|\r`).ReplaceAllString(output, "")
	var table strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "rankstorm: ") {
			table.WriteString(line)
		}
	}
	return table.String()
}

// expected holds output against the expected.txt beside the example: each of
// its lines has to come, in that order. Others may stand between them: what
// slowed this one run.
func expected(t *testing.T, folder, output string) {
	t.Helper()
	path := example(t, filepath.Join(folder, "expected.txt"))
	output = shown(output)
	if *rewrite {
		if err := os.WriteFile(path, []byte(output), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) []string {
		var lines []string
		for line := range strings.Lines(text) {
			for _, d := range differs {
				line = d.pattern.ReplaceAllString(line, d.by)
			}
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		return lines
	}
	want := slices.DeleteFunc(plain(string(b)), func(line string) bool {
		return strings.HasPrefix(line, "cause ") || strings.HasPrefix(line, "fix: ")
	})
	if len(want) < 10 {
		t.Fatalf("%s: only %d lines", path, len(want))
	}
	got := plain(output)
	for _, line := range want {
		at := slices.Index(got, line)
		if at < 0 {
			t.Fatalf("%s has a line\n%s\nthat is not in the output, or not in this place:\n%s", path, line, output)
		}
		got = got[at+1:]
	}
}

func TestExampleByHand(t *testing.T) {
	hostsUp(t, 4)
	dir := jobFolder(t)
	var all []*running
	for i := range 8 {
		cmd := lab("hosts", "exec", host(i%4), example(t, "by-hand/line.sh"))
		cmd.Dir = dir
		all = append(all, start(t, host(i%4), cmd))
	}
	waitAll(t, all, 0, time.Minute)
	clean(t, onlyDocument(t, dir), wanted{procs: 8, connections: allToAll(8, 4), perHost: spread(4, 2)})
	var output string
	for _, r := range all {
		output += r.stdout.String()
	}
	expected(t, "by-hand", output)
}

func TestExampleSrun(t *testing.T) {
	slurmUp(t, 4)
	dir := jobFolder(t)
	r := launched(t, dir, "slurm", example(t, "srun/job.sh"))
	clean(t, onlyDocument(t, dir), wanted{procs: 8, connections: allToAll(8, 4), perHost: spread(4, 2)})
	expected(t, "srun", r.stdout.String())
}

func TestExampleSbatch(t *testing.T) {
	slurmUp(t, 4)
	dir := jobFolder(t)
	r := launched(t, dir, "slurm", "sbatch", "--parsable", example(t, "sbatch/job.sbatch"))
	id := strings.TrimSpace(r.stdout.String())
	// sbatch --wait looks again only after 2, 10, 40 s: ask for the job's state instead.
	state := ""
	for deadline := time.Now().Add(time.Minute); !strings.HasPrefix(state, "COMPLETED"); time.Sleep(200 * time.Millisecond) {
		if state = do(t, "slurm", "exec", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T"); time.Now().After(deadline) {
			t.Fatalf("job %s is %s", id, state)
		}
	}
	clean(t, onlyDocument(t, dir), wanted{procs: 8, connections: allToAll(8, 4), perHost: spread(4, 2)})
	output, err := os.ReadFile(filepath.Join(dir, "rankstorm-"+id+".out"))
	if err != nil {
		t.Fatal(err)
	}
	expected(t, "sbatch", string(output))
}

func TestExamplePdsh(t *testing.T) {
	sshUp(t, 40)
	// ssh does not carry the working directory: the document lands in HOME.
	r := launched(t, jobFolder(t), "ssh", example(t, "pdsh/job.sh"))
	path := documentNamed(t, r.stderr.String())
	t.Cleanup(func() { os.Remove(path) })
	d := clean(t, path, wanted{procs: 40, connections: 39 * 10, perHost: spread(40, 1)})
	for i, e := range d.Ranks {
		if e.Host != host(i) {
			t.Errorf("rank %d is on %s, want %s", i, e.Host, host(i))
		}
	}
	expected(t, "pdsh", r.stdout.String())
}

// documentNamed is the place that rank 0 said its document is in.
func documentNamed(t *testing.T, said string) string {
	t.Helper()
	m := regexp.MustCompile(`result document on \S+: (\S+)`).FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("nobody says where the result document is:\n%s", said)
	}
	return m[1]
}

func TestExampleMpirun(t *testing.T) {
	mpirunUp(t, 4)
	dir := jobFolder(t)
	r := launched(t, dir, "ssh", "env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", example(t, "mpirun/job.sh"))
	d := clean(t, onlyDocument(t, dir), wanted{procs: 8, connections: allToAll(8, 4), perHost: spread(4, 2)})
	for i, e := range d.Ranks {
		if e.Host != host(i/2) {
			t.Errorf("rank %d is on %s, want %s", i, e.Host, host(i/2))
		}
	}
	expected(t, "mpirun", r.stdout.String())
}
