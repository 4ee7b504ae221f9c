// Package wellformed checks bytes of a peer before a decoder sees them.
package wellformed

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxDepth bounds the nesting that can be asked for.
const MaxDepth = 16

var errTruncated = errors.New("message is cut off")

// Msgpack checks that b is one whole msgpack value without extensions that
// nests at most depth (≤ MaxDepth) deep, and that no byte follows. The decoder
// of msgpack v5.4.1 recurses, and makes room for as many elements as an array
// announces before it reads the first, so that five bytes from anybody could
// take all memory; after this check both are bounded by len(b).
func Msgpack(b []byte, depth int) error {
	var left [MaxDepth + 1]uint64 // values still to come per level
	at := 0
	left[0] = 1
	for {
		for left[at] == 0 {
			if at == 0 {
				if len(b) > 0 {
					return fmt.Errorf("%d bytes follow the message", len(b))
				}
				return nil
			}
			at--
		}
		left[at]--
		if len(b) == 0 {
			return errTruncated
		}
		skip, values, err := head(b)
		if err != nil {
			return err
		}
		if skip > uint64(len(b)) {
			return errTruncated
		}
		b = b[skip:]
		if values > uint64(len(b)) {
			return errTruncated // every value has at least one byte
		}
		if values > 0 {
			if at == min(depth, MaxDepth) {
				return errors.New("message is nested too deeply")
			}
			at++
			left[at] = values
		}
	}
}

// head says how many bytes the value at b[0] takes up to its first
// nested value, and how many nested values follow. A format with k length bytes
// must have them.
func head(b []byte) (skip, values uint64, err error) {
	c := b[0]
	length := func(k int) uint64 {
		if len(b) < 1+k {
			err = errTruncated
			return 0
		}
		switch k {
		case 1:
			return uint64(b[1])
		case 2:
			return uint64(binary.BigEndian.Uint16(b[1:]))
		default:
			return uint64(binary.BigEndian.Uint32(b[1:]))
		}
	}
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		return 1, 0, nil
	case c <= 0x8f:
		return 1, 2 * uint64(c&0x0f), nil
	case c <= 0x9f:
		return 1, uint64(c & 0x0f), nil
	case c <= 0xbf:
		return 1 + uint64(c&0x1f), 0, nil
	case c >= 0xc4 && c <= 0xc6: // bin 8, 16, 32
		k := 1 << (c - 0xc4)
		skip = 1 + uint64(k) + length(k)
	case c == 0xca:
		skip = 5
	case c == 0xcb:
		skip = 9
	case c >= 0xcc && c <= 0xcf: // uint 8 … 64
		skip = 1 + 1<<(c-0xcc)
	case c >= 0xd0 && c <= 0xd3: // int 8 … 64
		skip = 1 + 1<<(c-0xd0)
	case c >= 0xd9 && c <= 0xdb: // str 8, 16, 32
		k := 1 << (c - 0xd9)
		skip = 1 + uint64(k) + length(k)
	case c == 0xdc:
		return 3, length(2), err
	case c == 0xdd:
		return 5, length(4), err
	case c == 0xde:
		return 3, 2 * length(2), err
	case c == 0xdf:
		return 5, 2 * length(4), err
	default: // extensions, and 0xc1, which is never used
		return 0, 0, fmt.Errorf("format byte %#x is not allowed", c)
	}
	return skip, 0, err
}
