package cmtables

import (
	"os"
	"strings"
	"testing"
)

// The reader takes cmtime's own output, and none that is a byte or a figure away from it.
func TestReadsCmtime(t *testing.T) {
	b, err := os.ReadFile("../../collect/cmtime/testdata/measured.txt")
	if err != nil {
		t.Fatal(err)
	}
	good := "Client warmup\n\tCreating IDs\n" + string(b)
	lines, tables, err := Read(good)
	if err != nil || len(lines) != 2 || len(tables) != 1 || tables[0].Conns != 10 || tables[0].Rows["rtr qp"] != (Figures{0, 0, 167, 1670, 415, 126}) {
		t.Fatalf("%v, %q, %+v", err, lines, tables)
	}
	if err := tables[0].Fits(Client, Rows...); err != nil {
		t.Error(err)
	}
	if err := tables[0].Fits(Server); err == nil {
		t.Error("a client's table passes for a server's")
	}
	for _, change := range [][2]string{
		{"qp_conn                10", "qp_conn               10"},
		{"threads                 1\n", "threads                 0\n"},
		{"avg/conn", "avg/iter"},
		{"create id ", "create  id"},
		{"full connect         4434", "full connect         4435"},
		{"         35        352", "         36        352"},
		{"        142          5", "        142        143"},
		{"      43618", "     043618"},
		{"destroy qp            310       3101        307       3072        625        131\n", ""},
		{"        131\n", "        131"},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good {
			t.Fatalf("%q is not in the output", change[0])
		}
		if _, _, err := Read(bad); err == nil {
			t.Errorf("%q passes for %q", change[1], change[0])
		}
	}
}
