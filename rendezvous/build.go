package rendezvous

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"io"
	"os"
	"runtime/debug"
	"sync"
)

// BuildID names the program this process runs: the module's version and a hash
// of the executable's build id. The same binary gives the same text on every
// host; another binary, also of the same version, another one.
func BuildID() string { return buildID() }

var buildID = sync.OnceValue(func() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	sum := executableSum("/proc/self/exe")
	return version + "+" + hex.EncodeToString(sum[:6])
})

// executableSum hashes the linker's build id note, or the whole file if it has
// none (linked with -buildid=).
func executableSum(path string) (sum [sha256.Size]byte) {
	file, err := os.Open(path)
	if err != nil {
		return sum
	}
	defer file.Close()
	h := sha256.New()
	if id := buildNote(file); len(id) > 0 {
		h.Write(id)
	} else if _, err := file.Seek(0, io.SeekStart); err == nil {
		if _, err := io.Copy(h, file); err != nil {
			return sum
		}
	}
	h.Sum(sum[:0])
	return sum
}

func buildNote(r io.ReaderAt) []byte {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil
	}
	section := f.Section(".note.go.buildid")
	if section == nil {
		return nil
	}
	note, err := section.Data()
	const head = 16 // name size, description size, type, "Go\0\0"
	if err != nil || len(note) <= head {
		return nil
	}
	return note[head:]
}
