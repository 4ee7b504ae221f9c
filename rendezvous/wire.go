package rendezvous

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
)

// A frame is u32 length (big endian, counts what follows) · u8 version ·
// u8 type · body. Bodies longer than a chunk travel as several frames of the
// same type, without others in between, of which all but the last carry
// frameMore; a body as a whole is at most maxBody.
const (
	wireVersion = 1
	maxFrame    = 1 << 20   // longest frame, length field not counted
	maxBody     = 256 << 20 // longest body after reassembly
	chunkSize   = 256 << 10 // body bytes per frame of a long body: small enough that each one is a sign of life on a slow path
	frameHead   = 6         // bytes before the body
	frameMore   = 0x80      // bit of the type: another frame of the same body follows
	helloLimit  = 64 << 10  // longest frame taken from a peer that has not said who it is
)

// Frame types of the control link. Bodies are msgpack, except frameTable
// (the encoded table, forwarded as it came) and frameData (opaque).
const (
	frameHello      = iota + 1 // parent → child: hello
	frameRefuse                // child → parent: text; the connection ends
	frameTable                 // parent → child: encoded rank table
	frameTableAck              // child → parent: tableAck, everybody below has the table
	frameTrip                  // parent → child: pass it down, answer when all below answered
	frameTripBack              // child → parent
	frameSealed                // parent → child: everybody has the table
	frameSealFailed            // either way: rank.Error, the seal is off
	frameData                  // either way: payload of the group's user
	framePing                  // either way: are you alive
	framePong                  // either way: answer to framePing
	frameClockPing             // child → parent: clockPing
	frameClockPong             // parent → child: clockPong
	frameClockState            // parent → child: clockState
	frameBye                   // either way: closing on purpose, this is no loss
	frameOrphan                // orphan → candidate: orphanHello
	frameAlive                 // candidate → orphan
	frameAsk                   // orphan → candidate: payload of the group's user
	frameAdopted               // candidate → orphan: this is a link now
	frameTurnedAway            // candidate → orphan: rank.Error; the connection ends
)

// Errors of the decoder. Whatever the peer sent, one of these or an error of
// the reader comes back, never a panic, and never more memory is taken than
// bytes have arrived plus one frame.
var (
	errFrameSize    = errors.New("frame length out of bounds")
	errFrameVersion = errors.New("unknown frame version")
	errBodySize     = errors.New("message too long")
	errFrameOrder   = errors.New("frames of two messages are mixed")
)

// putHead writes the head of a frame with n body bytes into b[:frameHead].
func putHead(b []byte, kind byte, n int) {
	binary.BigEndian.PutUint32(b, uint32(n+2))
	b[4] = wireVersion
	b[5] = kind
}

// appendFrames appends the frame, or the chunks, of one body to b.
func appendFrames(b []byte, kind byte, body []byte) ([]byte, error) {
	if len(body) > maxBody {
		return b, fmt.Errorf("%w: %d bytes, at most %d", errBodySize, len(body), maxBody)
	}
	var head [frameHead]byte
	for len(body) > chunkSize {
		putHead(head[:], kind|frameMore, chunkSize)
		b = append(append(b, head[:]...), body[:chunkSize]...)
		body = body[chunkSize:]
	}
	putHead(head[:], kind, len(body))
	return append(append(b, head[:]...), body...), nil
}

// writeFrame writes one body in one Write.
func writeFrame(w io.Writer, kind byte, body []byte) error {
	b, err := appendFrames(make([]byte, 0, len(body)+frameHead), kind, body)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// writeMessage writes one frame with v as msgpack.
func writeMessage(w io.Writer, kind byte, v any) error {
	body, err := msgpack.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, kind, body)
}

// readFrame reads one frame of at most limit bytes. The kind may carry
// frameMore. A stream that ends inside a frame gives io.ErrUnexpectedEOF, one
// that ends between frames io.EOF. The body belongs to the caller.
func readFrame(r *bufio.Reader, limit int) (kind byte, body []byte, err error) {
	head, err := r.Peek(frameHead)
	if err != nil {
		if err == io.EOF && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	length, version, kind := binary.BigEndian.Uint32(head), head[4], head[5]
	if version != wireVersion {
		return 0, nil, fmt.Errorf("%w %d, this is %d", errFrameVersion, version, wireVersion)
	}
	if length < 2 || int64(length) > int64(min(limit, maxFrame)) {
		return 0, nil, fmt.Errorf("%w: %d bytes, allowed 2 to %d", errFrameSize, length, min(limit, maxFrame))
	}
	if _, err := r.Discard(frameHead); err != nil {
		return 0, nil, err
	}
	if length == 2 {
		return kind, nil, nil
	}
	body = make([]byte, length-2)
	if _, err := io.ReadFull(r, body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, body, nil
}

// assembler puts the chunks of one stream together.
type assembler struct {
	kind byte
	part []byte
}

// add takes one frame; whole says that body is complete (kind without
// frameMore). Single frames pass through without a copy.
func (a *assembler) add(kind byte, body []byte) (k byte, whole []byte, complete bool, err error) {
	more := kind&frameMore != 0
	kind &^= frameMore
	switch {
	case a.kind == 0 && !more:
		return kind, body, true, nil
	case a.kind == 0:
		a.kind = kind
	case a.kind != kind:
		return 0, nil, false, fmt.Errorf("%w: type %d within type %d", errFrameOrder, kind, a.kind)
	}
	if len(a.part)+len(body) > maxBody {
		return 0, nil, false, fmt.Errorf("%w: more than %d bytes", errBodySize, maxBody)
	}
	a.part = append(a.part, body...)
	if more {
		return kind, nil, false, nil
	}
	whole = a.part
	*a = assembler{}
	return kind, whole, true, nil
}

// readBody reads one whole body of one of the kinds wanted, from a peer that
// talks nothing else at that moment.
func readBody(r *bufio.Reader, limit int, wanted ...byte) (kind byte, body []byte, err error) {
	var a assembler
	for {
		k, b, err := readFrame(r, limit)
		if err != nil {
			return 0, nil, err
		}
		k, b, complete, err := a.add(k, b)
		if err != nil {
			return 0, nil, err
		}
		if !complete {
			continue
		}
		if slices.Contains(wanted, k) {
			return k, b, nil
		}
		return 0, nil, fmt.Errorf("unexpected frame type %d", k)
	}
}
