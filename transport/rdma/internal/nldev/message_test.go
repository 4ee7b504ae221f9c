package nldev

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rankstorm/test/need"
)

// The kernel's side, for tests.

func attr(kind uint16, value ...byte) []byte {
	b := order.AppendUint16(nil, uint16(4+len(value)))
	b = append(order.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func nest(kind uint16, parts ...[]byte) []byte {
	return attr(kind|unix.NLA_F_NESTED, bytes.Join(parts, nil)...)
}
func u32(v uint32) []byte { return order.AppendUint32(nil, v) }
func u64(v uint64) []byte { return order.AppendUint64(nil, v) }

func message(kind uint16, seq uint32, payload ...byte) []byte {
	b := order.AppendUint32(nil, uint32(headerSize+len(payload)))
	b = order.AppendUint16(b, kind)
	b = order.AppendUint16(b, unix.NLM_F_MULTI)
	b = order.AppendUint32(b, seq)
	b = append(order.AppendUint32(b, 0), payload...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

const nldevAnswer = clientNLDEV << 10

func entryOf(pid uint32) []byte {
	return nest(attrQP+1, attr(21, u32(17)...), attr(attrPID, u32(pid)...))
}

func kernels() []byte { return nest(attrQP+1, attr(21, u32(1)...), attr(29, []byte("ib_core\x00")...)) }

func TestTotals(t *testing.T) {
	entry := func(name string, n uint64) []byte {
		return nest(attrSummaryEntry, attr(attrSummaryEntryName, append([]byte(name), 0)...), attr(attrSummaryEntryCurr, u64(n)...))
	}
	payload := bytes.Join([][]byte{
		attr(attrDevIndex, u32(3)...), attr(attrDevName, []byte("mlx5_0\x00")...), attr(999, 1, 2, 3),
		nest(attrSummary, entry("qp", 41), entry("cm_id", 7)),
	}, nil)
	d, err := device(payload)
	if err != nil || d.Index != 3 || d.Name != "mlx5_0" || !maps.Equal(d.InUse, map[string]int64{"qp": 41, "cm_id": 7}) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := device(nil); err == nil {
		t.Error("an answer without a device passes")
	}
}

func TestOwned(t *testing.T) {
	payload := bytes.Join([][]byte{attr(attrDevIndex, u32(0)...), nest(attrQP, entryOf(100), kernels(), entryOf(101), entryOf(100))}, nil)
	for pid, want := range map[uint32]int64{100: 2, 101: 1, 7: 0} {
		if n, err := owned(payload, attrQP, map[uint32]bool{pid: true}); err != nil || n != want {
			t.Errorf("pid %d: %d, %v, want %d", pid, n, err, want)
		}
	}
	if n, err := owned(payload, attrQP, map[uint32]bool{100: true, 101: true}); err != nil || n != 3 {
		t.Errorf("two threads of a process: %d, %v, want 3", n, err)
	}
	if n, err := owned(payload, attrCQ, map[uint32]bool{100: true}); err != nil || n != 0 {
		t.Errorf("queue pairs are taken for completion queues: %d, %v", n, err)
	}
}

func TestAnswer(t *testing.T) {
	one := message(nldevAnswer+cmdResQPGet, 5, attr(attrDevIndex, u32(1)...)...)
	cases := []struct {
		name  string
		bytes []byte
		seen  int
		more  bool
		err   error
	}{
		{"goes on", bytes.Join([][]byte{one, one}, nil), 2, true, nil},
		{"ends", bytes.Join([][]byte{one, message(unix.NLMSG_DONE, 5, u32(0)...)}, nil), 1, false, nil},
		{"of another request", message(nldevAnswer+cmdResQPGet, 4), 0, true, nil},
		{"refused", message(unix.NLMSG_ERROR, 5, u32(uint32(0xffffffff))...), 0, false, unix.EPERM},
		{"ends in error", message(unix.NLMSG_DONE, 5, u32(uint32(0xffffffea))...), 0, false, unix.EINVAL},
		{"nothing", nil, 0, true, nil},
	}
	for _, c := range cases {
		seen := 0
		more, err := answer(c.bytes, 5, func([]byte) error { seen++; return nil })
		if seen != c.seen || more != c.more || !errors.Is(err, c.err) {
			t.Errorf("%s: %d seen, more %v, %v", c.name, seen, more, err)
		}
	}
	for _, bad := range [][]byte{{1, 2, 3}, one[:len(one)-1], message(77, 5), make([]byte, headerSize)} {
		if _, err := answer(bad, 5, func([]byte) error { return nil }); err == nil {
			t.Errorf("% x passes", bad)
		}
	}
	for _, bad := range [][]byte{{1, 2, 3}, {3, 0, 1, 0}, {9, 0, 1, 0, 0, 0, 0, 0}} {
		if err := attributes(bad, func(uint16, []byte) error { return nil }); err == nil {
			t.Errorf("attribute % x passes", bad)
		}
	}
}

func TestQuery(t *testing.T) {
	b := query(cmdResCQGet, 9, 2)
	if int(order.Uint32(b)) != len(b) || order.Uint16(b[4:]) != 5<<10+12 || order.Uint32(b[8:]) != 9 {
		t.Errorf("% x", b)
	}
	var index uint32
	err := attributes(b[headerSize:], func(kind uint16, value []byte) error {
		if kind == attrDevIndex {
			index = order.Uint32(value)
		}
		return nil
	})
	if err != nil || index != 2 {
		t.Errorf("device %d, %v", index, err)
	}
	if b := query(cmdResGet, 1, -1); len(b) != headerSize {
		t.Errorf("a query of all devices has %d bytes", len(b))
	}
}

// FuzzAnswer: whatever comes, no panic, and no more entries than bytes.
func FuzzAnswer(f *testing.F) {
	f.Add(message(nldevAnswer+cmdResQPGet, 1, nest(attrQP, entryOf(100), kernels())...))
	f.Add(bytes.Join([][]byte{message(nldevAnswer, 1, attr(attrDevIndex, u32(0)...)...), message(unix.NLMSG_DONE, 1)}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = answer(b, 1, func(payload []byte) error {
			if n, _ := owned(payload, attrQP, map[uint32]bool{100: true}); n < 0 || n > int64(len(payload)) {
				t.Errorf("%d entries in %d bytes", n, len(payload))
			}
			if d, err := device(payload); err == nil && d.Name == "" {
				t.Error("a device without a name")
			}
			return nil
		})
	})
}

// TestConstants compares the numbers with the kernel's header.
func TestConstants(t *testing.T) {
	const header = "/usr/include/rdma/rdma_netlink.h"
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := os.Stat(header); err != nil {
		need.Absent(t, "rdma-headers", "no %s to compare with: apt-get install linux-libc-dev", header)
	}
	if _, err := exec.LookPath(cc); err != nil {
		need.Absent(t, "rdma-headers", "no C compiler: %v", err)
	}
	equal := map[string]int{
		"RDMA_NL_NLDEV": clientNLDEV, "RDMA_NLDEV_CMD_RES_GET": cmdResGet, "RDMA_NLDEV_CMD_RES_QP_GET": cmdResQPGet,
		"RDMA_NLDEV_CMD_RES_CM_ID_GET": cmdResCMIDGet, "RDMA_NLDEV_CMD_RES_CQ_GET": cmdResCQGet, "RDMA_NLDEV_CMD_RES_MR_GET": cmdResMRGet,
		"RDMA_NLDEV_CMD_RES_PD_GET": cmdResPDGet, "RDMA_NLDEV_ATTR_DEV_INDEX": attrDevIndex, "RDMA_NLDEV_ATTR_DEV_NAME": attrDevName,
		"RDMA_NLDEV_ATTR_RES_SUMMARY": attrSummary, "RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY": attrSummaryEntry,
		"RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME": attrSummaryEntryName, "RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR": attrSummaryEntryCurr,
		"RDMA_NLDEV_ATTR_RES_QP": attrQP, "RDMA_NLDEV_ATTR_RES_QP_ENTRY": attrQP + 1, "RDMA_NLDEV_ATTR_RES_PID": attrPID,
		"RDMA_NLDEV_ATTR_RES_CM_ID": attrCMID, "RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY": attrCMID + 1,
		"RDMA_NLDEV_ATTR_RES_CQ": attrCQ, "RDMA_NLDEV_ATTR_RES_CQ_ENTRY": attrCQ + 1, "RDMA_NLDEV_ATTR_RES_MR": attrMR,
		"RDMA_NLDEV_ATTR_RES_MR_ENTRY": attrMR + 1, "RDMA_NLDEV_ATTR_RES_PD": attrPD, "RDMA_NLDEV_ATTR_RES_PD_ENTRY": attrPD + 1,
	}
	var program strings.Builder
	program.WriteString("#include <rdma/rdma_netlink.h>\n")
	for name, value := range equal {
		fmt.Fprintf(&program, "_Static_assert(%s == %d, \"%s\");\n", name, value, name)
	}
	file := filepath.Join(t.TempDir(), "constants.c")
	if err := os.WriteFile(file, []byte(program.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), cc, "-fsyntax-only", file).CombinedOutput(); err != nil {
		t.Errorf("%s differs: %s", header, regexp.MustCompile(`static assertion failed: .*`).FindAll(out, -1))
	}
}
