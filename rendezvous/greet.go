package rendezvous

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"rankstorm/rank"
)

// A knock is a frame, in the clear if the process has no secret, or else over
// TLS. Both sides see from one byte what the other speaks: a frame begins with
// 0 (the top of its length), a TLS record does not. So a controller can refuse
// in the clear, in place of the TLS answer, whoever has a secret too many or
// belongs to another job, and say to whoever has none that the job has one. A
// process whose secret is another one finds that out from the controller's
// certificate and says so with an alert.

const (
	tlsChangeCipher    = 20   // lowest content type of a TLS record
	tlsHandshake       = 22   // content type of the first record
	tlsApplicationData = 23   // highest content type in use
	maxTurnAway        = 4096 // bytes of a refusal in the clear
)

// secretMismatch is the refusal of a process with a secret too many or too few.
func secretMismatch(theirs, ours bool) mismatch {
	text := map[bool]string{true: "given", false: "not given"}
	return mismatch{"secret", text[theirs], text[ours], "; give every process the same one (--secret-file or RANKSTORM_SECRET), or none"}
}

// otherSecret is the refusal of a process with another secret: neither side
// learns the other's.
var otherSecret = mismatch{rest: "its secret is another one; give every process the same one (--secret-file or RANKSTORM_SECRET)"}

// sniffed looks at the first byte that comes in and hands on nothing that is no
// TLS. hush makes it drop what is written: a refusal goes out in its place.
type sniffed struct {
	net.Conn
	begin []byte // of what came in first
	other []byte // what came in, if it is no TLS
	hush  bool
}

var errNoTLS = errors.New("no TLS")

func (s *sniffed) Read(b []byte) (int, error) {
	if s.other != nil {
		return 0, errNoTLS
	}
	n, err := s.Conn.Read(b)
	if n > 0 && s.begin == nil {
		s.begin = append([]byte{}, b[:min(n, mostOverheard)]...)
		if b[0] < tlsChangeCipher || b[0] > tlsApplicationData {
			s.other = append([]byte{}, b[:n]...)
			return 0, errNoTLS
		}
	}
	return n, err
}

func (s *sniffed) Write(b []byte) (int, error) {
	if s.hush {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// knockOver opens the protected stream of a knock; conn has a deadline. An
// error that is a *rank.Error or a *stranger is final.
func knockOver(conn net.Conn, conf *tls.Config, to netip.AddrPort) (net.Conn, error) {
	s := &sniffed{Conn: conn}
	t := tls.Client(s, conf)
	err := t.Handshake()
	var remote *net.OpError
	var record tls.RecordHeaderError
	switch {
	case err == nil:
		return t, nil
	case s.other != nil:
		return nil, refusedInTheClear(s.other, conn)
	case errors.Is(err, errOtherSecret):
		return nil, rank.Errorf(rank.KindRefused, "the controller (%s) has another secret than this process; give every process the same one (--secret-file or RANKSTORM_SECRET)", to)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return nil, &stranger{s.begin, err}
	case errors.As(err, &record):
		return nil, &stranger{said: s.begin}
	}
	return nil, err
}

// refusedInTheClear is the error for an answer that is no TLS; begin of it was
// read. A passing one if the answer does not come to its end.
func refusedInTheClear(begin []byte, conn net.Conn) error {
	if foreign(begin) {
		return &stranger{said: begin}
	}
	r := bufio.NewReader(io.MultiReader(strings.NewReader(string(begin)), conn))
	_, body, err := readBody(r, maxTurnAway, frameTurnAway)
	var t turnAway
	if err == nil {
		err = decode(body, &t)
	}
	var netErr net.Error
	switch {
	case err == nil:
		return rank.Errorf(rank.KindRefused, "%s", clip([]byte(t.Text)))
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &netErr):
		return err
	}
	return &stranger{begin, err}
}

// caller is what a knock over TLS says in the clear about who knocks. Nothing
// of it is proved.
type caller struct {
	who  string // "n1 pid 4711", or where it calls from
	job  string // its job key, quoted
	ours bool   // it means this job
}

func callerOf(h *tls.ClientHelloInfo, job [32]byte) caller {
	c := caller{who: "a process at " + h.Conn.RemoteAddr().String(), job: "another one", ours: h.ServerName == hashText(job)}
	for _, p := range h.SupportedProtos {
		if text, ok := strings.CutPrefix(p, whoProtocol); ok && text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			c.who = text
		}
		if text, ok := strings.CutPrefix(p, jobProtocol); ok {
			c.job = quote(text)
		}
	}
	return c
}

// errUnwanted ends a handshake that is refused in the clear.
var errUnwanted = errors.New("unwanted")

// greet finds out what a knocking process speaks and brings its stream to where
// the knock can be read. plain: it came in the clear. The error is for nobody;
// refused, which may be nil, has heard what is worth telling.
func (c *control) greet(conn net.Conn, name string, refused func(who string, m mismatch)) (stream net.Conn, plain bool, err error) {
	conn.SetDeadline(time.Now().Add(firstByteTimeout))
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return nil, false, err
	}
	again := &replayed{Conn: conn, first: first[:]}
	if first[0] != tlsHandshake {
		conn.SetDeadline(time.Time{})
		return again, true, nil
	}
	s := &sniffed{Conn: again}
	var from caller
	var why mismatch
	conf := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.keys != nil {
		conf = c.keys.links.Clone()
		conf.NextProtos = []string{knockProtocol}
	}
	conf.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		job := jobHash(c.cfg.JobKey)
		from = callerOf(h, job)
		switch {
		case !from.ours:
			why = mismatch{"job key", from.job, quote(c.cfg.JobKey), "; another job uses this controller address: give it another port, or both the same --job if they are one"}
		case c.keys == nil:
			why = secretMismatch(true, false)
		default:
			return nil, nil
		}
		s.hush = true
		return nil, errUnwanted
	}
	t := tls.Server(s, conf)
	err = t.Handshake()
	var remote *net.OpError
	switch {
	case err == nil:
		conn.SetDeadline(time.Time{})
		return t, false, nil
	case s.hush:
		refused(from.who, why)
		_ = writeMessage(conn, frameTurnAway, turnAway{Text: why.told(name)}) // a peer that is gone needs no answer
	case from.who != "" && (errors.Is(err, errOtherSecret) || errors.As(err, &remote) && remote.Op == "remote error"):
		refused(from.who, otherSecret)
	}
	return nil, false, err
}

// inTheClear is why a knock without protection does not fit a job that has a
// secret.
func inTheClear(theirs, ours *knock) mismatch {
	if theirs.Proto != ours.Proto || theirs.Job != ours.Job {
		m, _ := compare(theirs, ours)
		return m
	}
	return secretMismatch(false, true)
}

// replayed is a stream of which the first bytes were read already.
type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}
