package rendezvous

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder tells who listens at a TCP address of this host: "pid 4711 (nc -l
// 7471)", or that it cannot be seen; "" if nobody is seen to.
func (j *joiner) holder(at netip.AddrPort) string {
	n, ok := j.cfg.Network.(interface {
		Holder(at netip.AddrPort) string
	})
	if !ok {
		return ""
	}
	local, err := j.cfg.Network.LocalAddrs()
	if err != nil || !isOwn(at.Addr(), local) {
		return ""
	}
	return n.Holder(at)
}

// Holder says who listens at an address of this machine, as far as /proc shows.
func (machine) Holder(at netip.AddrPort) string {
	inode := ""
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if inode = listenerInode(b, at); inode != "" {
			break
		}
	}
	if inode == "" {
		return ""
	}
	link, unseen := "socket:["+inode+"]", false
	folders, _ := filepath.Glob("/proc/[0-9]*/fd") // the pattern is well formed
	for _, folder := range folders {
		pid, err := strconv.Atoi(strings.Split(folder, "/")[2])
		if err != nil || pid == os.Getpid() {
			continue
		}
		fds, err := os.ReadDir(folder)
		unseen = unseen || errors.Is(err, fs.ErrPermission)
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(folder, fd.Name())); err != nil || to != link {
				continue
			}
			command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil || len(command) == 0 {
				return fmt.Sprintf("pid %d", pid)
			}
			return fmt.Sprintf("pid %d (%s)", pid, clip(bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '})))
		}
	}
	if !unseen { // its owner has ended meanwhile, or it is in another container
		return ""
	}
	return "a process that this user may not look at"
}

// listenerInode finds the socket that listens at an address, or at all of its
// family, in the text of /proc/net/tcp or tcp6; "" if there is none.
func listenerInode(table []byte, at netip.AddrPort) (inode string) {
	const listening = "0A"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listening {
			continue
		}
		addr, ok := kernelAddr(f[1])
		if !ok || addr.Port() != at.Port() {
			continue
		}
		switch a := addr.Addr().Unmap(); {
		case a == at.Addr().Unmap().WithZone(""):
			return f[9]
		case a.IsUnspecified() && (a.Is6() || at.Addr().Unmap().Is4()): // a wildcard of IPv6 takes both, as a rule
			inode = f[9]
		}
	}
	return inode
}

// kernelAddr reads "0100007F:1D2F": each 32 bits in the byte order of the machine.
func kernelAddr(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(p)), ok
}
