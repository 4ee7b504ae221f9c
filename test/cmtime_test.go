package test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/cmtables"
	"rankstorm/test/freeport"
	"rankstorm/test/need"
)

// What cmtime fills that TCP has; the rows of queue pairs but for create qp are
// RDMA's.
var (
	tcpClient = cmtables.Client.Without("init qp attr", "init qp", "rtr qp attr", "rtr qp", "rts qp attr", "rts qp")
	tcpServer = cmtables.Server.Without("create qp", "init qp attr", "init qp", "rtr qp attr", "rtr qp", "rts qp attr", "rts qp")
)

// cmInstance is a running instance.
type cmInstance struct {
	cmd    *exec.Cmd
	out    string // file of its standard output, which may be read while it runs
	stderr bytes.Buffer
	ended  chan struct{}
	code   int
}

func (i *cmInstance) stdout(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(i.out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// until waits for something that must come.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// cmStart starts instances, one per line, and ends what is left with the test.
func cmStart(t *testing.T, common string, lines ...string) []*cmInstance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	list := make([]*cmInstance, 0, len(lines))
	for _, line := range lines {
		i := &cmInstance{ended: make(chan struct{})}
		i.cmd = exec.CommandContext(ctx, binary, append([]string{"cmtime"}, strings.Fields(line+" "+common)...)...)
		i.cmd.Dir = t.TempDir()
		i.out = filepath.Join(i.cmd.Dir, "out")
		stdout, err := os.Create(i.out)
		if err != nil {
			t.Fatal(err)
		}
		defer stdout.Close()
		i.cmd.Stdout, i.cmd.Stderr, i.cmd.WaitDelay = stdout, &i.stderr, 5*time.Second
		if err := i.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			i.code = exitCode(i.cmd.Wait())
			close(i.ended)
		}()
		t.Cleanup(func() {
			i.cmd.Process.Kill()
			<-i.ended
		})
		list = append(list, i)
	}
	return list
}

// wait ends with the instance.
func (i *cmInstance) wait(t *testing.T, code int) {
	t.Helper()
	<-i.ended
	if i.code != code {
		t.Errorf("%s: exit %d, want %d\n%s%s", i.cmd, i.code, code, i.stdout(t), &i.stderr)
	}
}

// freePort is one that nobody has now.
func freePort(t *testing.T, host string) string {
	t.Helper()
	return fmt.Sprint(freeport.At(t, host))
}

// said compares the lines outside tables; who is the controller says so first.
func (i *cmInstance) said(t *testing.T, root *int, want ...string) []cmtables.Table {
	t.Helper()
	return i.saidIn(t, i.stdout(t), root, want...)
}

func (i *cmInstance) saidIn(t *testing.T, text string, root *int, want ...string) []cmtables.Table {
	t.Helper()
	lines, tables, err := cmtables.Read(text)
	if err != nil {
		t.Errorf("%s: %v\n%s", i.cmd, err, text)
	}
	if len(lines) > 0 && lines[0] == "Running as OOB root" {
		lines = lines[1:]
		*root++
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%s printed\n%q, want\n%q", i.cmd, lines, want)
	}
	return tables
}

// Two instances as in the manual: warm-up, a pass, a pass without queue pairs.
func TestCmtimePair(t *testing.T) {
	for _, c := range []struct {
		name, flags, title string
		label              string
	}{
		{"plain", "-c 40", "%s (40) QPs test", "qp_conn"},
		{"mimic 0", "-c 40 -m 0", "%s (40) simulated QPs test (delay 0 us)", "cm_conn"},
		{"by default", "", "%s (100) QPs test", "qp_conn"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conns := int64(40)
			if c.flags == "" {
				conns = 100
			}
			roots := 0
			list := cmStart(t, "--transport tcp -b 127.0.0.1 -C127.0.0.1 -p "+freePort(t, "127.0.0.1")+" "+c.flags, "-L", "-n2")
			for _, i := range list {
				i.wait(t, 0)
			}
			noQPs := fmt.Sprintf("%%s (%d) test - no QPs", conns)
			tables := list[1].said(t, &roots, slices.Concat([]string{"Client warmup"}, cmtables.ClientPass,
				[]string{fmt.Sprintf(c.title, "Connect")}, cmtables.ClientPass, []string{fmt.Sprintf(noQPs, "Connect")}, cmtables.ClientPass)...)
			tables = append(tables, list[0].said(t, &roots, slices.Concat([]string{"Server warmup"}, cmtables.ServerPass,
				[]string{fmt.Sprintf(c.title, "Accept")}, cmtables.ServerPass, []string{fmt.Sprintf(noQPs, "Accept")}, cmtables.ServerPass)...)...)
			if roots != 1 {
				t.Errorf("%d instances are the root", roots)
			}
			if len(tables) != 4 {
				t.Fatalf("%d tables, want 2 of each", len(tables))
			}
			for i, one := range tables {
				label, threads := c.label, int64(2-i/2)
				if i%2 == 1 {
					label = "cm_conn"
				}
				if one.Label != label || one.Conns != conns || one.Threads != threads || one.All {
					t.Errorf("table %d: %s %d, %d threads, want %s %d, %d", i, one.Label, one.Conns, one.Threads, label, conns, threads)
				}
				cells, must := tcpClient, []string{"full connect", "create id", "bind addr", "cm connect", "establish", "disconnect", "destroy id"}
				if i >= 2 {
					cells, must = tcpServer, []string{"cm connect", "disconnect", "destroy id"}
				}
				if i == 1 || c.label == "cm_conn" { // what is slept in place of queue pair steps
					cells = cells.Without()
					maps.Copy(cells, cmtables.Cells{"create qp": "GC", "init qp": "GC", "rtr qp": "C", "rts qp": "C"})
				}
				if err := one.Fits(cells, must...); err != nil {
					t.Errorf("table %d: %v", i, err)
				}
			}
		})
	}
}

// Five instances: each prints its own table, once, and the controller those of all
// together, whose figures follow from the single ones.
func TestCmtimeAllTogether(t *testing.T) {
	common := "--transport tcp -P 5 -c 30 -C localhost -p " + freePort(t, "127.0.0.1")
	list := cmStart(t, common, "-b 127.0.0.2 -L", "-b 127.0.0.3", "-b 127.0.0.4", "-b 127.0.0.5 -L", "-b 127.0.0.6 -n 3")
	roots, at := 0, -1
	var clients, servers, all []cmtables.Table
	for k, i := range list {
		i.wait(t, 0)
		text := i.stdout(t)
		if strings.HasPrefix(text, "Running as OOB root\n") {
			at = k
			text = strings.NewReplacer("All clients (3): Connect (180) QPs test\n", "", "All servers (2): Accept (180) QPs test\n", "").Replace(text)
		}
		want := slices.Concat([]string{"Client warmup"}, cmtables.ClientPass, []string{"Connect (60) QPs test"}, cmtables.ClientPass)
		if k == 0 || k == 3 {
			want = slices.Concat([]string{"Server warmup"}, cmtables.ServerPass, []string{"Accept (90) QPs test"}, cmtables.ServerPass)
		}
		tables := i.saidIn(t, text, &roots, want...)
		if len(tables) == 0 {
			t.Fatalf("no table:\n%s%s", text, &i.stderr)
		}
		if len(tables) > 1 {
			all = tables[1:]
		}
		if k == 0 || k == 3 {
			servers = append(servers, tables[0])
		} else {
			clients = append(clients, tables[0])
		}
	}
	if roots != 1 || len(all) != 2 || at < 0 {
		t.Fatalf("%d instances are the root, which printed %d tables of all", roots, len(all))
	}
	for k, parts := range [][]cmtables.Table{clients, servers} {
		whole := all[k]
		var sumConns, threads int64
		for _, p := range parts {
			sumConns, threads = sumConns+p.Conns, threads+p.Threads
		}
		if !whole.All || whole.Conns != sumConns || whole.Conns != 180 || whole.Threads != threads {
			t.Errorf("all: %d connections, %d threads, want %d and %d", whole.Conns, whole.Threads, sumConns, threads)
		}
		for _, name := range cmtables.Rows {
			w := whole.Rows[name]
			var sum, most, longest int64
			least := int64(-1)
			for _, p := range parts {
				f := p.Rows[name]
				sum, most, longest = sum+f.Sum, max(most, f.Max), max(longest, f.Total)
				if least < 0 || f.Min < least {
					least = f.Min
				}
			}
			// Sums are cut to whole µs once for all and once for each, and so are moments.
			if w.Sum < sum || w.Sum > sum+int64(len(parts)) || w.Max != most || w.Min != least || w.Total+1 < longest {
				t.Errorf("%s of all: %+v; single ones: sum %d, max %d, min %d, longest %d", name, w, sum, most, least, longest)
			}
		}
	}
}

// -S over IPv6, with more than two.
func TestCmtimeSockets(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		need.Absent(t, "ipv6", "no IPv6 loopback: %v", err)
	} else {
		l.Close()
	}
	roots := 0
	list := cmStart(t, "-b ::1 -C ::1 -c 25 -P3 --all=false -p "+freePort(t, "::1"), "-S", "-SL", "-S")
	for k, i := range list {
		i.wait(t, 0)
		want, conns, cells := []string{"Client baseline socket setup", "Creating sockets", "Connecting sockets", "Closing sockets", "Client baseline socket results:"}, int64(25), cmtables.SocketsClient
		must := []string{"full connect", "create id", "cm connect", "destroy id"}
		if k == 1 {
			want, conns, cells = []string{"Server baseline socket setup", "Accept sockets", "Closing sockets", "Server baseline socket results:"}, 50, cmtables.SocketsServer
			must = []string{"full connect", "destroy id"}
		}
		tables := i.said(t, &roots, want...)
		if len(tables) != 1 || tables[0].Label != "cm_conn" || tables[0].Conns != conns {
			t.Fatalf("%+v", tables)
		}
		if err := tables[0].Fits(cells, must...); err != nil {
			t.Error(err)
		}
	}
}

// An option that differs is refused at once, by the name under which it was typed, with both values on one line; the
// others wait for the right instance.
func TestCmtimeRefusesOtherOptions(t *testing.T) {
	const tcp = "--transport tcp "
	for _, c := range []struct{ name, first, wrong, says string }{
		{"-c", tcp + "-c 10", tcp + "-c 20", `-c is "20" here, "10" at the controller;`},
		{"-S", tcp + "-c 10", "-S -c 10", `-S is "given" here, "not given" at the controller;`},
		{"not -S", "-S -c 10", tcp + "-c 10", `-S is "not given" here, "given" at the controller;`},
		{"-m", tcp + "-c 10 -m 50", tcp + "-c 10", `-m is "not given" here, "50" at the controller;`},
		{"--no-qp-pass", tcp + "-c 10", tcp + "-c 10 --no-qp-pass=false", `--no-qp-pass is "false" here, "default" at the controller;`},
		{"two", tcp + "-c 10", tcp + "-c 20 -m 50", `-c is "20" here, "10" at the controller (and 1 more setting differs);`},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := freePort(t, "127.0.0.1")
			common := "-b 127.0.0.1 -C 127.0.0.1 -p " + port
			first := cmStart(t, common, "-L "+c.first)[0]
			until(t, "the controller", func() bool {
				c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
				if err == nil {
					c.Close()
				}
				return err == nil
			})
			wrong := cmStart(t, common, c.wrong)[0]
			wrong.wait(t, 3)
			if text := wrong.stderr.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "refused this process: "+c.says) {
				t.Errorf("refused with:\n%s", text)
			}
			if text := wrong.stdout(t); text != "" {
				t.Errorf("printed %q", text)
			}
			right := cmStart(t, common, c.first)[0]
			right.wait(t, 0)
			first.wait(t, 0)
		})
	}
}

// Roles that do not fit together end all instances, with cmtime's line.
func TestCmtimeRoles(t *testing.T) {
	for _, c := range []struct{ one, line, why string }{
		{"-L", "cannot have all listeners", "all instances (-P 2) are servers"}, {"", "need at least 1 listener", "no instance (-P 2) is a server"},
	} {
		roots := 0
		var told string
		for _, i := range cmStart(t, "--transport tcp -b 127.0.0.1 -C 127.0.0.1 -p "+freePort(t, "127.0.0.1"), c.one, c.one) {
			i.wait(t, 1)
			i.said(t, &roots, c.line)
			told += i.stderr.String()
		}
		if roots != 1 || strings.Count(told, c.why) != 1 {
			t.Errorf("%d roots; told:\n%s", roots, told)
		}
	}
}

// The loss of an instance ends the other within bounds, and names it; there is no table of what was not done.
func TestCmtimeLosesServer(t *testing.T) {
	list := cmStart(t, "--transport tcp -b 127.0.0.1 -C 127.0.0.1 -c 50 -m 200000 -p "+freePort(t, "127.0.0.1"), "-L", "")
	// The warm-up has no sleeps, the pass 50 of 200 ms each.
	until(t, "the pass", func() bool { return strings.Count(list[1].stdout(t), "Creating QPs") == 2 })
	begin := time.Now()
	list[0].cmd.Process.Signal(syscall.SIGKILL)
	list[1].wait(t, 1)
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("ended after %v", took)
	}
	if text := list[1].stderr.String(); !strings.Contains(text, fmt.Sprintf("pid %d", list[0].cmd.Process.Pid)) {
		t.Errorf("the lost instance is not named:\n%s", text)
	}
	if text := list[1].stdout(t); strings.Contains(text, "cm_conn") {
		t.Errorf("a table of a pass that was broken off:\n%s", text)
	}
}
