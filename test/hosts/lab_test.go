package hosts

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// reaches says whether sshd on a host answers another host within 2 s.
func reaches(from, to string) bool {
	out, _ := lab("hosts", "exec", from, "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/"+to+"/22 && head -c 4 <&3").Output()
	return string(out) == "SSH-"
}

// comesBack waits until the one reaches the other again.
func comesBack(t *testing.T, from, to string) {
	t.Helper()
	for range 20 {
		if reaches(from, to) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%s does not reach %s again after heal", from, to)
}

func TestLabHosts(t *testing.T) {
	hostsUp(t, 3)
	if got, want := do(t, "hosts", "list"), "n0 10.97.0.1\nn1 10.97.0.2\nn2 10.97.0.3\nhead 10.97.0.254\n"; got != want {
		t.Errorf("list:\n%swant:\n%s", got, want)
	}
	for name, c := range map[string]struct{ command, want string }{
		"host name":  {"hostname", "n1\n"},
		"interfaces": {"ls /sys/class/net", "eth0\nlo\n"},
		"directory":  {"pwd", folder + "\n"},
		"own shm":    {"ls /dev/shm", ""},
	} {
		if got := do(t, "hosts", "exec", "n1", "sh", "-c", c.command); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	id := func(host string) string {
		return do(t, "hosts", "exec", host, "cat", "/proc/sys/kernel/random/boot_id")
	}
	if n0, n1, again := id("n0"), id("n1"), id("n0"); n0 == n1 || n0 != again {
		t.Errorf("boot ids: n0 %s, n1 %s, n0 again %s", n0, n1, again)
	}
	r := start(t, "n0", lab("hosts", "exec", "n0", "sh", "-c", "echo $$; exit 7"))
	r.wait(t, 10*time.Second)
	if r.code != 7 || strings.TrimSpace(r.stdout.String()) != itoa(r.cmd.Process.Pid) {
		t.Errorf("exec: exit %d, pid %s; want 7 and %d", r.code, r.stdout.String(), r.cmd.Process.Pid)
	}
	for _, bad := range [][]string{{"exec", "n9", "true"}, {"cut", "n9"}, {"up", "x"}, {"loss", "n0", "101"}, {"drop"}, {"swim"}} {
		if err := lab("hosts", bad...).Run(); err == nil {
			t.Errorf("hosts %s does not fail", strings.Join(bad, " "))
		}
	}
	sleeper := start(t, "n2", lab("hosts", "exec", "n2", "sleep", "60"))
	for i := 0; !strings.Contains(do(t, "hosts", "pids", "n2"), itoa(sleeper.cmd.Process.Pid)); i++ {
		if i == 50 {
			t.Fatal("hosts pids does not show a process that runs there")
		}
		time.Sleep(100 * time.Millisecond)
	}
	before := do(t, "hosts", "exec", "n0", "readlink", "/proc/self/ns/net")
	do(t, "hosts", "up", "3")
	if after := do(t, "hosts", "exec", "n0", "readlink", "/proc/self/ns/net"); after != before {
		t.Error("hosts up made anew what was there")
	}
	do(t, "hosts", "down")
	sleeper.wait(t, 5*time.Second)

	// A caller may hold a lock or a pipe: nothing that stays inherits it.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	up := lab("hosts", "up", "2")
	up.ExtraFiles = []*os.File{write}
	if err := up.Run(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	read.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a pipe of the caller of hosts up: %v, want its end", err)
	}
	do(t, "hosts", "down")
	if out, err := exec.Command("ip", "netns", "list").Output(); err != nil || strings.Contains(string(out), "rslabn-") {
		t.Errorf("after down: %v\n%s", err, out)
	}
	do(t, "hosts", "down") // of nothing
}

func TestLabFaults(t *testing.T) {
	sshUp(t, 3)
	carrier := func() string {
		return strings.TrimSpace(do(t, "hosts", "exec", "n1", "cat", "/sys/class/net/eth0/carrier"))
	}
	if !reaches("n0", "n1") {
		t.Fatal("n0 does not reach n1 before any fault")
	}
	do(t, "hosts", "cut", "n1")
	if reaches("n0", "n1") || carrier() != "0" {
		t.Errorf("cut: reached, or carrier %s, want 0", carrier())
	}
	do(t, "hosts", "heal", "n1")
	comesBack(t, "n0", "n1")

	do(t, "hosts", "drop", "n1")
	if reaches("n0", "n1") || carrier() != "1" {
		t.Errorf("drop: reached, or carrier %s, want 1", carrier())
	}
	do(t, "hosts", "heal", "n1")
	comesBack(t, "n0", "n1")

	do(t, "hosts", "drop", "n0", "n1")
	if reaches("n0", "n1") || !reaches("n0", "n2") || !reaches("n2", "n1") {
		t.Error("drop n0 n1: they reach each other, or another host is hit")
	}
	do(t, "hosts", "heal", "n0")
	comesBack(t, "n1", "n0")

	do(t, "hosts", "loss", "n2", "100")
	if reaches("n0", "n2") {
		t.Error("loss 100: reached")
	}
	if do(t, "hosts", "hits", "n2") == "0\n" || do(t, "hosts", "hits", "n1") != "0\n" {
		t.Errorf("hits of loss: n2 %s, want more than 0; n1 %s, want 0", do(t, "hosts", "hits", "n2"), do(t, "hosts", "hits", "n1"))
	}
	do(t, "hosts", "loss", "n2", "0")
	comesBack(t, "n0", "n2")

	// 2 MB at 1 Mbit/s take 16 s; without the bound far less than that.
	copying := []string{"exec", "sh", "-c", "head -c 2000000 /dev/zero | timeout 4 ssh n2 'cat >/dev/null'"}
	do(t, "hosts", "rate", "n2", "1mbit")
	if err := lab("ssh", copying...).Run(); err == nil {
		t.Error("rate 1mbit: 2 MB came within 4 s")
	}
	if do(t, "hosts", "hits", "n2") == "0\n" {
		t.Error("hits of rate: no frame had to wait")
	}
	do(t, "hosts", "heal")
	copying[3] = strings.Replace(copying[3], "timeout 4", "timeout 15", 1)
	do(t, "ssh", copying...)

	victim := start(t, "n1", lab("hosts", "exec", "n1", "sleep", "60"))
	for range 50 {
		if strings.Contains(do(t, "hosts", "pids", "n1"), itoa(victim.cmd.Process.Pid)) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	do(t, "hosts", "kill", "n1")
	victim.wait(t, 5*time.Second)
	if victim.code != -1 || do(t, "hosts", "pids", "n1") != "" {
		t.Errorf("kill: the process ended with %d (want a signal), left: %s", victim.code, do(t, "hosts", "pids", "n1"))
	}
	do(t, "hosts", "heal", "n1")
	if got := do(t, "hosts", "exec", "n1", "hostname"); got != "n1\n" {
		t.Errorf("after kill and heal: host name %q", got)
	}
	do(t, "ssh", "up") // brings its sshd back
	comesBack(t, "n0", "n1")
}

func TestLabSlurm(t *testing.T) {
	slurmUp(t, 3)
	out := do(t, "slurm", "exec", "srun", "-N3", "--ntasks-per-node=2", "sh", "-c", `echo $SLURM_PROCID $SLURMD_NODENAME $(hostname)`)
	for _, want := range []string{"0 n0 n0\n", "3 n1 n1\n", "5 n2 n2\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("srun: no %q in\n%s", want, out)
		}
	}
	do(t, "slurm", "node", "n2", "kill")
	do(t, "slurm", "exec", "srun", "-w", "n0", "true")
	do(t, "slurm", "node", "n2", "start")
	// A job that finds its node not yet idle is queued for up to a minute: ask again instead.
	for i := 0; lab("slurm", "exec", "timeout", "3", "srun", "-w", "n2", "true").Run() != nil; i++ {
		if i == 10 {
			t.Fatal("n2 does not come back after slurm node n2 start")
		}
	}
	if !strings.Contains(do(t, "slurm", "log"), "slurmctld") {
		t.Error("slurm log shows nothing of slurmctld")
	}
	// down ends a job at work and all daemons
	do(t, "slurm", "exec", "sbatch", "-N2", "--ntasks-per-node=1", "-o", "/dev/null", "--wrap", "srun sleep 3217")
	for i := 0; !sleeps("3217"); i++ {
		if i == 100 {
			t.Fatal("the batch job does not start")
		}
		time.Sleep(100 * time.Millisecond)
	}
	do(t, "slurm", "down")
	for i := 0; sleeps("3217"); i++ {
		if i == 50 {
			t.Fatal("slurm down leaves the tasks of a job")
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, daemon := range []string{"slurmctld", "slurmd", "munged"} {
		if out, err := exec.Command("pgrep", "-a", "-x", daemon).Output(); err == nil && strings.Contains(string(out), "rankstorm-lab") {
			t.Errorf("after slurm down: %s", out)
		}
	}
}

// sleeps says whether a sleep of that many seconds runs.
func sleeps(seconds string) bool {
	return exec.Command("pgrep", "-f", "-x", "(/.*/)?sleep "+seconds).Run() == nil
}

// The scripts say how they are used, and what they do not know is an error.
func TestLabHelp(t *testing.T) {
	for _, script := range []string{"hosts", "slurm", "ssh", "packages"} {
		if out := do(t, script, "--help"); !strings.HasPrefix(out, "usage: "+script) {
			t.Errorf("%s --help: %s", script, out)
		}
		if err := exec.Command("bash", "-n", filepath.Join("..", "lab", script)).Run(); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	}
}
