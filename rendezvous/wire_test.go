package rendezvous

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"rankstorm/rank"
)

func TestFramesRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 100, chunkSize, chunkSize + 1, 3*chunkSize + 7} {
		body := make([]byte, n)
		for i := range body {
			body[i] = byte(i * 7)
		}
		var b bytes.Buffer
		if err := writeFrame(&b, frameData, body); err != nil {
			t.Fatal(err)
		}
		kind, got, err := readBody(bufio.NewReader(&b), maxFrame, frameData)
		if err != nil || kind != frameData || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes: kind %d, %d bytes back, error %v", n, kind, len(got), err)
		}
		if b.Len() != 0 {
			t.Fatalf("%d bytes left over", b.Len())
		}
	}
}

func TestBodyTooLongIsNotSent(t *testing.T) {
	var b bytes.Buffer
	err := writeFrame(&b, frameData, make([]byte, maxBody+1))
	if !errors.Is(err, errBodySize) || b.Len() != 0 {
		t.Fatalf("error %v, %d bytes written", err, b.Len())
	}
}

func frame(length uint32, version, kind byte, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, length)
	return append(append(b, version, kind), body...)
}

func TestBadFramesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"empty", nil, io.EOF},
		{"half a head", []byte{0, 0, 0}, io.ErrUnexpectedEOF},
		{"no version", frame(1, wireVersion, frameData), errFrameSize},
		{"oversize", frame(maxFrame+1, wireVersion, frameData), errFrameSize},
		{"huge", frame(1<<32-1, wireVersion, frameData), errFrameSize},
		{"other version", frame(2, wireVersion+1, frameData), errFrameVersion},
		{"http", []byte("GET / HTTP/1.1\r\n\r\n"), errFrameVersion},
		{"cut body", frame(10, wireVersion, frameData, 1, 2), io.ErrUnexpectedEOF},
		{"mixed chunks", append(frame(3, wireVersion, frameData|frameMore, 1), frame(3, wireVersion, frameTable, 1)...), errFrameOrder},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := readBody(bufio.NewReader(bytes.NewReader(c.in)), maxFrame, frameData); !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
		})
	}
}

func TestLimitOfUnknownPeers(t *testing.T) {
	var b bytes.Buffer
	if err := writeFrame(&b, frameHello, make([]byte, helloLimit)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readBody(bufio.NewReader(&b), helloLimit, frameHello); !errors.Is(err, errFrameSize) {
		t.Fatalf("error %v, want %v", err, errFrameSize)
	}
}

func TestReassemblyIsBounded(t *testing.T) {
	var a assembler
	chunk := make([]byte, maxFrame-2)
	for n := 0; ; n += len(chunk) {
		_, _, complete, err := a.add(frameData|frameMore, chunk)
		if err != nil {
			if !errors.Is(err, errBodySize) || n+len(chunk) <= maxBody {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			return
		}
		if complete || n > maxBody {
			t.Fatalf("complete %v after %d bytes", complete, n)
		}
	}
}

// FuzzFrames feeds the decoder and all message decoders; whatever decodes
// must come out the same after another trip.
func FuzzFrames(f *testing.F) {
	f.Add(frame(2, wireVersion, framePing))
	f.Add(frame(5, wireVersion, frameData, 1, 2, 3))
	f.Add(append(frame(3, wireVersion, frameData|frameMore, 1), frame(3, wireVersion, frameData, 2)...))
	var b bytes.Buffer
	for kind, v := range map[byte]any{
		frameHello: hello{Proc: 3}, frameTableAck: tableAck{Count: 2}, frameClockPing: clockPing{Seq: 1, T0: 2},
		frameClockPong: clockPong{Seq: 1}, frameClockState: clockPoint{Gen: 1}, frameSealFailed: rank.Errorf(rank.KindLost, "gone"),
	} {
		b.Reset()
		if err := writeMessage(&b, kind, v); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(b.Bytes()))
	}
	b.Reset()
	table := testTable(f, 2, nil)
	if err := writeMessage(&b, frameTable, table); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(b.Bytes()))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		var a assembler
		total := 0
		for {
			kind, body, err := readFrame(r, maxFrame)
			if err != nil {
				return
			}
			if total += len(body); total > len(in) {
				t.Fatalf("%d body bytes out of %d", total, len(in))
			}
			kind, body, complete, err := a.add(kind, body)
			if err != nil {
				return
			}
			if !complete {
				continue
			}
			for _, v := range []any{new(hello), new(tableAck), new(clockPing), new(clockPong), new(clockPoint), new(rank.Error)} {
				decode(body, v) // must not panic
			}
			tab := new(rank.Table)
			if decode(body, tab) == nil && tab.Verify() == nil && tab.Size() < 1 {
				t.Fatal("a table without ranks passed")
			}
			var again bytes.Buffer
			if err := writeFrame(&again, kind, body); err != nil {
				t.Fatal(err)
			}
			k, back, err := readBody(bufio.NewReader(&again), maxFrame, kind)
			if err != nil || k != kind || !bytes.Equal(back, body) {
				t.Fatalf("second trip: %v", err)
			}
		}
	})
}
