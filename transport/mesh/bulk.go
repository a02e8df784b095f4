package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/elrun/elrun/elastic"
)

// A stream of kind Bulk or Question carries one request and its answer. The request has its length in four bytes before
// it. The answer comes in pieces of at most pieceSize bytes, each with its length before it, and
// ends with an empty piece. An answer without the empty piece was broken off. The requester sends
// one byte for each piece that it has read, and closes the stream at the end.
//
// A Control message that is sent during an answer may wait in the connection behind bytes of the
// answer, but at most behind one window. The congestion control keeps the window so small that the
// wait is at most about 20 ms. A second connection for bulk streams would not end that wait: both
// connections would share the link. And the mesh would have to keep the addresses and identities of
// two connections consistent.

// errBusy: the peer is answering as many requests as it may.
var errBusy = errors.New("busy with other requests")

// busyMark is sent in place of the length of the first piece if the request is refused.
const busyMark = 1<<32 - 1

// ackByte acknowledges a piece.
const ackByte = 1

// answer reads the pieces of an answer. It has one reader; another goroutine may call Close.
type answer struct {
	ctx  context.Context
	from elastic.ID
	s    Stream
	stop func() bool // undoes the context.AfterFunc of ctx
	once sync.Once

	// left is the number of bytes of the present piece that are not read yet.
	left int
	any  bool  // the length of a piece was read, and the piece is not acknowledged
	err  error // the first error of Read, which later calls return again
}

// Read implements io.Reader.
func (a *answer) Read(b []byte) (int, error) {
	if a.err != nil || len(b) == 0 {
		return 0, a.err
	}
	switch {
	case a.ctx.Err() != nil:
		a.err = context.Cause(a.ctx)
	case a.left == 0:
		a.err = a.next()
	}
	if a.err != nil {
		a.err = a.explain(a.err)
		return 0, a.err
	}
	n, err := a.s.Read(b[:min(len(b), a.left)])
	a.left -= n
	if err != nil {
		a.err = a.explain(broken(err))
	}
	return n, a.err
}

// next acknowledges the last piece and reads the length of the next piece. A piece is acknowledged
// only after it was read to its end, so the window of the sender also bounds the bytes that a slow
// reader has not read.
func (a *answer) next() error {
	if a.any {
		if _, err := a.s.Write([]byte{ackByte}); err != nil {
			return broken(err)
		}
	}
	n, err := readPiece(a.s)
	a.left, a.any = n, true
	return err
}

// readPiece reads the length of a piece. For the empty piece at the end it returns io.EOF.
func readPiece(r io.Reader) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, broken(err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	switch {
	case n == 0:
		return 0, io.EOF
	// A length that no piece can have means that the request was refused.
	case n == busyMark:
		return 0, errBusy
	case n > pieceSize:
		return 0, fmt.Errorf("piece of %d bytes, at most %d", n, pieceSize)
	}
	return int(n), nil
}

// broken replaces io.EOF, so that a stream that ended early is not taken for the end of the answer.
// Only the empty piece ends an answer: the peer writes it when its function has returned without an
// error.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// explain adds the ID of the answering peer to err. If ctx has ended, it replaces err by the cause
// of ctx, as err is only an effect of the reset.
func (a *answer) explain(err error) error {
	if err == io.EOF {
		return err
	}
	if a.ctx.Err() != nil {
		err = context.Cause(a.ctx)
	}
	return fmt.Errorf("mesh: answer of %s: %w", a.from.Short(), err)
}

// Close implements io.Closer. It resets the stream. The peer sees from the reset that the requester
// reads nothing more, whether the answer was complete or not.
func (a *answer) Close() error {
	a.once.Do(func() {
		a.stop()
		_ = a.s.Reset()
	})
	return nil
}
