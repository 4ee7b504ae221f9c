package junk

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
)

// Recorder listens to what passes the interfaces of this network namespace, as
// somebody on the path would. It needs CAP_NET_RAW.
type Recorder struct {
	fd    int
	file  *os.File
	mu    sync.Mutex
	flows map[[2]netip.AddrPort]*flow
	list  []*flow
	grams [][]byte
	done  chan struct{}
}

// flow is the beginning of what an initiator said on one connection.
type flow struct {
	to    netip.AddrPort
	begin uint32 // sequence number of its first byte
	said  []byte
}

const (
	keep = 4096    // bytes of each flow, and of a datagram
	many = 1 << 15 // flows, and datagrams
)

// Record begins to listen.
func Record() (*Recorder, error) {
	const allIP = 0x0008 // ETH_P_IP in network order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, allIP)
	if err != nil {
		return nil, fmt.Errorf("listening to the network needs root: %w", err)
	}
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 8<<20)
	r := &Recorder{fd: fd, file: os.NewFile(uintptr(fd), "packets"), flows: map[[2]netip.AddrPort]*flow{}, done: make(chan struct{})}
	go r.listen()
	return r, nil
}

func (r *Recorder) listen() {
	defer close(r.done)
	raw, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	b := make([]byte, 1<<16)
	for {
		var n int
		var from syscall.Sockaddr
		var failed error
		if raw.Read(func(fd uintptr) bool {
			n, from, failed = syscall.Recvfrom(int(fd), b, 0)
			return failed != syscall.EAGAIN
		}) != nil {
			return // closed
		}
		if l, ok := from.(*syscall.SockaddrLinklayer); failed == nil && ok && l.Pkttype != syscall.PACKET_OUTGOING {
			r.packet(b[:n])
		}
	}
}

// packet takes down an IPv4 packet.
func (r *Recorder) packet(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if b[9] == syscall.IPPROTO_UDP && total <= len(b) && total > head+8 && total <= keep {
		r.mu.Lock()
		if len(r.grams) < many {
			r.grams = append(r.grams, append([]byte{}, b[head+8:total]...))
		}
		r.mu.Unlock()
	}
	if b[9] != syscall.IPPROTO_TCP || total > len(b) || total < head+20 {
		return
	}
	from, to := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	t := b[head:total]
	key := [2]netip.AddrPort{
		netip.AddrPortFrom(from, binary.BigEndian.Uint16(t)),
		netip.AddrPortFrom(to, binary.BigEndian.Uint16(t[2:])),
	}
	seq, off, flags := binary.BigEndian.Uint32(t[4:]), int(t[12]>>4)*4, t[13]
	if off > len(t) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	const syn, ack = 2, 16
	if flags&syn != 0 {
		if flags&ack == 0 && len(r.list) < many {
			f := &flow{to: key[1], begin: seq + 1}
			r.flows[key], r.list = f, append(r.list, f)
		}
		return
	}
	f := r.flows[key]
	if f == nil {
		return
	}
	at := int(seq - f.begin)
	if end := at + len(t) - off; at <= len(f.said) && at >= 0 && end > len(f.said) && len(f.said) < keep {
		f.said = append(f.said, t[off+len(f.said)-at:]...)
	}
}

// Recorded are the beginnings of what was said to ports so far, by address.
func (r *Recorder) Recorded() map[string][][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	said := map[string][][]byte{}
	for _, f := range r.list {
		if len(f.said) > 0 {
			to := f.to.String()
			said[to] = append(said[to], append([]byte{}, f.said...))
		}
	}
	return said
}

// Datagrams are those heard so far.
func (r *Recorder) Datagrams() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([][]byte{}, r.grams...)
}

// Close ends listening.
func (r *Recorder) Close() {
	r.file.Close()
	<-r.done
}
