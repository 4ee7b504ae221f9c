package rdma

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDevices takes away from a machine what RDMA needs, one thing after the
// other: each time devices names it and what to do, and TCP stays usable. So do
// jobs, before they storm, also for addresses and numbers that cannot be.
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

		bad() { local name=$1 code=0; shift; "$@" >/tmp/out 2>/tmp/err || code=$?; echo "bad $name: exit $code: $(tail -n 1 /tmp/err)"; }
		run="/tmp/rankstorm run --spawn 2 --transport rdma --quiet -o /dev/null --topology fanout"
		cmtime="/tmp/rankstorm cmtime -C 10.66.0.1"
		range=/proc/sys/net/ipv4/ip_local_port_range ports=$(cat /proc/sys/net/ipv4/ip_local_port_range)
		bad loopback $run -b 127.0.0.1
		bad cmtime-loopback $cmtime -b 127.0.0.1
		bad stranger $run -b 192.0.2.7
		(ulimit -l 32; bad memlock as_nobody $run -b 10.66.0.1; bad cmtime-memlock as_nobody $cmtime -b 10.66.0.1)
		mv /dev/infiniband/rdma_cm /tmp/; bad container $run -b 10.66.0.1; bad cmtime-container $cmtime -b 10.66.0.1; mv /tmp/rdma_cm /dev/infiniband/
		mv /dev/infiniband/uverbs0 /tmp/; bad file $run -b 10.66.0.1; mv /tmp/uverbs0 /dev/infiniband/
		echo 50000 50009 >$range; bad ports $run -b 10.66.0.1 -c 9
		for port in 0 1 2 3 4 5; do rping -s -a 10.66.0.1 -p 5000$port & hogs="${hogs-} $!"; done >/dev/null 2>&1
		until [ "$(rdma res show cm_id | grep -c LISTEN)" = 6 ]; do sleep 0.1; done
		bad others $run -b 10.66.0.1 -c 3
		kill $hogs; echo $ports >$range
		$cmtime -b 10.66.0.1 -L -c 100 -q 16777200 >/tmp/server 2>&1 & bad numbers $cmtime -b 10.66.0.2 -c 100 -q 16777200; code=0; wait $! || code=$?; echo "server exit $code"
		grep -h numbers /tmp/server /tmp/err # one of the two says it

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
		"bad loopback: exit 2: rankstorm: run: rdma rdma_bind_addr 127.0.0.1: no such device: no RDMA device has this address",
		"bad cmtime-loopback: exit 2: rankstorm: cmtime: rdma rdma_bind_addr 127.0.0.1: no such device: no RDMA device has this address",
		"bad stranger: exit 2: rankstorm: run: -b/--bind: 192.0.2.7 is not an address of this host: there are ",
		"bad memlock: exit 2: rankstorm: run: rdma: this process may lock only 32768 bytes of memory (ulimit -l)",
		"bad cmtime-memlock: exit 2: rankstorm: cmtime: rdma: this process may lock only 32768 bytes of memory (ulimit -l)",
		"bad container: exit 2: rankstorm: run: rdma: /dev/infiniband/rdma_cm is missing although ",
		"bad cmtime-container: exit 2: rankstorm: cmtime: rdma: /dev/infiniband/rdma_cm is missing although ",
		"bad file: exit 2: rankstorm: run: rdma rdma_bind_addr 10.66.0.1: no such device: device rxe0 has this address, but /dev/infiniband/uverbs0 is missing: ",
		"bad ports: exit 2: rankstorm: the ranks of one local address need 11 RDMA ports, listeners included, and it has 10: sysctl",
		": listen: rdma rdma_bind_addr 10.66.0.1: cannot assign requested address: no RDMA port is left at this address: widen net.ipv4.ip_local_port_range",
		"bad others: exit 2: ", "bad numbers: exit 2: ", "server exit 2\n",
		"2 ranks with up to 100 connections each need more queue pair numbers than there are from 16777200 to 16777215: use fewer connections or a lower first number",
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
