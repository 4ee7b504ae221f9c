// Package cmtables reads what cmtime prints, as somebody who knows the format from
// cmtime and nothing of how the program under test makes it.
package cmtables

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// Rows of a table, in order.
var Rows = []string{
	"full connect", "create id", "bind addr", "resolve addr", "resolve route", "create qp", "init qp attr", "init qp",
	"rtr qp attr", "rtr qp", "rts qp attr", "rts qp", "cm connect", "establish", "disconnect", "destroy id", "destroy qp",
}

const (
	header = "step             avg/conn  total(us)    us/conn    sum(us)    max(us)    min(us)"
	more   = "    p50(us)    p99(us)  slowest"
)

// Table is one table.
type Table struct {
	Label          string // qp_conn or cm_conn
	Conns, Threads int64
	Rows           map[string]Figures
	All            bool // with the columns of all instances
}

// Figures of a row, µs.
type Figures struct{ Avg, Total, PerConn, Sum, Max, Min int64 }

var first = regexp.MustCompile(`^(qp_conn|cm_conn) +(\d+)$`)

// Read takes a whole output apart: the lines that stand outside tables, and the
// tables. The error names everything that is not in cmtime's form, byte for byte,
// and every figure that does not follow from the others.
func Read(out string) (lines []string, tables []Table, err error) {
	if out == "" {
		return nil, nil, nil
	}
	if !strings.HasSuffix(out, "\n") {
		return nil, nil, errors.New("the output ends within a line")
	}
	var faults []error
	text := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for len(text) > 0 {
		if !first.MatchString(text[0]) {
			lines, text = append(lines, text[0]), text[1:]
			continue
		}
		if len(text) < 3+len(Rows) {
			return lines, tables, errors.Join(append(faults, fmt.Errorf("a table is cut short:\n%s", strings.Join(text, "\n")))...)
		}
		t, err := read(text[:3+len(Rows)])
		faults = append(faults, err, t.check())
		tables, text = append(tables, t), text[3+len(Rows):]
	}
	return lines, tables, errors.Join(faults...)
}

// read one table.
func read(text []string) (Table, error) {
	var faults []error
	same := func(got, want string) {
		if got != want {
			faults = append(faults, fmt.Errorf("line\n%q, want\n%q", got, want))
		}
	}
	m := first.FindStringSubmatch(text[0])
	t := Table{Label: m[1], Rows: map[string]Figures{}}
	t.Conns, _ = strconv.ParseInt(m[2], 10, 64)
	same(text[0], fmt.Sprintf("%s        %10d", t.Label, t.Conns))
	_, _ = fmt.Sscanf(text[1], "threads %d", &t.Threads)
	same(text[1], fmt.Sprintf("threads        %10d", t.Threads))
	t.All = strings.HasSuffix(text[2], more)
	want := header
	if t.All {
		want += more
	}
	same(text[2], want)
	for i, name := range Rows {
		line := text[3+i]
		fields := strings.Fields(line[min(15, len(line)):])
		if n := len(fields); n != 6 && (!t.All || n != 9) {
			faults = append(faults, fmt.Errorf("row %q has %d figures", line, n))
			continue
		}
		var f [6]int64
		for c := range f {
			var err error
			if f[c], err = strconv.ParseInt(fields[c], 10, 64); err != nil || f[c] < 0 {
				faults = append(faults, fmt.Errorf("row %q: %q is no figure", line, fields[c]))
			}
		}
		want := fmt.Sprintf("%-13s  %10d %10d %10d %10d %10d %10d", name, f[0], f[1], f[2], f[3], f[4], f[5])
		if t.All {
			want += fmt.Sprintf(" %10s %10s  %s", fields[6], fields[7], fields[8])
		}
		same(line, want)
		t.Rows[name] = Figures{f[0], f[1], f[2], f[3], f[4], f[5]}
	}
	return t, errors.Join(faults...)
}

// check looks at what holds in every table.
func (t Table) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if t.Conns < 1 || t.Threads < 1 {
		return fmt.Errorf("%d connections, %d threads", t.Conns, t.Threads)
	}
	for _, name := range Rows {
		f := t.Rows[name]
		if f.Avg != f.Total/t.Conns {
			fault("%s: avg/conn %d of a total of %d over %d", name, f.Avg, f.Total, t.Conns)
		}
		switch {
		case name == "full connect":
			if f.Sum != 0 || f.PerConn != 0 {
				fault("%s: sum %d, us/conn %d: this row has none", name, f.Sum, f.PerConn)
			}
		case f.PerConn != f.Sum/t.Conns, f.Sum > (f.Max+1)*t.Conns, f.Max > f.Sum, f.Min > f.Max:
			fault("%s of %d connections: us/conn %d, sum %d, max %d, min %d", name, t.Conns, f.PerConn, f.Sum, f.Max, f.Min)
		}
	}
	return errors.Join(faults...)
}

// Cells says which cells of rows are filled: "G" total and avg/conn, "C" the
// figures per connection, "GC" both; rows that are missing are 0.
type Cells map[string]string

// What cmtime fills with RDMA CM and with -S.
var (
	Client = Cells{
		"full connect": "GC", "create id": "GC", "bind addr": "GC", "resolve addr": "GC", "resolve route": "GC", "create qp": "GC",
		"init qp attr": "C", "init qp": "GC", "rtr qp attr": "C", "rtr qp": "C", "rts qp attr": "C", "rts qp": "C",
		"cm connect": "GC", "establish": "C", "disconnect": "GC", "destroy id": "GC", "destroy qp": "GC",
	}
	Server = Cells{
		"create qp": "C", "init qp attr": "C", "init qp": "C", "rtr qp attr": "C", "rtr qp": "C", "rts qp attr": "C", "rts qp": "C",
		"cm connect": "G", "disconnect": "GC", "destroy id": "GC", "destroy qp": "GC",
	}
	SocketsClient = Cells{"full connect": "G", "create id": "GC", "cm connect": "GC", "destroy id": "G"}
	SocketsServer = Cells{"full connect": "G", "destroy id": "G"}
)

// Without are the cells but those of some rows.
func (c Cells) Without(rows ...string) Cells {
	less := maps.Clone(c)
	for _, name := range rows {
		delete(less, name)
	}
	return less
}

// Fits says what is filled that must not be, and which rows of must are not filled
// as they have to be. The others may be 0 as well: a step can take less than 1 µs.
func (t Table) Fits(c Cells, must ...string) error {
	var faults []error
	for _, name := range Rows {
		f := t.Rows[name]
		if !strings.Contains(c[name], "G") && f.Total != 0 {
			faults = append(faults, fmt.Errorf("%s has a total of %d, it has none here", name, f.Total))
		}
		if !strings.Contains(c[name], "C") && f.Max != 0 {
			faults = append(faults, fmt.Errorf("%s has a maximum of %d, it has none here", name, f.Max))
		}
	}
	for _, name := range must {
		if f := t.Rows[name]; c[name] == "" || strings.Contains(c[name], "G") && f.Total == 0 || strings.Contains(c[name], "C") && f.Max == 0 {
			faults = append(faults, fmt.Errorf("%s is not filled as %q: %+v", name, c[name], f))
		}
	}
	return errors.Join(faults...)
}

// Lines of the passes of a client and a server between their titles.
var (
	ClientPass = []string{
		"\tCreating IDs", "\tBinding addresses", "\tResolving addresses", "\tResolving routes", "\tCreating QPs", "\tModify QPs to INIT",
		"\tConnecting", "\tDisconnecting", "\tDestroying QPs", "\tDestroying IDs",
	}
	ServerPass = []string{"\tAccepting", "\tDisconnecting"}
)
