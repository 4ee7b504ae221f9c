package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens says whether anybody listens at a TCP port of this machine.
func listens(port int) bool {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			f := bytes.Fields(line)
			if len(f) > 3 && bytes.HasSuffix(f[1], fmt.Appendf(nil, ":%04X", port)) && string(f[3]) == "0A" {
				return true
			}
		}
	}
	return false
}

// abstractSockets are the listening abstract sockets of rankstorm in the network namespace of
// a process: inode → name.
func abstractSockets(pid string) map[string]string {
	found := map[string]string{}
	b, err := os.ReadFile("/proc/" + pid + "/net/unix")
	if err != nil {
		return found
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) >= 8 && strings.HasPrefix(f[7], "@rankstorm") && f[3] == "00010000" { // it accepts connections
			found[f[6]] = f[7]
		}
	}
	return found
}

// hostSocketsOf are the abstract sockets at which a process listens.
func hostSocketsOf(pid int) (names []string) {
	sockets := abstractSockets(strconv.Itoa(pid))
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
		if err != nil {
			continue // closed just now
		}
		if name := sockets[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")]; name != "" {
			names = append(names, name)
		}
	}
	return names
}

func childrenOf(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is well formed
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// stateOf a process as in ps: R, S, T, Z …; 0 if there is none.
func stateOf(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 || i+2 >= len(b) {
		return 0
	}
	return b[i+2]
}

// alive says whether a process exists and is not a zombie.
func alive(pid int) bool {
	state := stateOf(pid)
	return state != 0 && state != 'Z' && state != 'X'
}

// isOurs keeps a pid that was given to somebody else meanwhile from being killed.
func isOurs(pid int, binary string) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.TrimSuffix(path, " (deleted)") == binary
}

// sharedThings are what jobs may leave where all jobs would see it.
func sharedThings() (list []string) {
	for _, pattern := range []string{"/dev/shm/*rankstorm*", "/run/netns/rslab" + labPrefix + "*"} {
		found, _ := filepath.Glob(pattern) // the pattern is well formed
		list = append(list, found...)
	}
	return list
}
