package cmtime

import (
	"fmt"
	"io"
	"strings"
)

// The rows, in order.
const (
	fullConnect = iota
	createID
	bindAddr
	resolveAddr
	resolveRoute
	createQP
	initQPAttr
	initQP
	rtrQPAttr
	rtrQP
	rtsQPAttr
	rtsQP
	cmConnect
	establish
	disconnect
	destroyID
	destroyQP
	rowCount
)

var rowNames = [rowCount]string{
	"full connect", "create id", "bind addr", "resolve addr", "resolve route", "create qp", "init qp attr", "init qp",
	"rtr qp attr", "rtr qp", "rts qp attr", "rts qp", "cm connect", "establish", "disconnect", "destroy id", "destroy qp",
}

// header of the table; each figure stands under the end of its word.
const header = "step             avg/conn  total(us)    us/conn    sum(us)    max(us)    min(us)"

// Row of a table, µs. What was not measured is 0, as the format has it.
type Row struct {
	Total    int64 // from the first begin to the last end
	Sum      int64 // over all connections
	Max, Min int64 // of one connection
	// Of all instances together only: "" if there are too few connections, or none.
	P50, P99 string
	Slowest  string
}

// Table of one pass, of one instance or of all together.
type Table struct {
	QPs     bool  // there were queue pairs
	Conns   int64 // also those of which nothing was recorded; ≥ 1
	Threads int
	Rows    [rowCount]Row
	All     bool // of all instances: with quantiles and the slowest connection
}

// Write prints the table:
//
//	avg/conn = total / connections, us/conn = sum / connections, whole µs
func (t *Table) Write(w io.Writer) error {
	var b strings.Builder
	label := "cm_conn"
	if t.QPs {
		label = "qp_conn"
	}
	fmt.Fprintf(&b, "%-15s%10d\n", label, t.Conns)
	fmt.Fprintf(&b, "%-15s%10d\n", "threads", t.Threads)
	b.WriteString(header)
	if t.All {
		b.WriteString("    p50(us)    p99(us)  slowest")
	}
	b.WriteByte('\n')
	conns := max(t.Conns, 1)
	for i, r := range t.Rows {
		fmt.Fprintf(&b, "%-13s  %10d %10d %10d %10d %10d %10d", rowNames[i], r.Total/conns, r.Total, r.Sum/conns, r.Sum, r.Max, r.Min)
		if t.All {
			fmt.Fprintf(&b, " %10s %10s  %s", orDash(r.P50), orDash(r.P99), orDash(r.Slowest))
		}
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
