// Package corpus reads what is committed for fuzz targets, so that a test can hold it against the code of today.
package corpus

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Bytes are the first values of the files of a target in testdata/fuzz of the package under test, by file name. They must be
// of type []byte, and there must be some.
func Bytes(t testing.TB, target string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "fuzz", target, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no committed corpus: %v", target, err)
	}
	out := make(map[string][]byte, len(files))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		if len(lines) < 2 || lines[0] != "go test fuzz v1" {
			t.Fatalf("%s is no file of go test", file)
		}
		text, err := strconv.Unquote(strings.TrimSuffix(strings.TrimPrefix(lines[1], "[]byte("), ")"))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Base(file)] = []byte(text)
	}
	return out
}
