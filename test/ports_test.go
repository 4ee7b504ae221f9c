package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/need"
)

// inNamespace runs a job in a network namespace of its own, after lines of sh. The test is skipped where there can be none.
func inNamespace(t *testing.T, lines string, args ...string) (e ended) {
	t.Helper()
	if out, err := exec.Command("unshare", "-n", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		need.Absent(t, "netns", "no network namespace of its own: %v: %s", err, out)
	}
	dir := t.TempDir()
	e.path = filepath.Join(dir, "result.json")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", "{ " + lines + `; } || exit 77; exec "$@"`, "sh", binary, "run", "-o", e.path}, args...)...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if e.code = exitCode(cmd.Run()); e.code == 77 {
		need.Absent(t, "netns", "the namespace cannot be set up: %s", errs.String())
	}
	e.stdout, e.stderr = out.String(), errs.String()
	return e
}

// withPorts sets up a namespace with few local ports and no reuse of those in TIME_WAIT.
func withPorts(first, last int) string {
	return fmt.Sprintf("ip link set lo up && echo 0 >/proc/sys/net/ipv4/tcp_tw_reuse && echo %d %d >/proc/sys/net/ipv4/ip_local_port_range", first, last)
}

// portsDocument is what these tests read of a result.
type portsDocument struct {
	Connections struct{ Established, Failed int64 }
	Resources   []struct {
		Peak struct {
			TimeWait   *int64  `json:"time_wait"`
			LocalPorts []int64 `json:"local_ports"`
		}
	}
	Causes []portsCause
}

type portsCause struct {
	Kind, Evidence, Fix string
	Rank                *int
	Count               *int64
}

// shortOfPorts is the document and its cause of kind ports, of rank 0 and all failures.
func shortOfPorts(t *testing.T, e ended) (d portsDocument, c portsCause) {
	t.Helper()
	if e.code != 1 {
		t.Fatalf("exit %d\n%s\n%s", e.code, e.stdout, e.stderr)
	}
	b, err := os.ReadFile(e.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	for _, c = range d.Causes {
		if c.Kind != "ports" {
			continue
		}
		if c.Rank == nil || *c.Rank != 0 || *c.Count != d.Connections.Failed {
			t.Errorf("%+v failed: %+v", d.Connections, c)
		}
		recompute(t, e)
		t.Log(c.Evidence)
		return d, c
	}
	t.Fatalf("ports are not named: %+v", d.Causes)
	return d, c
}

// Rounds that follow each other faster than TIME_WAIT gives ports back run out of them: the cause says which ports there
// are, how many sockets rest, and what to do; the rounds that still found ports are measured.
func TestRoundsThatRunOutOfPorts(t *testing.T) {
	e := inNamespace(t, withPorts(40000, 40499), "--spawn", "2", "--topology", "fanout", "-c", "200", "--rounds", "4")
	d, c := shortOfPorts(t, e)
	for _, r := range d.Resources {
		if len(r.Peak.LocalPorts) != 2 || r.Peak.LocalPorts[0] != 40000 || r.Peak.LocalPorts[1] != 40499 || r.Peak.TimeWait == nil || *r.Peak.TimeWait < 400 {
			t.Errorf("resources %+v", r.Peak)
		}
	}
	if d.Connections.Established < 400 || !strings.Contains(c.Evidence, "(rank 0 has 500, 40000 to 40499; 4") || !strings.Contains(c.Evidence, " sockets in TIME_WAIT there)") ||
		!strings.Contains(c.Fix, "net.ipv4.tcp_tw_reuse=1") {
		t.Errorf("%d established: %s; fix: %s", d.Connections.Established, c.Evidence, c.Fix)
	}
}

// Ports that the listeners of another program hold are not blamed on TIME_WAIT, in which the job's own connections are
// when it is over.
func TestPortsThatOthersHold(t *testing.T) {
	const others = 60
	hog := fmt.Sprintf(`%s && python3 -c '
import os, socket, time
held = [socket.create_server(("127.0.0.1", port)) for port in range(40000, 40000 + %d)]
open("held", "w").close()
job = os.getppid()
while os.getppid() == job:
    time.sleep(0.05)' >/dev/null 2>&1 & until [ -e held ]; do kill -0 $! && sleep 0.02; done`, withPorts(40000, 40099), others)
	e := inNamespace(t, hog, "--spawn", "2", "--topology", "fanout", "-c", "60")
	_, c := shortOfPorts(t, e)
	var ports, low, high, least int
	if n, err := fmt.Sscanf(c.Evidence[strings.IndexByte(c.Evidence, '('):], "(rank 0 has %d, %d to %d; at least %d of them are other sockets'", &ports, &low, &high, &least); n != 4 {
		t.Fatalf("%s: %v", c.Evidence, err)
	}
	if own := 5; ports != 100 || least < others || least > others+own || strings.Contains(c.Evidence+c.Fix, "TIME_WAIT") || !strings.Contains(c.Fix, "ss -tan") {
		t.Errorf("%s; fix: %s", c.Evidence, c.Fix)
	}
}

// What preflight says of local ports is right to the last one.
func TestPortsToTheLast(t *testing.T) {
	for conns, want := range map[int]int{95: 0, 96: 2} {
		e := inNamespace(t, withPorts(40000, 40099), "--spawn", "2", "--topology", "fanout", "-c", fmt.Sprint(conns))
		if e.code != want || want == 2 && !strings.Contains(e.stderr, "needs 96 local ports towards one listener, has 95 (5 of 100 are taken by its own listeners): sysctl") {
			t.Errorf("%d connections: exit %d, want %d\n%s\n%s", conns, e.code, want, e.stderr, e.stdout)
		}
	}
}

// A loopback interface that is down carries no spawned job, although it has its address.
func TestLoopbackDown(t *testing.T) {
	e := inNamespace(t, "ip link set lo up && ip link set lo down", "--spawn", "2")
	if e.code != 2 || !strings.HasSuffix(e.stderr, "--spawn needs 127.0.0.1, which no interface that is up has: ip link set lo up\n") {
		t.Errorf("exit %d: %s", e.code, e.stderr)
	}
}
