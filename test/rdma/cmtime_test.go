package rdma

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankstorm/test/cmtables"
)

// The face of cmtime over real RDMA CM: two instances with all passes, three with
// played queue pairs on one host, where cmtime's numbers collide, and sockets. Every
// cell that cmtime fills is filled, no other is, and nothing is left.
func TestCmtime(t *testing.T) {
	script(t, []string{"-n", "3", "-t", "200"}, `
		run() { # name, number of instances, options of all; -L for the first
			for ((i = 0; i < $2; i++)); do
				ip=RDMALAB_IP$i role=; ((i)) || role=-L
				./rankstorm cmtime -b ${!ip} -C $RDMALAB_IP0 -P $2 $role "${@:3}" >$1.$i 2>$1.$i.err &
				until ((i)) || grep -q 'this job is open' $1.0.err; do kill -0 $!; sleep 0.05; done # one host: the first is the controller
			done
			for job in $(jobs -p); do wait $job || { cat $1.*.err >&2; exit 1; }; done
		}
		held() { { rdma resource show qp; rdma resource show cm_id; } | grep -v 'type GSI' || true; } # the kernel's own
		run pair 2 -c 100
		run three 3 -c 20 -m 2000
		run sockets 2 -c 50 -S
		[[ ! $(held) ]] || { echo "left: $(held)" >&2; exit 1; }`).clean(t)
	read := func(name string, want ...string) []cmtables.Table {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		lines, tables, err := cmtables.Read(string(b))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, b)
		}
		lines = slices.DeleteFunc(lines, func(l string) bool { return l == "Running as OOB root" })
		if !slices.Equal(lines, want) {
			t.Errorf("%s printed %q, want %q", name, lines, want)
		}
		return tables
	}
	fits := func(name string, table cmtables.Table, label string, conns int64, cells cmtables.Cells, must ...string) {
		t.Helper()
		if table.Label != label || table.Conns != conns {
			t.Errorf("%s: %s %d, want %s %d", name, table.Label, table.Conns, label, conns)
		}
		if err := table.Fits(cells, must...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// In the warm-up both sides open their device.
	clientPass, serverPass := cmtables.ClientPass, cmtables.ServerPass
	verbs := "\tAllocating verbs resources"
	clientWarmUp := slices.Insert(slices.Clone(clientPass), slices.Index(clientPass, "\tCreating QPs")+1, verbs)
	serverWarmUp := slices.Insert(slices.Clone(serverPass), 1, verbs)
	story := func(role, verb string, conns int, main string, all ...[]string) []string {
		lines := slices.Concat([]string{role + " warmup"}, all[0], []string{fmt.Sprintf("%s (%d) %s", verb, conns, main)}, all[1])
		if len(all) > 2 {
			lines = slices.Concat(lines, []string{fmt.Sprintf("%s (%d) test - no QPs", verb, conns)}, all[2])
		}
		return lines
	}
	// These take more than a µs, whatever the machine.
	clientMust := []string{"full connect", "create id", "bind addr", "resolve addr", "resolve route", "create qp", "rtr qp", "cm connect", "disconnect", "destroy id", "destroy qp"}
	serverMust := []string{"create qp", "rtr qp", "cm connect", "disconnect", "destroy id", "destroy qp"}
	noPair := func(must []string) []string {
		return slices.DeleteFunc(slices.Clone(must), func(s string) bool { return strings.HasSuffix(s, " qp") })
	}

	client := read("pair.1", story("Client", "Connect", 100, "QPs test", clientWarmUp, clientPass, clientPass)...)
	server := read("pair.0", story("Server", "Accept", 100, "QPs test", serverWarmUp, serverPass, serverPass)...)
	if len(client) != 2 || len(server) != 2 {
		t.Fatalf("%d and %d tables", len(client), len(server))
	}
	fits("client", client[0], "qp_conn", 100, cmtables.Client, clientMust...)
	fits("client without queue pairs", client[1], "cm_conn", 100, cmtables.Client.Without("destroy qp"), noPair(clientMust)...)
	fits("server", server[0], "qp_conn", 100, cmtables.Server, serverMust...)
	fits("server without queue pairs", server[1], "cm_conn", 100, cmtables.Server.Without("destroy qp"), noPair(serverMust)...)

	const played = "simulated QPs test (delay 2000 us)"
	all := read("three.0", append(story("Server", "Accept", 40, played, serverWarmUp, serverPass), "All clients (2): Connect (40) "+played, "All servers (1): Accept (40) "+played)...)
	if len(all) != 3 {
		t.Fatalf("%d tables at the controller", len(all))
	}
	for _, i := range []int{1, 2} {
		one := read(fmt.Sprintf("three.%d", i), story("Client", "Connect", 20, played, clientWarmUp, clientPass)...)
		fits("client", one[0], "cm_conn", 20, cmtables.Client.Without("destroy qp"), noPair(clientMust)...)
		for _, row := range []string{"create qp", "init qp", "rtr qp", "rts qp"} {
			if f := one[0].Rows[row]; f.Min < 2000 {
				t.Errorf("client %d: %s played in %d µs, 2000 were asked for", i, row, f.Min)
			}
		}
	}
	for _, row := range []string{"create qp", "init qp", "rtr qp", "rts qp"} {
		if f := all[0].Rows[row]; f.Min < 2000 {
			t.Errorf("server: %s played in %d µs, 2000 were asked for", row, f.Min)
		}
	}
	fits("all clients", all[1], "cm_conn", 40, cmtables.Client.Without("destroy qp"), noPair(clientMust)...)

	sockets := read("sockets.1", "Client baseline socket setup", "Creating sockets", "Connecting sockets", "Closing sockets", "Client baseline socket results:")
	fits("client over sockets", sockets[0], "cm_conn", 50, cmtables.SocketsClient, "full connect", "create id", "cm connect", "destroy id")
}
