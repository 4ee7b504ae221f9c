package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rankstorm/test/need"
)

// TestABI compiles a program against the real headers that compares every size
// and offset of abi.h with them, and every value of an enumeration.
func TestABI(t *testing.T) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		need.Absent(t, "rdma-headers", "no C compiler: %v", err)
	}
	for _, header := range []string{"infiniband/verbs.h", "rdma/rdma_cma.h"} {
		if _, err := os.Stat(filepath.Join("/usr/include", header)); err != nil {
			need.Absent(t, "rdma-headers", "no %s to compare with: apt-get install libibverbs-dev librdmacm-dev", header)
		}
	}
	program := filepath.Join(t.TempDir(), "abi")
	if out, err := exec.CommandContext(t.Context(), cc, "-Wall", "-I.", "-o", program, "testdata/abi.c").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error("abi.h differs from the headers")
	}
}
