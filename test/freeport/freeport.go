// Package freeport finds ports for listeners that a test is about to start.
package freeport

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// The range lies below the ports that Linux gives to connections (from 32768
// on): one of those may be taken by any storm of a parallel test between the
// moment it was found free and the moment the listener starts.
const low, high = 12_000, 25_000

// Others look for ports at the same time. Each process begins elsewhere, and
// none gives a port twice before it has been through the range.
var next atomic.Int64

func init() { next.Store(int64(os.Getpid()) * 61) }

// At is a port at which nobody listens on host, a local address without
// brackets, by TCP nor UDP. The test fails if there is none.
func At(t testing.TB, host string) int {
	t.Helper()
	var last error
	for range high - low {
		port := low + int(next.Add(1)%(high-low))
		at := net.JoinHostPort(host, fmt.Sprint(port))
		l, err := net.Listen("tcp", at)
		if err != nil {
			last = err
			continue
		}
		p, err := net.ListenPacket("udp", at)
		l.Close()
		if err != nil {
			last = err
			continue
		}
		p.Close()
		return port
	}
	t.Fatalf("no free port from %d to %d at %s: %v", low, high, host, last)
	return 0
}
