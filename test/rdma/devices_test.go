package rdma

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDevices takes away from a machine what RDMA needs, one thing after the
// other: each time devices names it and what to do, and TCP stays usable.
func TestDevices(t *testing.T) {
	static := filepath.Join(folder, "rankstorm-static")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", static, "../../cmd/rankstorm")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	o := script(t, nil, `
		cp rankstorm rankstorm-static /tmp; chmod 755 /tmp/rankstorm*; cd /tmp
		say() { echo "== $1"; shift; "$@" | tee /tmp/all | grep -E '^(tcp|rdma) '; }
		as_nobody() { su -s /bin/bash nobody -c "$*"; }
		say usable ./rankstorm devices
		grep -E 'GID 1|in use|netdev|port 1' /tmp/all
		./rankstorm devices --json | grep -c '"netdev": "lab0"'
		say static ./rankstorm-static devices
		./rankstorm-static run --spawn 2 -c 4 -o /dev/null >/dev/null && echo "static job: $?"

		lib=/usr/lib/x86_64-linux-gnu
		mv $lib/librdmacm.so.1 /tmp/; say library ./rankstorm devices; grep -c 'GID 1  *10.66' /tmp/all; mv /tmp/librdmacm.so.1 $lib/
		mv /etc/libibverbs.d/rxe.driver /tmp/; mkdir /tmp/driver; mv $lib/libibverbs/librxe* /tmp/driver; say driver ./rankstorm devices
		mv /tmp/driver/* $lib/libibverbs/; mv /tmp/rxe.driver /etc/libibverbs.d/
		chmod 600 /dev/infiniband/rdma_cm; say permission as_nobody ./rankstorm devices; chmod 666 /dev/infiniband/rdma_cm
		chmod 666 /dev/infiniband/uverbs*
		say nobody as_nobody ./rankstorm devices
		(ulimit -l 32; say memlock as_nobody ./rankstorm devices; say root ./rankstorm devices)
		(ulimit -l 1024; say note as_nobody ./rankstorm devices; grep note: /tmp/all)
		mv /dev/infiniband/rdma_cm /tmp/; say container ./rankstorm devices; mv /tmp/rdma_cm /dev/infiniband/
		ip link set lab0 down; ip link set lab1 down; say down ./rankstorm devices
		rdma link del rxe0; rdma link del rxe1; say none ./rankstorm devices
	`).clean(t)
	for _, want := range []string{
		"== usable\ntcp       usable\nrdma      usable\n",
		"  port 1      ACTIVE · LinkUp · Ethernet · ",
		"  netdev      lab0 · 10.66.0.1, ",
		"  GID 1       10.66.0.1 · RoCE v2 · lab0\n",
		"  in use      QPs 1 of 1,048,560 · CQs 1 of ",
		"== static\ntcp       usable\nrdma      not usable: this build has no RDMA: it was made with CGO_ENABLED=0",
		"static job: 0\n",
		"== library\ntcp       usable\nrdma      not usable: librdmacm.so.1 cannot be opened",
		"== driver\ntcp       usable\nrdma      not usable: libibverbs has no driver for rxe0, rxe1: install",
		"== permission\ntcp       usable\nrdma      not usable: no permission to open /dev/infiniband/rdma_cm",
		"== nobody\ntcp       usable\nrdma      usable\n",
		"== memlock\ntcp       usable\nrdma      not usable: this process may lock only 32768 bytes",
		"== root\ntcp       usable\nrdma      usable\n",
		"== note\ntcp       usable\nrdma      usable\n          note: this process may lock 1024 KiB",
		"== container\ntcp       usable\nrdma      not usable: /dev/infiniband/rdma_cm is missing although the kernel has rxe0, rxe1 and rdma_ucm: in a container",
		"== down\ntcp       usable\nrdma      not usable: no port is active (rxe0 port 1 down, rxe1 port 1 down)",
		"== none\ntcp       usable\nrdma      not usable: this machine has no RDMA device (/sys/class/infiniband is empty)",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("not said: %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", o.stdout, o.stderr)
	}
}
