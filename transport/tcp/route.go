package tcp

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// router asks the kernel which route a packet would take (RTM_GETROUTE). The
// kernel answers within the send, so nothing here waits.
type router struct {
	fd  int
	seq uint32
	buf [4096]byte
}

var errNoAnswer = errors.New("the kernel's answer about the route is not understood")

func newRouter() (*router, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &router{fd: fd}, nil
}

// lookup finds the route to a; local says that it does not leave this host.
func (r *router) lookup(a *addr) (local bool, err error) {
	r.seq++
	n := r.request(a)
	if _, err := unix.Write(r.fd, r.buf[:n]); err != nil {
		return false, err
	}
	for {
		n, err := unix.Read(r.fd, r.buf[:])
		if err != nil {
			return false, err
		}
		local, done, err := parseRoute(r.buf[:n], r.seq)
		if done || err != nil {
			return local, err
		}
	}
}

// request writes nlmsghdr, rtmsg, RTA_DST and, for a scoped address, RTA_OIF.
func (r *router) request(a *addr) int {
	b := r.buf[:]
	clear(b[:64])
	ne := binary.NativeEndian
	ne.PutUint16(b[4:], unix.RTM_GETROUTE)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST)
	ne.PutUint32(b[8:], r.seq)
	b[16] = byte(a.domain())
	ip := a.ip.AsSlice()
	b[17] = byte(len(ip) * 8) // rtm_dst_len
	n := unix.SizeofNlMsghdr + unix.SizeofRtMsg
	ne.PutUint16(b[n:], uint16(unix.SizeofRtAttr+len(ip)))
	ne.PutUint16(b[n+2:], unix.RTA_DST)
	n += unix.SizeofRtAttr + copy(b[n+unix.SizeofRtAttr:], ip)
	if a.scope != 0 {
		ne.PutUint16(b[n:], unix.SizeofRtAttr+4)
		ne.PutUint16(b[n+2:], unix.RTA_OIF)
		ne.PutUint32(b[n+4:], a.scope)
		n += unix.SizeofRtAttr + 4
	}
	ne.PutUint32(b[0:], uint32(n))
	return n
}

// parseRoute reads one datagram; done is false if it answers another request.
func parseRoute(b []byte, seq uint32) (local, done bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(ne.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return false, true, errNoAnswer
		}
		body := b[unix.SizeofNlMsghdr:n]
		if ne.Uint32(b[8:]) == seq {
			switch ne.Uint16(b[4:]) {
			case unix.NLMSG_ERROR:
				if len(body) < 4 {
					return false, true, errNoAnswer
				}
				if no := -int32(ne.Uint32(body)); no != 0 {
					return false, true, unix.Errno(no)
				}
			case unix.RTM_NEWROUTE:
				if len(body) < unix.SizeofRtMsg {
					return false, true, errNoAnswer
				}
				switch body[7] { // rtm_type
				case unix.RTN_LOCAL:
					return true, true, nil
				case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE:
					return false, true, unix.ENETUNREACH
				case unix.RTN_PROHIBIT:
					return false, true, unix.EACCES
				}
				return false, true, nil
			}
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return false, false, nil
}

func (r *router) close() { unix.Close(r.fd) }
