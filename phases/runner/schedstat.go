package runner

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// mostThreads of a process that are looked at; one with more is not known.
const mostThreads = 512

// threadReader reads the schedstat files of the threads of this process.
type threadReader struct {
	names [8192]byte // of a directory, as getdents64 gives them
	text  [64]byte
	path  []byte
}

// newSchedStat is what the kernel of this process says.
func newSchedStat() SchedStat {
	r := &threadReader{}
	return r.visit
}

func (r *threadReader) visit(thread func(id int, runNS, waitNS int64)) bool {
	dir, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	for seen := 0; ; {
		n, err := unix.Getdents(dir, r.names[:])
		if err != nil {
			return false
		}
		if n <= 0 {
			return seen > 0
		}
		for list := r.names[:n]; len(list) > 0; {
			name, rest, ok := nextName(list)
			if !ok {
				return false
			}
			list = rest
			id, ok := number(name)
			if !ok {
				continue // . and ..
			}
			if seen++; seen > mostThreads {
				return false
			}
			if run, wait, ok := r.read(dir, name); ok { // else it has ended
				thread(int(id), run, wait)
			}
		}
	}
}

// read the file of one thread: ran, waited, ns, and turns.
func (r *threadReader) read(dir int, name []byte) (run, wait int64, ok bool) {
	r.path = append(append(r.path[:0], name...), "/schedstat"...)
	fd, err := unix.Openat(dir, string(r.path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, false
	}
	n, err := unix.Read(fd, r.text[:])
	unix.Close(fd)
	if err != nil || n <= 0 {
		return 0, 0, false
	}
	return schedTimes(r.text[:n])
}

// schedTimes takes the first two numbers of a schedstat line.
func schedTimes(line []byte) (run, wait int64, ok bool) {
	var values [2]int64
	for i := range values {
		end := 0
		for end < len(line) && line[end] != ' ' {
			end++
		}
		if end == len(line) {
			return 0, 0, false
		}
		if values[i], ok = number(line[:end]); !ok {
			return 0, 0, false
		}
		line = line[end+1:]
	}
	return values[0], values[1], true
}

// number of decimal digits alone.
func number(digits []byte) (n int64, ok bool) {
	for _, c := range digits {
		if c < '0' || c > '9' || n > (1<<63-1-9)/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(digits) > 0
}

// nextName takes an entry off a list of struct linux_dirent64: inode and offset of 8 bytes each, length of the entry,
// type, name with a zero at the end.
func nextName(list []byte) (name, rest []byte, ok bool) {
	const head = 8 + 8 + 2 + 1
	if len(list) < head {
		return nil, nil, false
	}
	size := int(binary.NativeEndian.Uint16(list[16:]))
	if size < head || size > len(list) {
		return nil, nil, false
	}
	end := head
	for end < size && list[end] != 0 {
		end++
	}
	return list[head:end], list[size:], true
}
