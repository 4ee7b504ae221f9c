package tcp

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// namespaceDrops is how many requests the listeners of this thread's network namespace dropped so far, all of them
// together and since it exists. -1: not known.
func namespaceDrops() int64 {
	b, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		return -1
	}
	return tcpExt(string(b), "ListenDrops")
}

// tcpExt is a counter of the TcpExt group of a netstat file: a line of names, then one of their values. -1: it is not
// there.
func tcpExt(netstat, name string) int64 {
	at := -1
	for line := range strings.Lines(netstat) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "TcpExt:" {
			continue
		}
		if at < 0 {
			if at = slices.Index(f, name); at < 0 {
				return -1
			}
			continue
		}
		if at >= len(f) {
			return -1
		}
		n, err := strconv.ParseInt(f[at], 10, 64)
		if err != nil || n < 0 {
			return -1
		}
		return n
	}
	return -1
}

// requestsDropped of a listener's sk_drops. The kernel counts more in it than requests: a listener also discards
// segments that ask for nothing (a reset that comes after its request is forgotten, a SYN for a request that waits
// already), while ListenDrops counts requests only, but those of all listeners of the namespace. It is at most either.
// now and before are the namespace's, before from when the listener came. -1: not known; then the other is all there is.
func requestsDropped(socket, now, before int64) int64 {
	if socket <= 0 || now < 0 || before < 0 {
		return socket
	}
	return min(socket, max(0, now-before))
}
