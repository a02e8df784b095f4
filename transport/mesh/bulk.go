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

// A bulk stream carries one request and its answer. The request has its length in four
// bytes before it. The answer comes in pieces of at most pieceSize bytes, with the
// length before each, and ends with an empty one; without that it was broken off. The
// one who asked sends a byte for each piece that it has read, and closes the stream when
// it is done.
//
// Costs: four bytes per piece one way and one byte the other. A message of Control that
// is sent while an answer is under way waits for what that has in the buffers of the
// connection: the window of the answer, which pacer keeps so small that this takes
// about 20 ms more than the link itself. (A second connection for bulk would keep the
// queues apart, but both still share the link, and its addresses and identity would have
// to be kept in step.)

// errBusy: the peer answers as many requests as it may.
var errBusy = errors.New("busy with other requests")

// busyMark stands in place of the length of the first piece where the request is refused.
const busyMark = 1<<32 - 1

// ackByte acknowledges a piece.
const ackByte = 1

// Request implements elastic.Network. Errors of the peer, also that it is busy, come from
// reading the answer. The peer breaks the answer off when it is not read for
// progressTime.
func (m *Mesh) Request(ctx context.Context, to elastic.ID, request []byte) (io.ReadCloser, error) {
	a, err := m.request(ctx, to, request)
	if err != nil {
		return nil, fmt.Errorf("mesh: request to %s: %w", to.Short(), err)
	}
	return a, nil
}

func (m *Mesh) request(ctx context.Context, to elastic.ID, request []byte) (*answer, error) {
	if len(request) > elastic.MaxRequest {
		return nil, fmt.Errorf("request of %d bytes, at most %d", len(request), elastic.MaxRequest)
	}
	if to == m.id {
		return nil, errSelf
	}
	a := &answer{ctx: ctx, from: to}
	err := m.retry(ctx, func() (err error) {
		a.s, err = m.carrier.Open(ctx, to, Bulk)
		return err
	})
	if err != nil {
		return nil, err
	}
	a.stop = context.AfterFunc(ctx, func() { _ = a.s.Reset() })
	if watch, ok := a.s.(Observer); ok {
		if _, err := watch.Sending(Outgoing{Bytes: len(request), Payload: request}); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	frame := append(binary.LittleEndian.AppendUint32(nil, uint32(len(request))), request...)
	if _, err := a.s.Write(frame); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// answer reads the pieces of an answer. It has one reader; Close may come from
// elsewhere.
type answer struct {
	ctx  context.Context
	from elastic.ID
	s    Stream
	stop func() bool // ends the watch of ctx
	once sync.Once

	left int   // bytes of the present piece that are not read yet
	any  bool  // a piece was begun and is not acknowledged
	err  error // what Read returned last; it stays
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

// next acknowledges the piece before and reads the length of the next.
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

// readPiece reads the length of a piece: io.EOF stands for the empty one.
func readPiece(r io.Reader) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, broken(err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	switch {
	case n == 0:
		return 0, io.EOF
	case n == busyMark:
		return 0, errBusy
	case n > pieceSize:
		return 0, fmt.Errorf("piece of %d bytes, at most %d", n, pieceSize)
	}
	return int(n), nil
}

// broken makes sure that a stream that ended early is not taken for the end.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// explain returns the cause of ctx in place of what its end did to the stream, and adds
// whose answer it was.
func (a *answer) explain(err error) error {
	if err == io.EOF {
		return err
	}
	if a.ctx.Err() != nil {
		err = context.Cause(a.ctx)
	}
	return fmt.Errorf("mesh: answer of %s: %w", a.from.Short(), err)
}

// Close implements io.Closer. It breaks the answer off if it was not read to its end;
// a reset is the way to say so in either case.
func (a *answer) Close() error {
	a.once.Do(func() {
		a.stop()
		_ = a.s.Reset()
	})
	return nil
}
