package runner

import (
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func FuzzDecodeAddresses(f *testing.F) {
	whole, err := msgpack.Marshal([]published{{0, []byte{4, 127, 0, 0, 1}}, {1, []byte("p1")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}) // four billion entries in five bytes
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeAddresses(b)
		if err != nil {
			return
		}
		if len(list) > len(b) {
			t.Errorf("%d addresses out of %d bytes", len(list), len(b))
		}
		again, err := msgpack.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeAddresses(again); err != nil {
			t.Errorf("what was read cannot be read again: %v", err)
		}
	})
}
