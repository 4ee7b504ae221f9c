// Package hosts runs the real binary over several hosts and real launchers: the
// labs of test/lab. make test-hosts runs it; it needs root, because a host is a
// network namespace.
package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rankstorm/test/need"
)

var (
	binary string // the program
	folder string // of this test run: binaries, result documents
)

func TestMain(m *testing.M) {
	os.Exit(need.Run("hosts", "need root and change network namespaces", func() (int, error) { return prepared(m.Run) }))
}

// prepared builds the program, runs the tests, and leaves nothing.
func prepared(tests func() int) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, fmt.Errorf("hosts are network namespaces: run as root")
	}
	// Not t.TempDir's place: the name is part of commands, and has no odd characters.
	if folder, err = os.MkdirTemp("", "rankstorm-hosts"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "bin", "rankstorm")
	if err := build(binary); err != nil {
		return 1, err
	}
	for _, script := range []string{"slurm", "ssh", "hosts"} { // what a killed run may have left
		defer lab(script, "down").Run()
	}
	return tests(), nil
}

func build(path string, flags ...string) error {
	args := append([]string{"build", "-o", path}, flags...)
	out, err := exec.Command("go", append(args, "../../cmd/rankstorm")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// launcher skips a test whose launcher is neither installed nor required: the
// labs install what is required.
func launcher(t *testing.T, name, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil && !need.Required(name) {
		need.Absent(t, name, "%s is not installed; RANKSTORM_REQUIRE=hosts,%s installs it", program, name)
	}
}

// lab is a script of test/lab with its arguments, not yet started.
func lab(script string, args ...string) *exec.Cmd {
	path, err := filepath.Abs(filepath.Join("..", "lab", script))
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = bareEnvironment()
	cmd.Dir = folder
	return cmd
}

// bareEnvironment is this process's environment without what could tell the
// program something: own variables and those of launchers.
func bareEnvironment() []string {
	path := "PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH")
	env := []string{path}
	for _, name := range []string{"HOME", "TMPDIR", "USER", "LANG", "RANKSTORM_LAB_DIR", "RANKSTORM_LAB_NET", "RANKSTORM_LAB_PREFIX"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// do runs a lab command to its end; what it prints is returned.
func do(t *testing.T, script string, args ...string) string {
	t.Helper()
	var out, problem strings.Builder
	cmd := lab(script, args...)
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", script, strings.Join(args, " "), err, out.String(), problem.String())
	}
	return out.String()
}

// hostsUp gives the test n hosts, healed; afterwards no process of the program
// may be left on any of them.
func hostsUp(t *testing.T, n int) {
	t.Helper()
	do(t, "hosts", "up", fmt.Sprint(n))
	t.Cleanup(func() { noneLeft(t) })
}

func slurmUp(t *testing.T, n int) {
	t.Helper()
	launcher(t, "slurm", "slurmctld")
	hostsUp(t, n)
	do(t, "slurm", "up")
}

func sshUp(t *testing.T, n int) {
	t.Helper()
	launcher(t, "pdsh", "pdsh")
	hostsUp(t, n)
	do(t, "ssh", "up")
}

func mpirunUp(t *testing.T, n int) {
	t.Helper()
	launcher(t, "mpirun", "mpirun.openmpi")
	if _, err := exec.LookPath("mpirun.openmpi"); err != nil {
		do(t, "packages", "openmpi-bin")
	}
	sshUp(t, n)
}
