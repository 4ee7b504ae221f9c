package test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankstorm/test/need"
)

// The face of cmtime, read by somebody who knows the format from cmtime and
// nothing of how it is made here.

// cmRows are the rows of a table, in order.
var cmRows = []string{
	"full connect", "create id", "bind addr", "resolve addr", "resolve route", "create qp", "init qp attr", "init qp",
	"rtr qp attr", "rtr qp", "rts qp attr", "rts qp", "cm connect", "establish", "disconnect", "destroy id", "destroy qp",
}

const cmHeader = "step             avg/conn  total(us)    us/conn    sum(us)    max(us)    min(us)"

// cmTable is one table: label, number of connections, threads, and per row
// avg/conn, total, us/conn, sum, max, min.
type cmTable struct {
	label          string
	conns, threads int64
	rows           map[string][6]int64
	all            bool // with the columns of all instances
}

// cmRead takes a whole output apart: the lines that stand outside tables, and the tables.
func cmRead(t *testing.T, out string) (lines []string, tables []cmTable) {
	t.Helper()
	if !strings.HasSuffix(out, "\n") {
		t.Fatalf("the output ends within a line:\n%s", out)
	}
	text := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	first := regexp.MustCompile(`^(qp_conn|cm_conn) +(\d+)$`)
	for i := 0; i < len(text); i++ {
		m := first.FindStringSubmatch(text[i])
		if m == nil {
			lines = append(lines, text[i])
			continue
		}
		if len(text) < i+3+len(cmRows) {
			t.Fatalf("a table is cut short:\n%s", out)
		}
		one := cmTable{label: m[1], rows: map[string][6]int64{}}
		one.conns, _ = strconv.ParseInt(m[2], 10, 64)
		if want := fmt.Sprintf("%s        %10d", m[1], one.conns); text[i] != want {
			t.Errorf("line %q, want %q", text[i], want)
		}
		fmt.Sscanf(text[i+1], "threads %d", &one.threads)
		if want := fmt.Sprintf("threads        %10d", one.threads); text[i+1] != want {
			t.Errorf("line %q, want %q", text[i+1], want)
		}
		head, more, _ := strings.Cut(text[i+2], "    p50(us)    p99(us)  slowest")
		one.all = head != text[i+2]
		if head != cmHeader || more != "" {
			t.Errorf("header %q", text[i+2])
		}
		for k, name := range cmRows {
			line := text[i+3+k]
			var f [6]int64
			if len(line) < 15 {
				t.Fatalf("row %q", line)
			}
			fields := strings.Fields(line[15:])
			for c := range f {
				var err error
				if c >= len(fields) {
					t.Fatalf("row %q has too few figures", line)
				}
				if f[c], err = strconv.ParseInt(fields[c], 10, 64); err != nil || f[c] < 0 {
					t.Fatalf("row %q: %v", line, err)
				}
			}
			want := fmt.Sprintf("%-13s  %10d %10d %10d %10d %10d %10d", name, f[0], f[1], f[2], f[3], f[4], f[5])
			if one.all {
				if len(fields) != 9 {
					t.Fatalf("row %q has %d figures, want 9", line, len(fields))
				}
				want += fmt.Sprintf(" %10s %10s  %s", fields[6], fields[7], fields[8])
			}
			if line != want {
				t.Errorf("row\n%q, want\n%q", line, want)
			}
			one.rows[name] = f
		}
		one.check(t)
		tables = append(tables, one)
		i += 2 + len(cmRows)
	}
	return lines, tables
}

// check looks at what holds in every table.
func (c cmTable) check(t *testing.T) {
	t.Helper()
	for name, f := range c.rows {
		avg, total, us, sum, most, least := f[0], f[1], f[2], f[3], f[4], f[5]
		if name == "full connect" {
			if sum != 0 || us != 0 {
				t.Errorf("%s: sum %d, us/conn %d: this row has none", name, sum, us)
			}
		} else if us != sum/c.conns || sum > (most+1)*c.conns || most > sum || least > most {
			t.Errorf("%s of %d connections: us/conn %d, sum %d, max %d, min %d", name, c.conns, us, sum, most, least)
		}
		if avg != total/c.conns {
			t.Errorf("%s: avg/conn %d of a total of %d over %d", name, avg, total, c.conns)
		}
	}
}

// filled requires that exactly these cells can be other than 0: "G" total and avg,
// "C" the figures per connection. must says which are, whatever the machine.
func (c cmTable) filled(t *testing.T, cells map[string]string, must ...string) {
	t.Helper()
	for name, f := range c.rows {
		if !strings.Contains(cells[name], "G") && f[1] != 0 {
			t.Errorf("%s has a total of %d, it has none here", name, f[1])
		}
		if !strings.Contains(cells[name], "C") && f[4] != 0 {
			t.Errorf("%s has a maximum of %d, it has none here", name, f[4])
		}
	}
	for _, name := range must {
		if f := c.rows[name]; strings.Contains(cells[name], "G") && f[1] == 0 || strings.Contains(cells[name], "C") && f[4] == 0 {
			t.Errorf("%s is not filled: %v", name, f)
		}
	}
}

// What cmtime fills, and TCP has.
var (
	cmClient = map[string]string{
		"full connect": "GC", "create id": "GC", "bind addr": "GC", "resolve addr": "GC", "resolve route": "GC", "create qp": "GC",
		"cm connect": "GC", "establish": "C", "disconnect": "GC", "destroy id": "GC", "destroy qp": "GC",
	}
	cmServer        = map[string]string{"cm connect": "G", "disconnect": "GC", "destroy id": "GC", "destroy qp": "GC"}
	cmSocketsClient = map[string]string{"full connect": "G", "create id": "GC", "cm connect": "GC", "destroy id": "G"}
	cmSocketsServer = map[string]string{"full connect": "G", "destroy id": "G"}
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
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

var (
	cmClientPass = []string{
		"\tCreating IDs", "\tBinding addresses", "\tResolving addresses", "\tResolving routes", "\tCreating QPs", "\tModify QPs to INIT",
		"\tConnecting", "\tDisconnecting", "\tDestroying QPs", "\tDestroying IDs",
	}
	cmServerPass = []string{"\tAccepting", "\tDisconnecting"}
)

// said compares the lines outside tables; who is the controller says so first.
func (i *cmInstance) said(t *testing.T, root *int, want ...string) []cmTable {
	t.Helper()
	return i.saidIn(t, i.stdout(t), root, want...)
}

func (i *cmInstance) saidIn(t *testing.T, text string, root *int, want ...string) []cmTable {
	t.Helper()
	lines, tables := cmRead(t, text)
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
			tables := list[1].said(t, &roots, slices.Concat([]string{"Client warmup"}, cmClientPass,
				[]string{fmt.Sprintf(c.title, "Connect")}, cmClientPass, []string{fmt.Sprintf(noQPs, "Connect")}, cmClientPass)...)
			tables = append(tables, list[0].said(t, &roots, slices.Concat([]string{"Server warmup"}, cmServerPass,
				[]string{fmt.Sprintf(c.title, "Accept")}, cmServerPass, []string{fmt.Sprintf(noQPs, "Accept")}, cmServerPass)...)...)
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
				if one.label != label || one.conns != conns || one.threads != threads || one.all {
					t.Errorf("table %d: %s %d, %d threads, want %s %d, %d", i, one.label, one.conns, one.threads, label, conns, threads)
				}
				cells, must := cmClient, []string{"full connect", "create id", "bind addr", "cm connect", "establish", "disconnect", "destroy id"}
				if i >= 2 {
					cells, must = cmServer, []string{"cm connect", "disconnect", "destroy id"}
				}
				if i == 1 || c.label == "cm_conn" { // what is slept in place of queue pair steps
					cells = plus(cells, map[string]string{"create qp": "GC", "init qp": "GC", "rtr qp": "C", "rts qp": "C"})
				}
				one.filled(t, cells, must...)
			}
		})
	}
}

func plus(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		out[k] = v
	}
	return out
}

// Five instances: each prints its own table, once, and the controller those of all
// together, whose figures follow from the single ones.
func TestCmtimeAllTogether(t *testing.T) {
	const conns = 30
	common := "--transport tcp -P 5 -c 30 -C localhost -p " + freePort(t, "127.0.0.1")
	list := cmStart(t, common, "-b 127.0.0.2 -L", "-b 127.0.0.3", "-b 127.0.0.4", "-b 127.0.0.5 -L", "-b 127.0.0.6 -n 3")
	roots, at := 0, -1
	var clients, servers, all []cmTable
	for k, i := range list {
		i.wait(t, 0)
		text := i.stdout(t)
		if strings.HasPrefix(text, "Running as OOB root\n") {
			at = k
			text = strings.NewReplacer("All clients (3): Connect (180) QPs test\n", "", "All servers (2): Accept (180) QPs test\n", "").Replace(text)
		}
		want := slices.Concat([]string{"Client warmup"}, cmClientPass, []string{"Connect (60) QPs test"}, cmClientPass)
		if k == 0 || k == 3 {
			want = slices.Concat([]string{"Server warmup"}, cmServerPass, []string{"Accept (90) QPs test"}, cmServerPass)
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
	for k, parts := range [][]cmTable{clients, servers} {
		whole := all[k]
		var sumConns, threads int64
		for _, p := range parts {
			sumConns, threads = sumConns+p.conns, threads+p.threads
		}
		if !whole.all || whole.conns != sumConns || whole.conns != 180 || whole.threads != threads {
			t.Errorf("all: %d connections, %d threads, want %d and %d", whole.conns, whole.threads, sumConns, threads)
		}
		for _, name := range cmRows {
			w := whole.rows[name]
			var sum, most, longest int64
			least := int64(-1)
			for _, p := range parts {
				f := p.rows[name]
				sum, most, longest = sum+f[3], max(most, f[4]), max(longest, f[1])
				if least < 0 || f[5] < least {
					least = f[5]
				}
			}
			// Sums are cut to whole µs once for all and once for each, and so are moments.
			if w[3] < sum || w[3] > sum+int64(len(parts)) || w[4] != most || w[5] != least || w[1]+1 < longest {
				t.Errorf("%s of all: %v; single ones: sum %d, max %d, min %d, longest %d", name, w, sum, most, least, longest)
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
		want, conns, cells := []string{"Client baseline socket setup", "Creating sockets", "Connecting sockets", "Closing sockets", "Client baseline socket results:"}, int64(25), cmSocketsClient
		must := []string{"full connect", "create id", "cm connect", "destroy id"}
		if k == 1 {
			want, conns, cells = []string{"Server baseline socket setup", "Accept sockets", "Closing sockets", "Server baseline socket results:"}, 50, cmSocketsServer
			must = []string{"full connect", "destroy id"}
		}
		tables := i.said(t, &roots, want...)
		if len(tables) != 1 || tables[0].label != "cm_conn" || tables[0].conns != conns {
			t.Fatalf("%+v", tables)
		}
		tables[0].filled(t, cells, must...)
	}
}

// A different -c is refused at once, with both values on one line; the others wait for the right one.
func TestCmtimeRefusesOtherCount(t *testing.T) {
	common := "--transport tcp -b 127.0.0.1 -C 127.0.0.1 -p " + freePort(t, "127.0.0.1")
	first := cmStart(t, common, "-L -c 10")[0]
	until(t, "the controller", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+common[strings.LastIndex(common, " ")+1:])
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	wrong := cmStart(t, common, "-c 20")[0]
	wrong.wait(t, 3)
	if text := wrong.stderr.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `setting connections is "20" here, "10" at the controller`) {
		t.Errorf("refused with:\n%s", text)
	}
	if text := wrong.stdout(t); text != "" {
		t.Errorf("printed %q", text)
	}
	right := cmStart(t, common, "-c 10")[0]
	right.wait(t, 0)
	first.wait(t, 0)
}

// Roles that do not fit together end all instances, with cmtime's line.
func TestCmtimeRoles(t *testing.T) {
	for _, c := range []struct{ one, line, why string }{
		{"-L", "cannot have all listeners", "all 2 instances are servers"}, {"", "need at least 1 listener", "none of the 2 instances is a server"},
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
