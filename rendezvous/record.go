package rendezvous

import (
	"bytes"
	"encoding/hex"
	"os"
	"runtime"
	"strconv"
	"strings"

	"rankstorm/rank"
)

// ThisProcess describes this process for Config.Record: host, pid, start time,
// processors and build. Launcher number and local index are unknown (-1), the
// rest is filled in by Join. What the system does not tell stays zero.
func ThisProcess() rank.Record {
	r := rank.Record{PID: os.Getpid(), LauncherProc: -1, LocalIndex: -1, CPUs: runtime.NumCPU(), BuildID: BuildID()}
	if name, err := os.Hostname(); err == nil {
		r.Host, _, _ = strings.Cut(name, ".")
	}
	if text, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		r.HostID = parseBootID(text)
	}
	if stat, err := os.ReadFile("/proc/self/stat"); err == nil {
		r.Start = parseStart(stat)
	}
	return r
}

// parseBootID reads a UUID, with its dashes; zero if it is none.
func parseBootID(text []byte) (id [16]byte) {
	digits := bytes.ReplaceAll(bytes.TrimSpace(text), []byte("-"), nil)
	if len(digits) != 2*len(id) {
		return id
	}
	if _, err := hex.Decode(id[:], digits); err != nil {
		return [16]byte{}
	}
	return id
}

// parseStart finds the start time, field 22 of /proc/PID/stat; 0 if it is not
// there. The name, field 2, may contain spaces and parentheses.
func parseStart(stat []byte) uint64 {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0
	}
	fields := bytes.Fields(stat[i+1:]) // field 3 on
	const start = 22 - 3
	if len(fields) <= start {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
