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
	// progressTime is how long one who asked may read nothing.
	progressTime = 30 * time.Second
	// maxAnswers is how many requests are answered at a time, and maxAnswersTo how many
	// of them to one peer. More wait for queueTime, and then are refused: one who has
	// just broken off an answer can ask again before that is known here.
	maxAnswers   = 64
	maxAnswersTo = 8
	queueTime    = time.Second
)

// errStuck: who asked does not read.
var errStuck = errors.New("the answer is not being read")

// answerer is what Serve is given.
type answerer func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error

// desk is where requests come in.
type desk struct {
	mu     sync.Mutex
	answer answerer
	all    int
	from   map[elastic.ID]int
	left   chan struct{} // closed, and made anew, when a request has been dealt with
}

// newDesk returns a desk that refuses all requests until Serve was called.
func newDesk() *desk { return &desk{from: make(map[elastic.ID]int), left: make(chan struct{})} }

// Serve implements elastic.Network. What answer writes is sent in pieces of 64 KiB.
func (m *Mesh) Serve(answer func(ctx context.Context, from elastic.ID, request []byte, w io.Writer) error) {
	m.desk.mu.Lock()
	defer m.desk.mu.Unlock()
	m.desk.answer = answer
}

// enter returns what answers one more request of a peer, or nil if there are too many for
// too long, or the host closes.
func (d *desk) enter(from elastic.ID, closed <-chan struct{}) answerer {
	timer := time.NewTimer(queueTime)
	defer timer.Stop()
	for {
		answer, left := d.tryEnter(from)
		if left == nil {
			return answer
		}
		select {
		case <-left:
		case <-closed:
			return nil
		case <-timer.C:
			return nil
		}
	}
}

// tryEnter is enter without waiting: it returns a channel if it is worth to try again
// when that is closed.
func (d *desk) tryEnter(from elastic.ID) (answerer, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.answer == nil:
		return nil, nil
	case d.all >= maxAnswers || d.from[from] >= maxAnswersTo:
		return nil, d.left
	}
	d.all++
	d.from[from]++
	return d.answer, nil
}

// leave undoes enter.
func (d *desk) leave(from elastic.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all--
	if d.from[from]--; d.from[from] == 0 {
		delete(d.from, from)
	}
	close(d.left)
	d.left = make(chan struct{})
}

// acceptBulk handles the stream of one request.
func (m *Mesh) acceptBulk(s Stream) {
	from := s.Peer()
	answer := m.desk.enter(from, m.done)
	if answer == nil {
		refuseBulk(s)
		return
	}
	defer m.desk.leave(from)
	defer func() { _ = s.Reset() }() // a stream that ended in good order does not mind
	if s.SetReadDeadline(time.Now().Add(helloTime)) != nil {
		return
	}
	request, err := readRequest(s)
	if err != nil || s.SetReadDeadline(time.Time{}) != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &pieceWriter{ctx: ctx, s: s, pace: newPacer()}
	var acks sync.WaitGroup
	acks.Go(func() {
		defer cancel() // also when the host closes, with its streams
		w.readAcks()
	})
	if err := w.send(func(b io.Writer) error { return answer(ctx, from, request, b) }); err != nil {
		_ = s.Reset()
	}
	acks.Wait() // for the other side to close
}

// refuseBulk says that a request is refused, and ends the stream behind that when the other
// side has.
func refuseBulk(s Stream) {
	defer func() { _ = s.Reset() }()
	if setDeadline(s, time.Now().Add(refuseTime)) != nil {
		return
	}
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
	if n > elastic.MaxRequest {
		return nil, fmt.Errorf("request of %d bytes, at most %d", n, elastic.MaxRequest)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// pieceWriter sends what is written to it in pieces, when its pacer says so.
type pieceWriter struct {
	ctx   context.Context // ends when the other side has gone
	s     Stream
	pace  *pacer
	frame []byte
}

// send lets answer write, and ends the answer. The other side has progressTime to read
// the rest of it.
func (w *pieceWriter) send(answer func(io.Writer) error) error {
	b := bufio.NewWriterSize(w, pieceSize)
	if err := errors.Join(answer(b), b.Flush()); err != nil {
		return err
	}
	if err := w.piece(nil); err != nil {
		return err
	}
	if err := w.s.CloseWrite(); err != nil {
		return err
	}
	return w.s.SetReadDeadline(time.Now().Add(progressTime))
}

// Write implements io.Writer.
func (w *pieceWriter) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n := min(len(b)-done, pieceSize)
		if err := w.await(n); err != nil {
			return done, err
		}
		if err := w.piece(b[done : done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// await waits until the pacer lets a piece of n bytes go.
func (w *pieceWriter) await(n int) error {
	timer := time.NewTimer(progressTime)
	defer timer.Stop()
	for !w.pace.take(n, time.Now()) {
		select {
		case <-w.pace.room:
			timer.Reset(progressTime)
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		case <-timer.C:
			return errStuck
		}
	}
	return nil
}

// piece writes one piece.
func (w *pieceWriter) piece(b []byte) error {
	if watch, ok := w.s.(Observer); ok && len(b) > 0 {
		if _, err := watch.Sending(Outgoing{Bytes: len(b)}); err != nil {
			return err
		}
	}
	if err := w.s.SetWriteDeadline(time.Now().Add(progressTime)); err != nil {
		return err
	}
	w.frame = append(binary.LittleEndian.AppendUint32(w.frame[:0], uint32(len(b))), b...)
	_, err := w.s.Write(w.frame)
	return err
}

// readAcks takes in the acknowledgements until the other side closes the stream, breaks
// it off, or sends what is none.
func (w *pieceWriter) readAcks() {
	var b [256]byte
	for {
		n, err := w.s.Read(b[:])
		now := time.Now()
		for _, ack := range b[:n] {
			if ack != ackByte || !w.pace.acknowledge(now) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
