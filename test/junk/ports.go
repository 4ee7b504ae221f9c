package junk

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Port is something that a process can be reached at.
type Port struct{ Network, Address string } // tcp, udp, unix

// Ports of a process, as its kernel shows them. A wildcard address becomes host.
func Ports(pid int, host netip.Addr) ([]Port, error) {
	root := filepath.Join("/proc", strconv.Itoa(pid))
	links, err := os.ReadDir(filepath.Join(root, "fd"))
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, l := range links {
		if to, err := os.Readlink(filepath.Join(root, "fd", l.Name())); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.Trim(to, "socket:[]")] = true
		}
	}
	var list []Port
	for _, t := range []struct{ file, network, state string }{
		{"tcp", "tcp", "0A"}, {"tcp6", "tcp", "0A"}, {"udp", "udp", "07"}, {"udp6", "udp", "07"},
	} {
		for _, f := range table(filepath.Join(root, "net", t.file)) {
			if len(f) < 10 || f[3] != t.state || !own[f[9]] {
				continue
			}
			at, err := parseAddr(f[1])
			if err != nil {
				return nil, err
			}
			if at.Addr().IsUnspecified() {
				at = netip.AddrPortFrom(host, at.Port())
			}
			list = append(list, Port{t.network, at.String()})
		}
	}
	for _, f := range table(filepath.Join(root, "net", "unix")) {
		if len(f) == 8 && f[3] == "00010000" && own[f[6]] { // listens
			list = append(list, Port{"unix", f[7]})
		}
	}
	return list, nil
}

// table reads a table of /proc/net without its head. Of TCP only what listens: it comes first, and to look for all the
// others takes the kernel as long as a second while many ports are in TIME_WAIT.
func table(path string) (rows [][]string) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	tcp := strings.HasPrefix(filepath.Base(path), "tcp")
	lines := bufio.NewScanner(bufio.NewReaderSize(f, 4096))
	for first := true; lines.Scan(); first = false {
		fields := strings.Fields(lines.Text())
		if first || len(fields) < 4 {
			continue
		}
		if tcp && fields[3] != "0A" {
			break
		}
		rows = append(rows, fields)
	}
	return rows
}

// parseAddr reads 0100007F:1D2F: words of the address in the machine's order.
func parseAddr(s string) (netip.AddrPort, error) {
	words, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(words)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || errPort != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q of a kernel table", s)
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address %q of a kernel table", s)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}
