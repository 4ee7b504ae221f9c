package hosts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A thousand strangers a second (RANKSTORM_JUNK_RATE) come from another host to all ports of a host while a job of
// two hosts waits, forms, storms and ends, RANKSTORM_JUNK_SECONDS (3) long. They scan, stay mute, send garbage, forge
// hellos, and say again what was heard on the way, in this job and in one before. Nothing of the job is refused, no
// connection fails, and what does not belong to it is counted.
func TestJunkFromAnotherHost(t *testing.T) {
	hostsUp(t, 3)
	rate, seconds := numberOf(t, "RANKSTORM_JUNK_RATE", 1000), numberOf(t, "RANKSTORM_JUNK_SECONDS", 3)
	tool := filepath.Join(folder, "bin", "junk")
	if out, err := exec.Command("go", "build", "-o", tool, "../junk/cmd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	secret := filepath.Join(folder, "junk-secret")
	if err := os.WriteFile(secret, []byte("what nobody guesses\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
	}{{"open", nil}, {"secret", []string{"--secret-file", secret}}} {
		t.Run(c.name, func(t *testing.T) {
			out := resultFile(t)
			heard := filepath.Join(t.TempDir(), "heard.json")
			ear := start(t, "ear", lab("hosts", "exec", "n0", tool, "-record", heard, "-for", "10m"))
			line := append([]string{
				"run", "-C", "n0", "-P", "4", "-c", "16", "-o", out,
				"--hold", "create=100ms", "--hold", fmt.Sprintf("qp=%ds", seconds), "--hold", "connect=500ms",
			}, c.args...)
			// A job before, for its hellos.
			var before []*running
			for i := range 4 {
				before = append(before, onHost(t, host(i%2), append([]string{"run", "-C", "n0", "-P", "4", "-c", "4", "-o", out}, c.args...)...))
			}
			waitAll(t, before, 0, time.Minute)
			for range 50 { // what was heard is written
				if b, err := os.ReadFile(heard); err == nil && strings.Contains(string(b), `":["cmtzd`) { // rkst
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			all := []*running{onHost(t, "n0", line...)}
			all[0].says(t, "waiting for 3 of 4", 20*time.Second) // it is the controller
			all = append(all, onHost(t, "n0", line...))
			all[0].says(t, "waiting for 2 of 4", 20*time.Second)
			pids := fmt.Sprintf("%d,%d", all[0].cmd.Process.Pid, all[1].cmd.Process.Pid)
			stranger := start(t, "stranger", lab("hosts", "exec", "n2", tool, "-host", "10.97.0.1", "-pids", pids,
				"-rate", strconv.Itoa(rate), "-recorded", heard, "-for", "10m"))
			time.Sleep(time.Second) // of junk, while the job waits
			all = append(all, onHost(t, "n1", line...), onHost(t, "n1", line...))
			waitAll(t, all, 0, time.Minute+time.Duration(seconds)*time.Second)
			stranger.wait(t, 20*time.Second) // it ends with the processes that it sends to
			_ = ear.cmd.Process.Signal(syscall.SIGTERM)
			ear.wait(t, 10*time.Second)
			t.Logf("%s", stranger.stdout.String())

			clean(t, out, wanted{procs: 4, connections: allToAll(4, 16), perHost: spread(2, 2)})
			var d struct {
				Warnings []string
			}
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &d); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(d.Warnings, "\n"), "not of this job or forged") {
				t.Errorf("the document does not count the strangers: %q", d.Warnings)
			}
			t.Logf("%q", d.Warnings)
		})
	}
}
