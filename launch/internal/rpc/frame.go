package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// kind is the type of a frame.
type kind uint8

const (
	kindHello   kind = iota + 1 // the first frame in each direction
	kindCall                    // caller to server
	kindAnswer                  // server to caller: the result
	kindFailure                 // server to caller: the text of an error
	kindCancel                  // caller to server: the caller has stopped waiting
	kindEnd                     // the first invalid kind
)

const (
	headerSize = 24
	// MaxPayload bounds the size of a payload, in bytes.
	MaxPayload = 64 << 20
	// chunk is the step in bytes by which memory for a payload grows while it arrives.
	chunk = 1 << 20
)

// errFrame reports a violation of the protocol by the other side.
var errFrame = errors.New("bad frame")

// frame is a header with its payload. The header has headerSize bytes, in little-endian order:
//
//	0   4 bytes  length of the payload
//	4   1        kind
//	5   1        0, for flags of later versions
//	6   2        method
//	8   8        ID
//	16  8        timeout
type frame struct {
	kind kind
	// method is the index of the called method in the methods of the service.
	method uint16
	// id is the number of a call, the same in its answer and its cancellation. The caller chooses
	// the number.
	id uint64
	// timeout is the time that is left for a call, in nanoseconds; 0 without a deadline.
	timeout uint64
	payload []byte
}

// encode returns the encoded frame. A payload longer than MaxPayload is an error.
func (f frame) encode() ([]byte, error) {
	if len(f.payload) > MaxPayload {
		return nil, fmt.Errorf("%d bytes, at most %d fit in a call", len(f.payload), MaxPayload)
	}
	b := make([]byte, headerSize, headerSize+len(f.payload))
	binary.LittleEndian.PutUint32(b, uint32(len(f.payload)))
	b[4] = byte(f.kind)
	binary.LittleEndian.PutUint16(b[6:], f.method)
	binary.LittleEndian.PutUint64(b[8:], f.id)
	binary.LittleEndian.PutUint64(b[16:], f.timeout)
	return append(b, f.payload...), nil
}

// readFrame reads the next frame. It does not trust the header: memory grows with the bytes
// received, not with the announced size. The error is io.EOF at the end of a stream between two
// frames.
func readFrame(r io.Reader) (frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	size := int(binary.LittleEndian.Uint32(h[:]))
	f := frame{kind: kind(h[4]), method: binary.LittleEndian.Uint16(h[6:]), id: binary.LittleEndian.Uint64(h[8:]), timeout: binary.LittleEndian.Uint64(h[16:])}
	switch {
	case f.kind == 0 || f.kind >= kindEnd:
		return frame{}, fmt.Errorf("%w: kind %d", errFrame, f.kind)
	case h[5] != 0:
		return frame{}, fmt.Errorf("%w: unknown flags %#x", errFrame, h[5])
	case size > MaxPayload:
		return frame{}, fmt.Errorf("%w: %d bytes, at most %d", errFrame, size, MaxPayload)
	case f.timeout > 1<<63-1:
		return frame{}, fmt.Errorf("%w: timeout of %d ns", errFrame, f.timeout)
	}
	var err error
	f.payload, err = readPayload(r, size)
	return f, err
}

// readPayload reads size bytes, and grows the buffer in steps: if a header announces more bytes
// than are sent, at most one chunk of memory is wasted.
func readPayload(r io.Reader, size int) ([]byte, error) {
	var b []byte
	for len(b) < size {
		n := min(chunk, size-len(b))
		b = append(b, make([]byte, n)...)
		if _, err := io.ReadFull(r, b[len(b)-n:]); err != nil {
			return nil, unexpected(err)
		}
	}
	return b, nil
}

// unexpected turns io.EOF into io.ErrUnexpectedEOF, for a stream that ends within a frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
