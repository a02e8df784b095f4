package simnet

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/elrun/elrun/elastic"
)

// replier answers the requests of other members.
type replier = func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error

// chunkSize is how much of an answer travels in one frame, in bytes.
const chunkSize = 32 << 10

// errClosedByAsker is why an answer is broken off that nobody wants to the end.
var errClosedByAsker = errors.New("the asker has closed the stream")

// stream is a request and its answer. The asker reads it; the answerer writes to it.
type stream struct {
	asker *node
	to    elastic.ID

	life   context.Context // at the asker: ends when it has closed the stream, or its ctx has
	cancel context.CancelCauseFunc
	unbind func() bool   // ends the watch over the asker's ctx
	ready  chan struct{} // holds a token when there is something new for the asker
	opened chan struct{} // closed when the answerer has taken the request, or refused

	serving context.Context // at the answerer: ends when the stream is broken off
	stop    context.CancelCauseFunc

	// Guarded by the network's mu.
	refused error
	open    bool
	recv    [][]byte // chunks that have come
	size    int      // of the first chunk, when it came
	ended   error    // io.EOF when the answer was complete
	server  *node    // once it has taken the request
	back    *pipe    // from server to asker
}

// Serve implements elastic.Network.
func (m *node) Serve(answer func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.reply = answer
}

// Request implements elastic.Network. It returns when the peer has taken the request.
func (m *node) Request(ctx context.Context, to elastic.ID, request []byte) (io.ReadCloser, error) {
	s, err := m.request(ctx, to, request)
	if err != nil {
		return nil, fmt.Errorf("simnet: request to %s: %w", to.Short(), err)
	}
	return s, nil
}

// request opens a stream and waits for the answerer to take it.
func (m *node) request(ctx context.Context, to elastic.ID, request []byte) (*stream, error) {
	switch {
	case len(request) > elastic.MaxRequest:
		return nil, fmt.Errorf("%d bytes, at most %d", len(request), elastic.MaxRequest)
	case to == m.self.ID:
		return nil, errors.New("a member cannot connect to itself")
	}
	if err := m.gate(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // nobody waits for what would race with the answer
		return nil, context.Cause(ctx)
	}
	if err := m.observe(Message{To: to, Plane: Bulk, Bytes: len(request), Payload: request}); err != nil {
		return nil, err
	}
	s := &stream{asker: m, to: to, ready: make(chan struct{}, 1), opened: make(chan struct{})}
	s.life, s.cancel = context.WithCancelCause(ctx)
	s.serving, s.stop = context.WithCancelCause(context.Background())
	if err := s.ask(append([]byte(nil), request...)); err != nil {
		s.abort(err)
		return nil, err
	}
	s.unbind = context.AfterFunc(ctx, func() { s.abort(context.Cause(ctx)) })
	select {
	case <-s.opened:
	case <-s.life.Done():
	}
	if err := s.refusal(); err != nil {
		s.unbind()
		s.abort(err)
		return nil, err
	}
	return s, nil
}

// ask sends the request.
func (s *stream) ask(request []byte) error {
	m, n := s.asker, s.asker.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.dead != nil {
		return m.deadLocked()
	}
	m.asked[s] = true
	l := n.linkLocked(m.self.ID, s.to)
	l.submitLocked(l.urgent[Bulk], frame{size: len(request) + overhead,
		deliver: func() { n.find(s.to).acceptRequest(s, request) },
		refuse:  func() { n.refuseFor(s.to, m, Bulk, func() { s.taken(errRefused) }) },
	})
	return nil
}

// refusal returns why the request was not taken.
func (s *stream) refusal() error {
	s.asker.net.mu.Lock()
	defer s.asker.net.mu.Unlock()
	switch {
	case s.refused != nil:
		return s.refused
	case s.open:
		return nil
	}
	return context.Cause(s.life)
}

// acceptRequest is the arrival of the request: the member answers in a goroutine.
func (m *node) acceptRequest(s *stream, request []byte) {
	n := m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	back := n.linkLocked(m.self.ID, s.asker.self.ID)
	if m.reply == nil || n.closed || m.dead != nil {
		back.submitLocked(back.urgent[Bulk], frame{size: overhead,
			deliver: func() { s.taken(errors.New("the peer answers no requests")) }})
		return
	}
	s.server, s.back = m, back.addPipeLocked(Bulk)
	m.owing[s] = true
	back.submitLocked(s.back, frame{size: overhead, deliver: func() { s.taken(nil) }})
	reply := m.reply
	n.working.Go(func() { s.finish(reply(s.serving, s.asker.self.ID, request, writer{s})) })
}

// taken is the arrival of what the answerer thinks of the request.
func (s *stream) taken(err error) {
	s.asker.net.mu.Lock()
	defer s.asker.net.mu.Unlock()
	s.settleLocked(err)
}

// settleLocked ends the waiting of Request.
func (s *stream) settleLocked(err error) {
	if !s.open && s.refused == nil {
		s.open, s.refused = err == nil, err
		close(s.opened)
	}
}

// writer is the answerer's side of a stream.
type writer struct{ s *stream }

// Write sends b in chunks, and fails when the stream was broken off.
func (w writer) Write(b []byte) (int, error) {
	for at := 0; at < len(b); {
		chunk := b[at:min(at+chunkSize, len(b))]
		if err := w.s.writeChunk(append([]byte(nil), chunk...)); err != nil {
			return at, fmt.Errorf("simnet: answer %s: %w", w.s.asker.self.ID.Short(), err)
		}
		at += len(chunk)
	}
	return len(b), nil
}

// writeChunk sends one chunk, which it owns.
func (s *stream) writeChunk(chunk []byte) error {
	m := s.server
	err := m.gate(s.serving)
	if err == nil {
		err = m.observe(Message{To: s.asker.self.ID, Plane: Bulk, Bytes: len(chunk)})
	}
	if err == nil {
		f := frame{size: len(chunk) + overhead, deliver: func() { s.hear(chunk) }}
		err = s.back.write(s.serving, f, m.gone, nil)
	}
	if err != nil && s.serving.Err() != nil {
		return context.Cause(s.serving) // why the stream ended
	}
	return err
}

// finish ends the stream behind what was written. No error of the answerer's, not even
// io.EOF, may look like a good end.
func (s *stream) finish(err error) {
	end := io.EOF
	if err != nil {
		end = fmt.Errorf("the answer was broken off: %v", err)
	}
	n := s.server.net
	n.mu.Lock()
	if s.server.dead == nil {
		s.back.link.submitLocked(s.back, frame{size: overhead, deliver: func() { s.end(end) }})
	}
	s.back.endLocked()
	delete(s.server.owing, s)
	n.mu.Unlock()
	s.stop(nil)
}

// hear is the arrival of a chunk.
func (s *stream) hear(chunk []byte) {
	s.asker.net.mu.Lock()
	defer s.asker.net.mu.Unlock()
	if s.ended == nil {
		s.recv = append(s.recv, chunk)
		s.tellLocked()
	}
}

// end is the arrival of the end, or that of the news that there will be none.
func (s *stream) end(why error) {
	s.asker.net.mu.Lock()
	defer s.asker.net.mu.Unlock()
	s.endLocked(why)
}

// endLocked lets the asker read to the end of what has come, then why.
func (s *stream) endLocked(why error) {
	if s.ended == nil {
		s.ended = why
	}
	delete(s.asker.asked, s)
	s.settleLocked(why)
	s.tellLocked()
}

// tellLocked wakes the asker's Read.
func (s *stream) tellLocked() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Read reads the answer.
func (s *stream) Read(b []byte) (int, error) {
	for {
		if err := s.asker.gate(s.life); err != nil {
			return 0, fmt.Errorf("simnet: answer of %s: %w", s.to.Short(), err)
		}
		n, done, err := s.tryRead(b)
		if done > 0 {
			s.back.read(done)
		}
		if n > 0 || len(b) == 0 || err == io.EOF {
			return n, err
		}
		if err != nil {
			return 0, fmt.Errorf("simnet: answer of %s: %w", s.to.Short(), err)
		}
		select {
		case <-s.ready:
		case <-s.life.Done():
		case <-s.asker.gone:
		}
	}
}

// tryRead copies what is there. done is the size of a frame that has been read to its
// end.
func (s *stream) tryRead(b []byte) (n, done int, err error) {
	s.asker.net.mu.Lock()
	defer s.asker.net.mu.Unlock()
	switch {
	case s.asker.dead != nil:
		return 0, 0, s.asker.deadLocked()
	case len(s.recv) == 0:
		return 0, 0, s.ended
	}
	if s.size == 0 {
		s.size = len(s.recv[0]) + overhead
	}
	n = copy(b, s.recv[0])
	s.recv[0] = s.recv[0][n:]
	if len(s.recv[0]) == 0 {
		done, s.size = s.size, 0
		shift(&s.recv)
	}
	return n, done, nil
}

// Close ends the stream, and the answer, should that not have ended.
func (s *stream) Close() error {
	s.unbind()
	s.abort(errClosedByAsker)
	return nil
}

// abort ends the stream at the asker, who lets the answerer know. An answer that has
// come in full stays readable until Close.
func (s *stream) abort(why error) {
	n := s.asker.net
	n.mu.Lock()
	if s.ended == nil || why == errClosedByAsker {
		s.ended, s.recv = why, nil
	}
	s.endLocked(why)
	if s.asker.dead == nil {
		l := n.linkLocked(s.asker.self.ID, s.to)
		l.submitLocked(l.urgent[Bulk], frame{size: overhead, deliver: func() { s.hangUp(why) }})
	}
	n.mu.Unlock()
	s.cancel(why)
}

// hangUp is the arrival of the asker's end, or of the news of it, at the answerer.
func (s *stream) hangUp(why error) {
	n := s.asker.net
	n.mu.Lock()
	if s.back != nil {
		s.back.endLocked()
	}
	n.mu.Unlock()
	s.stop(why)
}
