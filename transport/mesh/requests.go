package mesh

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
)

const (
	// progressTime is how long a requester may read nothing before its answer is broken off.
	progressTime = 30 * time.Second
	// maxAnswers bounds the requests that are answered at the same time, and maxAnswersTo the
	// requests of one peer among them. A further request waits for queueTime before it is refused,
	// because a peer may break off an answer and send a new request before this side notices the
	// first. Each answer may hold pieces of the state in memory, and all answers share the upload
	// bandwidth.
	maxAnswers   = 64
	maxAnswersTo = 8
	queueTime    = time.Second
)

// errStuck: the requester does not read the answer.
var errStuck = errors.New("the answer is not being read")

// answerer is the type of Config.Answer.
type answerer func(ctx context.Context, from elastic.ID, request []byte, w *bufio.Writer) error

// requests sends the requests of this process on streams of one kind, and admits the requests of peers
// within maxAnswers and maxAnswersTo.
type requests struct {
	self    elastic.ID
	carrier Carrier
	kind    Kind
	life    *lifetime

	// mu guards the fields below.
	mu sync.Mutex
	// answer is nil until serve is called. Requests are refused until then.
	answer answerer
	// all is the number of requests that are being answered.
	all int
	// from counts the requests that are being answered, by peer.
	from map[elastic.ID]int
	// left wakes all waiting requests, because each must check the limit of its own peer.
	left chan struct{} // closed, and replaced, when a request has ended
}

// newRequests returns the requests of a process that has sent and answered none.
func newRequests(c Carrier, k Kind, life *lifetime) *requests {
	return &requests{self: c.ID(), carrier: c, kind: k, life: life, from: make(map[elastic.ID]int), left: make(chan struct{})}
}

// request sends a request, and returns the reader of its answer.
func (r *requests) request(ctx context.Context, to elastic.ID, request []byte) (*answer, error) {
	if len(request) > elastic.MaxRequest {
		return nil, fmt.Errorf("request of %d bytes, at most %d", len(request), elastic.MaxRequest)
	}
	if to == r.self {
		return nil, errSelf
	}
	a := &answer{ctx: ctx, from: to}
	err := r.life.retry(ctx, func() (err error) {
		a.s, err = r.carrier.Open(ctx, to, r.kind)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Reads and writes of the stream have no context of their own: the reset ends them.
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

// serve sets the function that answers requests.
func (r *requests) serve(answer answerer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// enter admits one more request of a peer, and returns the function that answers it. After the
// answer the caller calls leave. If there are too many requests for queueTime, or the mesh closes,
// enter returns nil and leave must not be called.
func (r *requests) enter(from elastic.ID) answerer {
	timer := time.NewTimer(queueTime)
	defer timer.Stop()
	for {
		// left is closed whenever a request ends: each waiter then tries again.
		answer, left := r.tryEnter(from)
		if left == nil {
			return answer
		}
		select {
		case <-left:
		case <-r.life.ctx.Done():
			return nil
		case <-timer.C:
			return nil
		}
	}
}

// tryEnter is enter without waiting. If there are too many requests it returns a channel: the
// caller may try again when the channel is closed.
func (r *requests) tryEnter(from elastic.ID) (answerer, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.answer == nil:
		return nil, nil
	case r.all >= maxAnswers || r.from[from] >= maxAnswersTo:
		return nil, r.left
	}
	r.all++
	r.from[from]++
	return r.answer, nil
}

// leave ends a request that enter has admitted.
func (r *requests) leave(from elastic.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.from[from]--; r.from[from] == 0 {
		delete(r.from, from)
	}
	close(r.left)
	r.left = make(chan struct{})
}

// accept handles the stream of one request of a peer.
func (r *requests) accept(s Stream) {
	from := s.Peer()
	// The limit is checked before the request is read: a refused request costs no memory.
	answer := r.enter(from)
	if answer == nil {
		refuseBulk(s)
		return
	}
	defer r.leave(from)
	defer func() { _ = s.Reset() }() // no effect on a stream that has ended in good order
	if s.SetReadDeadline(time.Now().Add(helloTime)) != nil {
		return
	}
	request, err := readRequest(s)
	if err != nil || s.SetReadDeadline(time.Time{}) != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Each answer has a window of its own, as each peer has its own path.
	w := &pieceWriter{ctx: ctx, s: s, window: newCongestionWindow()}
	var acks sync.WaitGroup
	acks.Go(func() {
		defer cancel() // also when the mesh closes, which ends the stream
		w.readAcks()
	})
	if err := w.send(func(b *bufio.Writer) error { return answer(ctx, from, request, b) }); err != nil {
		_ = s.Reset()
	}
	// Without this wait the reset would drop bytes of the answer that are still in flight.
	acks.Wait() // until the other side has closed the stream
}

// refuseBulk tells the requester that its request is refused, and ends the stream when the
// requester has ended it.
func refuseBulk(s Stream) {
	defer func() { _ = s.Reset() }()
	if setDeadline(s, time.Now().Add(refuseTime)) != nil {
		return
	}
	// The request is read and discarded: a close with unread bytes would reset the stream, and
	// the reset could overtake the refusal.
	if _, err := s.Write(binary.LittleEndian.AppendUint32(nil, busyMark)); err == nil && s.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(s, 4+elastic.MaxRequest))
	}
}

// readRequest reads a request.
func readRequest(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	// The length is checked before the memory is allocated.
	if n > elastic.MaxRequest {
		return nil, fmt.Errorf("request of %d bytes, at most %d", n, elastic.MaxRequest)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// pieceWriter sends the bytes that are written to it in pieces, each as soon as its window has room
// for it. One goroutine writes; another calls readAcks.
type pieceWriter struct {
	ctx    context.Context // ends when the requester has ended the stream
	s      Stream
	window *congestionWindow
	frame  []byte
}

// send calls the function answer, which writes the bytes of the answer, and then ends the answer.
// The requester has progressTime to read the rest of the answer.
func (p *pieceWriter) send(answer func(*bufio.Writer) error) error {
	b := bufio.NewWriterSize(p, pieceSize)
	if err := errors.Join(answer(b), b.Flush()); err != nil {
		return err
	}
	// An empty piece marks the complete answer. A stream that ends without it was broken off.
	if err := p.piece(nil); err != nil {
		return err
	}
	if err := p.s.CloseWrite(); err != nil {
		return err
	}
	return p.s.SetReadDeadline(time.Now().Add(progressTime))
}

// Write implements io.Writer.
func (p *pieceWriter) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n := min(len(b)-done, pieceSize)
		if err := p.awaitRoom(n); err != nil {
			return done, err
		}
		if err := p.piece(b[done : done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// awaitRoom waits until the window has room for a piece of n bytes.
func (p *pieceWriter) awaitRoom(n int) error {
	timer := time.NewTimer(progressTime)
	defer timer.Stop()
	for !p.window.reserve(n, time.Now()) {
		select {
		case <-p.window.room:
			// Room appears when the requester acknowledges a piece: it still reads the answer.
			timer.Reset(progressTime)
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-timer.C:
			return errStuck
		}
	}
	return nil
}

// piece writes one piece.
func (p *pieceWriter) piece(b []byte) error {
	// An Observer may fail the write of a piece.
	if watch, ok := p.s.(Observer); ok && len(b) > 0 {
		if _, err := watch.Sending(Outgoing{Bytes: len(b)}); err != nil {
			return err
		}
	}
	if err := p.s.SetWriteDeadline(time.Now().Add(progressTime)); err != nil {
		return err
	}
	p.frame = append(binary.LittleEndian.AppendUint32(p.frame[:0], uint32(len(b))), b...)
	_, err := p.s.Write(p.frame)
	return err
}

// readAcks handles acknowledgements until the other side closes or resets the stream, or sends
// something else: a byte other than ackByte, or an acknowledgement of a piece that was not sent.
func (p *pieceWriter) readAcks() {
	var b [256]byte
	for {
		n, err := p.s.Read(b[:])
		// The acknowledgements of one read get the same time, because they came together.
		now := time.Now()
		for _, ack := range b[:n] {
			if ack != ackByte || !p.window.acknowledge(now) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
