package rendezvous

import (
	"encoding/binary"
	"errors"
)

var errMalformed = errors.New("malformed message")

// wellFormed checks that body begins with one whole msgpack value. The decoder
// (v5.4.1) makes room for as many elements as an array or map announces before
// it reads the first one, so that five bytes from anybody could take all
// memory; here nobody may announce more elements than bytes follow.
func wellFormed(body []byte) error {
	for open := 1; open > 0; {
		if open > len(body) { // every value takes a byte at least
			return errMalformed
		}
		c := body[0]
		body = body[1:]
		open--
		skip, elements := 0, 0
		// sized reads a length of 1, 2 or 4 bytes.
		sized := func(width int) int {
			if len(body) < width {
				return -1
			}
			var b [4]byte
			copy(b[4-width:], body[:width])
			body = body[width:]
			return int(binary.BigEndian.Uint32(b[:]))
		}
		switch {
		case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small numbers, nil, booleans
		case c <= 0x8f:
			elements = 2 * int(c&0x0f)
		case c <= 0x9f:
			elements = int(c & 0x0f)
		case c <= 0xbf:
			skip = int(c & 0x1f)
		case c == 0xc4, c == 0xd9: // bytes, text
			skip = sized(1)
		case c == 0xc5, c == 0xda:
			skip = sized(2)
		case c == 0xc6, c == 0xdb:
			skip = sized(4)
		case c >= 0xc7 && c <= 0xc9: // extensions: length, type
			if skip = sized(1 << (c - 0xc7)); skip >= 0 {
				skip++
			}
		case c == 0xca || c == 0xce || c == 0xd2:
			skip = 4
		case c == 0xcb || c == 0xcf || c == 0xd3:
			skip = 8
		case c == 0xcc || c == 0xd0:
			skip = 1
		case c == 0xcd || c == 0xd1:
			skip = 2
		case c >= 0xd4 && c <= 0xd8: // extensions of 1 … 16 bytes, and their type
			skip = 1 + 1<<(c-0xd4)
		case c == 0xdc:
			elements = sized(2)
		case c == 0xdd:
			elements = sized(4)
		case c == 0xde:
			if elements = sized(2); elements > 0 {
				elements *= 2
			}
		case c == 0xdf:
			if elements = sized(4); elements > 0 {
				elements *= 2
			}
		default: // 0xc1 is never used
			return errMalformed
		}
		if skip < 0 || skip > len(body) || elements < 0 || elements > len(body) {
			return errMalformed
		}
		body = body[skip:]
		open += elements
	}
	return nil
}
