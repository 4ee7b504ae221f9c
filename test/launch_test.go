package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/freeport"
	"rankstorm/test/need"
)

// member is one process that a test starts itself.
type member struct {
	command        []string // what starts the binary; empty: nothing
	args           []string
	env            []string // instead of the caller's RANKSTORM_… and launcher variables, of which there are none
	stdout, stderr bytes.Buffer
	code           int
}

// together starts all processes at once and waits for all of them.
func together(t *testing.T, members []*member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	cmds := make([]*exec.Cmd, len(members))
	for i, m := range members {
		line := slices.Concat(m.command, []string{binary, "run"}, m.args)
		cmds[i] = exec.CommandContext(ctx, line[0], line[1:]...)
		cmds[i].Dir, cmds[i].WaitDelay = dir, 5*time.Second
		cmds[i].Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, m.env...)
		cmds[i].Stdout, cmds[i].Stderr = &m.stdout, &m.stderr
		cmds[i].Cancel = func() error { return cmds[i].Process.Signal(syscall.SIGQUIT) }
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range members {
		m.code = exitCode(cmds[i].Wait())
	}
	if ctx.Err() != nil {
		for _, m := range members {
			t.Logf("%q: exit %d\n%s", m.args, m.code, m.stderr.String())
		}
		t.Fatal("did not end within a minute")
	}
}

// allEnd checks the exit codes.
func allEnd(t *testing.T, members []*member, code int) {
	t.Helper()
	for i, m := range members {
		if m.code != code {
			t.Errorf("process %d: exit %d, want %d\n%s", i, m.code, code, m.stderr.String())
		}
	}
}

// stepTasks are the tasks of a Slurm step on this machine, as srun would start them.
func stepTasks(job, step, tasks int, args ...string) []*member {
	var out []*member
	for i := range tasks {
		out = append(out, &member{args: args, env: []string{
			fmt.Sprintf("SLURM_JOB_ID=%d", job), fmt.Sprintf("SLURM_STEP_ID=%d", step), fmt.Sprintf("SLURM_PROCID=%d", i),
			fmt.Sprintf("SLURM_LOCALID=%d", i), fmt.Sprintf("SLURM_STEP_NUM_TASKS=%d", tasks), "SLURM_STEP_NODELIST=localhost",
			fmt.Sprintf("SLURM_STEP_TASKS_PER_NODE=%d", tasks), "SLURM_NODEID=0",
		}})
	}
	return out
}

// launched is the part of a document that tells how a job was launched.
type launched struct {
	JobKey    string `json:"job_key"`
	Procs     int
	Gossip    struct{ Members int }
	Exit      struct{ Code int }
	Addresses []struct {
		Control  string
		Data     []string
		DataFrom string `json:"data_from"`
	}
}

func readLaunched(t *testing.T, path string) (d launched) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTwoStepsAtOnce: tasks of a step need no flags, and two steps on the same
// host at the same time do not disturb each other.
func TestTwoStepsAtOnce(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "0.json"), filepath.Join(dir, "1.json")
	jobs := slices.Concat(stepTasks(4711, 0, 4, "-o", first, "--rounds", "20"), stepTasks(4711, 1, 4, "-o", second, "--rounds", "20"))
	together(t, jobs)
	allEnd(t, jobs, 0)
	for i, path := range []string{first, second} {
		d := readLaunched(t, path)
		if want := fmt.Sprintf("4711.%d.0", i); d.JobKey != want || d.Procs != 4 || d.Gossip.Members != 4 {
			t.Errorf("got %+v, want job %s with 4 processes and gossip members", d, want)
		}
	}
}

// TestAnotherJobAtTheSameAddress: processes of two jobs are given the same
// controller. Whoever gets it keeps its job; the others are told both keys.
func TestAnotherJobAtTheSameAddress(t *testing.T) {
	at := freeAddress(t)
	dir := t.TempDir()
	var members []*member
	for i := range 4 {
		name := []string{"red", "blue"}[i/2]
		members = append(members, &member{args: []string{"-C", at, "-P", "2", "--job", name, "--rounds", "20", "-o", filepath.Join(dir, name)}})
	}
	together(t, members)
	won, lost := members[:2], members[2:]
	if won[0].code != 0 {
		won, lost = lost, won
	}
	allEnd(t, won, 0)
	allEnd(t, lost, 3)
	for _, m := range lost {
		if text := m.stderr.String(); !strings.Contains(text, `"red"`) || !strings.Contains(text, `"blue"`) {
			t.Errorf("the refused process says %q, want both job keys", text)
		}
	}
}

// TestHostDependentPlanIsRefused: what a topology needs that depends on hosts
// is known after the seal; all processes refuse it, with one line each at most.
func TestHostDependentPlanIsRefused(t *testing.T) {
	at := freeAddress(t)
	out := filepath.Join(t.TempDir(), "x.json")
	var members []*member
	for i := range 3 {
		members = append(members, &member{
			command: []string{"sh", "-c", `ulimit -n 150; exec "$0" "$@"`},
			args:    []string{"-C", at, "-q", "-P", "3", "--rank", fmt.Sprint(i), "--host", fmt.Sprint("h", i), "--topology", "rail", "-c", "400", "-o", out},
		})
	}
	together(t, members)
	allEnd(t, members, 2)
	for i, m := range members {
		text := m.stderr.String()
		if !strings.Contains(text, "file descriptors, has 150: ulimit -n") {
			t.Errorf("process %d says %q", i, text)
		}
		if i > 0 && strings.Count(text, "\n") != 1 {
			t.Errorf("process %d says more than one line: %q", i, text)
		}
	}
}

// TestIPv6Controller: a controller that is an IPv6 address is met over IPv6, and so is the data.
func TestIPv6Controller(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		need.Absent(t, "ipv6", "no IPv6 loopback: %v", err)
	}
	ln.Close()
	at := fmt.Sprintf("[::1]:%d", freeport.At(t, "::1"))
	out := filepath.Join(t.TempDir(), "x.json")
	var members []*member
	for range 3 {
		members = append(members, &member{args: []string{"-C", at, "-P", "3", "-o", out}})
	}
	together(t, members)
	allEnd(t, members, 0)
	d := readLaunched(t, out)
	for _, a := range d.Addresses {
		if !strings.HasPrefix(a.Control, "[::1]:") || !slices.Equal(a.Data, []string{"::1"}) || a.DataFrom != "control" {
			t.Errorf("got %+v, want ::1", a)
		}
	}
	if len(d.Addresses) != 3 {
		t.Errorf("%d addresses, want 3", len(d.Addresses))
	}
}

// freeAddress is a loopback address with a port that nobody has.
func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", freeport.At(t, "127.0.0.1"))
}

// TestLinkLocal: two hosts that have nothing but link-local addresses, on
// interfaces of different names.
func TestLinkLocal(t *testing.T) {
	const setUp = `set -e
ip link set lo up
ip link add v0 type veth peer name w1
echo 0 > /proc/sys/net/ipv6/conf/v0/accept_dad
echo 0 > /proc/sys/net/ipv6/conf/w1/accept_dad
unshare -n sleep 120 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link set w1 netns $other
ip link set v0 up
nsenter -t $other -n sh -c 'ip link set lo up; ip link set w1 up'
until at=$(ip -6 -o addr show dev v0 scope link -tentative | grep -o 'fe80::[0-9a-f:]*'); do sleep 0.01; done
until nsenter -t $other -n ip -6 -o addr show dev w1 scope link -tentative | grep -q fe80; do sleep 0.01; done
for i in 1 2; do
	"$@" -C "[$at%v0]:7788" --host a -o "$OUT" & a="$a $!"
	nsenter -t $other -n "$@" -C "[$at%w1]:7788" --host b -o "$OUT" & a="$a $!"
done
for p in $a; do wait $p; done`
	if out, err := exec.Command("unshare", "-n", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "w1").CombinedOutput(); err != nil {
		need.Absent(t, "netns", "no network namespaces with veth: %v: %s", err, out)
	}
	path := filepath.Join(t.TempDir(), "ll.json")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "-n", "sh", "-c", setUp, "sh", binary, "run", "-P", "4", "-c", "4", "--rounds", "2")
	cmd.Env = append(os.Environ(), "OUT="+path)
	cmd.WaitDelay = 5 * time.Second
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	d := readLaunched(t, path)
	if d.Exit.Code != 0 || d.Gossip.Members != 4 || len(d.Addresses) != 4 {
		t.Fatalf("got %+v", d)
	}
	for _, a := range d.Addresses {
		if !strings.HasPrefix(a.Control, "[fe80::") {
			t.Errorf("control at %s, want a link-local address", a.Control)
		}
	}
}
