package wire

import (
	"fmt"
	"io"
	"slices"
)

// AppendFrame appends a frame to b. The kind must not be Data, so Seq, Comm and Call are zero. It
// is for frames outside of a view, such as hellos, which have no sequence number.
func AppendFrame(b []byte, kind Kind, body []byte) []byte {
	var head [HeaderSize]byte
	h := Header{Kind: kind, Length: uint64(len(body))}
	h.Encode(&head)
	return append(append(b, head[:]...), body...)
}

// ReadFrame reads a frame, whose kind must be one of kinds, of which there is at least one: errors
// name the first of kinds. It returns the kind and the payload, which the caller owns. After an
// error the stream is in the middle of a frame and of no further use.
func ReadFrame(r io.Reader, kinds ...Kind) (Kind, []byte, error) {
	var head [HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("read %v: %w", kinds[0], err)
	}
	h, err := DecodeHeader(&head)
	// The kind is checked before the payload is read: a wrong frame costs no memory.
	if err == nil && !slices.Contains(kinds, h.Kind) {
		err = fmt.Errorf("got %v: %w", h.Kind, ErrFormat)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read %v: %w", kinds[0], err)
	}
	// DecodeHeader has bounded the length by the limit of the kind.
	body := make([]byte, h.Length)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, fmt.Errorf("read %v: %w", kinds[0], err)
	}
	return h.Kind, body, nil
}
