package mem

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
)

// answerer answers the requests of other members.
type answerer = func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error

// stream is an answer under way. The asker reads it from a pipe, into which a goroutine
// of the network writes.
type stream struct {
	r      *io.PipeReader
	w      *io.PipeWriter
	ctx    context.Context // of the answerer
	cancel context.CancelCauseFunc
	ends   [2]*Member  // who asks and who answers
	stop   func() bool // ends the watch over the asker's ctx
}

// Endpoint returns all that member self needs of a network. Closing it is closing the
// member.
func (w *Network) Endpoint(self elastic.Member) elastic.Endpoint {
	m := w.Member(self.ID)
	return elastic.Endpoint{Self: self, Network: m, Keys: w.ring.Keys(self.ID), Close: m.Close}
}

// Serve implements elastic.Network.
func (m *Member) Serve(answer func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	m.answer = answer
}

// Request implements elastic.Network. A peer that has not called Serve yet is an error.
func (m *Member) Request(ctx context.Context, to elastic.ID, request []byte) (io.ReadCloser, error) {
	s, err := m.request(ctx, to, request)
	if err != nil {
		return nil, fmt.Errorf("mem: request to %s: %w", to.Short(), err)
	}
	return s, nil
}

// request starts the answer, and the watch that ends it with ctx.
func (m *Member) request(ctx context.Context, to elastic.ID, request []byte) (*stream, error) {
	if len(request) > elastic.MaxRequest {
		return nil, fmt.Errorf("%d bytes, at most %d", len(request), elastic.MaxRequest)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := &stream{}
	s.r, s.w = io.Pipe()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.stop = context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
	if err := m.network.ask(s, m, to, append([]byte(nil), request...)); err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// ask registers the stream with both members, as long as both are there, and starts the
// answer.
func (w *Network) ask(s *stream, m *Member, to elastic.ID, request []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	other := w.memberLocked(to)
	switch {
	case m.left != nil:
		return fmt.Errorf("%w: %w", transport.ErrClosed, m.left)
	case other == m:
		return errors.New("a member cannot connect to itself")
	case other.left != nil:
		return fmt.Errorf("%w: %w", elastic.ErrGone, other.left)
	case other.answer == nil:
		return errors.New("the peer answers no requests")
	}
	s.ends = [2]*Member{m, other}
	m.streams[s], other.streams[s] = true, true
	answer := other.answer
	// The pump of a member that has not left still counts, so Close cannot be past its
	// waiting.
	w.pumps.Go(func() {
		err := answer(s.ctx, m.id, request, s.w)
		w.forget(s)
		s.finish(err)
	})
	return nil
}

// forget takes a stream whose answer is complete from its members, whose end does not
// concern it any more.
func (w *Network) forget(s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range s.ends {
		delete(m.streams, s)
	}
}

// finish ends the stream behind what was written. No error of the answerer's, not even
// io.EOF, may look like a good end.
func (s *stream) finish(err error) {
	if err != nil {
		err = fmt.Errorf("mem: the answer was broken off: %v", err)
	}
	_ = s.w.CloseWithError(err) // never fails
	s.cancel(nil)
}

// end breaks the stream off at both sides.
func (s *stream) end(why error) {
	_ = s.w.CloseWithError(why) // for the reader; never fails
	_ = s.r.CloseWithError(why) // for the writer; never fails
	s.cancel(why)
}

// Read reads the answer.
func (s *stream) Read(b []byte) (int, error) { return s.r.Read(b) }

// Close ends the answer, should it not have ended.
func (s *stream) Close() error {
	s.stop()
	s.end(errors.New("the asker has closed the stream"))
	return nil
}
