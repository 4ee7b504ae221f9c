package runner

import (
	"bytes"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"

	"rankstorm/collect"
)

const heapLive = "/gc/heap/live:bytes" // what the last collection found in use

// holds says what this process holds after a round.
func (p *process) holds() *collect.RoundHeld {
	offset, _ := p.group.Offset()
	fds, _ := p.held()
	heap := []metrics.Sample{{Name: heapLive}}
	metrics.Read(heap)
	h := &collect.RoundHeld{
		Procs: 1, AtNS: p.clock.Now() + offset, TimeWait: timeWait(),
		FDs:       collect.LevelOf(p.self, max(fds, 0)),
		RSSBytes:  collect.LevelOf(p.self, max(residentBytes(), 0)),
		HeapBytes: collect.LevelOf(p.self, int64(heap[0].Value.Uint64())),
	}
	var goroutines int64
	for i, n := range owned(&p.stacks) {
		h.Owned[i] = collect.LevelOf(p.self, n)
		goroutines += n
	}
	h.Goroutines = collect.LevelOf(p.self, goroutines)
	return h
}

// owned counts goroutines by owner. The slice is reused.
func owned(stacks *[]runtime.StackRecord) (counts [len(collect.Owners)]int64) {
	n, ok := runtime.GoroutineProfile(*stacks)
	for !ok {
		*stacks = make([]runtime.StackRecord, n+n/4+8)
		n, ok = runtime.GoroutineProfile(*stacks)
	}
	for _, s := range (*stacks)[:n] {
		counts[ownerOf(s.Stack())]++
	}
	return counts
}

// ownerOf a stack is the owner of the outermost function that one of them knows: it is what the goroutine was made for.
func ownerOf(stack []uintptr) int {
	owner := len(collect.Owners) - 1
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		for prefix, i := range owners {
			if strings.HasPrefix(f.Function, prefix) {
				owner = i
			}
		}
		if !more {
			return owner
		}
	}
}

// owners by package, as indices of collect.Owners.
var owners = map[string]int{
	"rankstorm/phases/runner.":         0,
	"rankstorm/rendezvous.":            1,
	"github.com/hashicorp/memberlist.": 2,
	"rankstorm/transport/":             3,
}

// timeWait is the number of sockets in TIME_WAIT of this network namespace, -1 if it cannot be read.
func timeWait() int64 {
	b, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(b) {
		if f := strings.Fields(string(line)); len(f) > 2 && f[0] == "TCP:" {
			for i := 1; i+1 < len(f); i += 2 {
				if n, err := strconv.ParseInt(f[i+1], 10, 64); err == nil && f[i] == "tw" {
					return n
				}
			}
		}
	}
	return -1
}
