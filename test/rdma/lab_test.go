package rdma

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the machine promises to commands: the streams apart, the status, the
// working tree, the devices, parameters of modules and of the kernel.
func TestLabKeepsItsPromises(t *testing.T) {
	if err := os.WriteFile(filepath.Join(folder, "note"), []byte("from outside\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := in(t, "-n", "3", "-p", "ib_core.recv_queue_size=64", "--sysctl", "net.rdma_ucm.max_backlog=2", "-e", "WORD=two words", "--", "bash", "-c", `
		cat note; echo "from inside" >answer
		cat /sys/module/ib_core/parameters/recv_queue_size /proc/sys/net/rdma_ucm/max_backlog
		for i in 0 1 2; do dev=RDMALAB_DEV$i; cat /sys/class/infiniband/${!dev}/ports/1/state; done
		echo "$WORD" >&2
		exit 7`)
	if want := "from outside\n64\n2\n" + strings.Repeat("4: ACTIVE\n", 3); o.stdout != want {
		t.Errorf("standard output %q, want %q", o.stdout, want)
	}
	if o.stderr != "two words\n" {
		t.Errorf("standard error %q", o.stderr)
	}
	if o.code != 7 {
		t.Errorf("exit %d, want the command's 7", o.code)
	}
	if got, err := os.ReadFile(filepath.Join(folder, "answer")); err != nil || string(got) != "from inside\n" {
		t.Errorf("the file written inside holds %q: %v", got, err)
	}
}

func TestLabRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-p", "ib_core.nosuch=1", "true"}, "does not take nosuch=1"},
		{[]string{"-n", "many", "true"}, "-n 'many': give a number"},
		{[]string{"./nothing"}, "no program ./nothing"},
		{[]string{"--suite", "Sid!", "true"}, "give the name of a release of Debian"},
		{[]string{"-s", "/usr", "true"}, "share another directory"},
	} {
		if o := in(t, c.args...); o.code != 125 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: exit %d, %q", c.args, o.code, o.stderr)
		}
	}
}

// Two machines reach each other over RDMA, and know who they are.
func TestLabTwoMachines(t *testing.T) {
	o := script(t, []string{"--vms", "2"}, `
		if ((RDMALAB_VM == 0)); then
			rping -s -a $RDMALAB_IP0 -C 5 >/dev/null & meet listens; wait $!
		else
			meet listens
			until rping -c -I $RDMALAB_IP1 -a $RDMALAB_IP0 -C 5 >/dev/null 2>&1; do sleep 0.1; done
			cat /sys/class/infiniband/$RDMALAB_DEV1/ports/1/hw_counters/rdma_sends
		fi
		echo done`).clean(t)
	if !strings.Contains(o.stdout, "[0] done\n") || !strings.Contains(o.stdout, "[1] done\n") {
		t.Errorf("%s\n%s", o.stdout, o.stderr)
	}
}

// A machine that does not end is ended, one that breaks down says so, and a
// script that is killed leaves no machine and no folder.
func TestLabLeavesNothing(t *testing.T) {
	tmp := t.TempDir()
	left := func() string {
		var found []string
		names, _ := filepath.Glob(filepath.Join(tmp, "*"))
		found = append(found, names...)
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range lines {
			if line, err := os.ReadFile(name); err == nil && bytes.HasPrefix(line, []byte("qemu-")) && bytes.Contains(line, []byte(tmp)) {
				found = append(found, name)
			}
		}
		return strings.Join(found, " ")
	}
	t.Setenv("TMPDIR", tmp)
	if o := in(t, "-t", "8", "sleep", "1000"); o.code != 124 || !strings.Contains(o.stderr, "no result after 8 s") {
		t.Errorf("after the time-out: exit %d, %s", o.code, o.stderr)
	}
	if o := in(t, "bash", "-c", "echo c >/proc/sysrq-trigger; sleep 100"); o.code != 125 || !strings.Contains(o.stderr, "broke down") {
		t.Errorf("after a crash: exit %d, %s", o.code, o.stderr)
	}
	if got := left(); got != "" {
		t.Errorf("left: %s", got)
	}
	cmd := machine(t.Context(), t, "--", "bash", "-c", "echo up; sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var word string
	if _, err := fmt.Fscanln(out, &word); err != nil || word != "up" {
		t.Fatalf("the machine says %q: %v", word, err)
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err == nil {
		t.Error("exit 0 after SIGINT")
	}
	for end := time.Now().Add(time.Minute); left() != "" && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if got := left(); got != "" {
		t.Errorf("left after SIGINT: %s", got)
	}
}
