package rendezvous

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"

	"rankstorm/rank"
)

// stranger is an answer to a knock that no controller gives.
type stranger struct {
	said []byte // how it begins
	why  error  // what is wrong with it, nil if that is plain
}

func (s *stranger) Error() string {
	if s.why != nil {
		return fmt.Sprintf("answered %s (%v)", firstLine(s.said), s.why)
	}
	return "answered " + firstLine(s.said)
}

// foreign says that bytes cannot be the begin of a frame, whose length has a 0 on top.
func foreign(begin []byte) bool { return len(begin) > 0 && begin[0] != 0 }

// firstLine shows how an answer begins, on one line.
func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return quote(string(bytes.TrimRight(line, "\r")))
}

// stranger is the end of this process: another program has the controller's port.
func (j *joiner) stranger(to netip.AddrPort, s *stranger) *rank.Error {
	who := "another program listens there"
	if holder := j.holder(to); holder != "" {
		who += ", " + holder
	}
	return rank.Errorf(rank.KindUsage, "%s is no rankstorm controller: it %w; %s; give another port with -C host:port", to, s, who)
}

// overheard keeps how a stream begins.
type overheard struct {
	io.Reader
	begin []byte
}

const mostOverheard = 100 // bytes

func (o *overheard) Read(b []byte) (int, error) {
	n, err := o.Reader.Read(b)
	o.begin = append(o.begin, b[:min(n, mostOverheard-len(o.begin))]...)
	return n, err
}
