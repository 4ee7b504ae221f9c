package test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/need"
)

// Rounds that follow each other faster than TIME_WAIT gives ports back run out of them: the cause says which ports there
// are, how many sockets rest, and what to do; the rounds that still found ports are measured.
func TestRoundsThatRunOutOfPorts(t *testing.T) {
	if out, err := exec.Command("unshare", "-n", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		need.Absent(t, "netns", "no network namespace of its own: %v: %s", err, out)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c",
		`ip link set lo up && echo 0 > /proc/sys/net/ipv4/tcp_tw_reuse && echo 40000 40499 > /proc/sys/net/ipv4/ip_local_port_range || exit 77; exec "$@"`, "sh",
		binary, "run", "--spawn", "2", "--topology", "fanout", "-c", "200", "--rounds", "4", "-o", path)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	switch code := exitCode(cmd.Run()); code {
	case 1:
	case 77:
		need.Absent(t, "netns", "the ports of a namespace cannot be set: %s", stderr.String())
	default:
		t.Fatalf("exit %d\n%s\n%s", code, stdout.String(), stderr.String())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Connections struct{ Established, Failed int64 }
		Resources   []struct {
			Peak struct {
				TimeWait   *int64  `json:"time_wait"`
				LocalPorts []int64 `json:"local_ports"`
			}
		}
		Causes []struct {
			Kind, Evidence, Fix string
			Rank                *int
			Count               *int64
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	for _, r := range d.Resources {
		if len(r.Peak.LocalPorts) != 2 || r.Peak.LocalPorts[0] != 40000 || r.Peak.LocalPorts[1] != 40499 || r.Peak.TimeWait == nil || *r.Peak.TimeWait < 400 {
			t.Errorf("resources %+v", r.Peak)
		}
	}
	for _, c := range d.Causes {
		if c.Kind != "ports" {
			continue
		}
		if c.Rank == nil || *c.Rank != 0 || *c.Count != d.Connections.Failed || d.Connections.Established < 400 ||
			!strings.Contains(c.Evidence, "(rank 0 has 500, 40000 to 40499; 4") || !strings.Contains(c.Evidence, " sockets in TIME_WAIT there)") ||
			!strings.Contains(c.Fix, "net.ipv4.tcp_tw_reuse=1") {
			t.Errorf("%d established, %d failed: %s; fix: %s", d.Connections.Established, d.Connections.Failed, c.Evidence, c.Fix)
		}
		recompute(t, ended{stdout: stdout.String(), path: path})
		t.Log(c.Evidence)
		return
	}
	t.Errorf("ports are not named: %+v", d.Causes)
}
