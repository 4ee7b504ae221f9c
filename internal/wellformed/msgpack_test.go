package wellformed

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func TestMsgpack(t *testing.T) {
	for _, v := range []any{
		nil, true, 1, -1, 1 << 40, -1 << 40, 255, 1 << 15, math.Pi, float32(1), "text", strings.Repeat("x", 300), strings.Repeat("x", 70000),
		[]byte{1},
		make([]byte, 300), make([]byte, 70000),
		[]int{1, 2},
		make([]int, 20), make([]int, 70000),
		map[string]int{"a": 1},
		manyKeys(20), manyKeys(70000), msgpack.RawMessage(nested(MaxDepth)),
	} {
		body, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := Msgpack(body, MaxDepth); err != nil {
			t.Errorf("%T of %d bytes: %v", v, len(body), err)
		}
		for cut := range min(len(body), 40) {
			if Msgpack(body[:cut], MaxDepth) == nil {
				t.Errorf("%T cut to %d of %d bytes: accepted", v, cut, len(body))
			}
		}
	}
	for _, body := range [][]byte{
		{},
		{0xc1},
		{0xdd, 0xff, 0xff, 0xff, 0xff},
		{0xdf, 0x7f, 0xff, 0xff, 0xff, 0},
		{0xc6, 0xff, 0xff, 0xff, 0xff},
		bytes.Repeat([]byte{0x91}, 1000),
		{0xc0, 0xc0},
		{0xd4, 1, 1},
		nested(MaxDepth + 1),
	} {
		if Msgpack(body, MaxDepth) == nil {
			t.Errorf("%x: accepted", body[:min(len(body), 8)])
		}
	}
}

// nested is nil in that many lists.
func nested(depth int) []byte { return append(bytes.Repeat([]byte{0x91}, depth), 0xc0) }

func manyKeys(n int) map[int]int {
	m := make(map[int]int, n)
	for i := range n {
		m[i] = i
	}
	return m
}

// FuzzMsgpack: what is well formed can be skipped by the decoder, and ends there.
func FuzzMsgpack(f *testing.F) {
	for _, v := range []any{1, "text", map[string]any{"a": []byte{1}, "b": []any{nil, -1, 1.5}}, manyKeys(20)} {
		body, err := msgpack.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte{0xc7, 0, 1, 0xd8})
	f.Fuzz(func(t *testing.T, body []byte) {
		if Msgpack(body, MaxDepth) != nil {
			return
		}
		r := bytes.NewReader(body)
		if err := msgpack.NewDecoder(r).Skip(); err != nil || r.Len() > 0 {
			t.Fatalf("%x: %d bytes after the value: %v", body, r.Len(), err)
		}
	})
}
