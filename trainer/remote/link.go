package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
)

// kind says what a frame means.
type kind uint8

// Kinds of frames.
const (
	kindHello   kind = iota + 1 // program: JSON of hello
	kindWork                    // sidecar: a the step, payload the samples by microbatch
	kindDone                    // program: a the wait for samples not foreseen, in us, or -1 if out of memory; b the sum of the losses; payload their weight as float64, if any
	kindApply                   // sidecar: a the step, payload the JSON of optim.Commit
	kindApplied                 // program: payload the JSON of figures, or nothing
	kindSave                    // sidecar
	kindBlob                    // program: payload the state
	kindLoad                    // sidecar: payload the state
	kindLoaded                  // program
	kindPoint                   // sidecar: a the step, payload the JSON of pointNews
	kindPart                    // program: a the size of the set, payload what it has done, as pairs of int64; sidecar: what to do
	kindSum                     // program: numbers as float64; sidecar: their sums, a 1 if the part of a lost peer is missing
	kindGoOn                    // program: a has goOnStop to stop the training here, and goOnKeep to keep the parameters
	kindEnd                     // sidecar: JSON of end
	kindLeave                   // program
	kindFail                    // program: payload the text of its error
	kindAhead                   // sidecar: a a step, payload microbatches that follow
	kindBusy                    // program: payload what it is busy with, empty if with nothing any more
	lastKind    = kindBusy
)

// String returns the name of the kind, as documented.
func (k kind) String() string {
	names := []string{"HELLO", "WORK", "DONE", "APPLY", "APPLIED", "SAVE", "BLOB", "LOAD", "LOADED", "POINT", "PART", "SUM", "GOON", "END", "LEAVE", "FAIL", "AHEAD", "BUSY"}
	if k < 1 || k > lastKind {
		return fmt.Sprintf("frame %d", uint8(k))
	}
	return names[k-1]
}

// frame is a message between the sidecar and the program.
type frame struct {
	kind    kind
	a       int64
	b       float64
	payload []byte
}

// headBytes is the length of the head of a frame: kind, seven zero bytes, length of the payload, a, b;
// little-endian.
const headBytes = 32

// maxPayload bounds a payload in bytes; only a state may be longer than maxShort.
const (
	maxPayload = 1 << 40
	maxShort   = 64 << 20
)

// head returns the head of the frame.
func (f frame) head() []byte {
	b := make([]byte, headBytes)
	b[0] = byte(f.kind)
	binary.LittleEndian.PutUint64(b[8:], uint64(len(f.payload)))
	binary.LittleEndian.PutUint64(b[16:], uint64(f.a))
	binary.LittleEndian.PutUint64(b[24:], math.Float64bits(f.b))
	return b
}

// readFrame reads a frame. It allocates memory only for bytes that have arrived. At the end of r
// between two frames it returns io.EOF.
func readFrame(r io.Reader) (frame, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: kind(head[0]), a: int64(binary.LittleEndian.Uint64(head[16:])), b: math.Float64frombits(binary.LittleEndian.Uint64(head[24:]))}
	n, most := binary.LittleEndian.Uint64(head[8:]), uint64(maxShort)
	if f.kind == kindBlob || f.kind == kindLoad {
		most = maxPayload
	}
	if f.kind < 1 || f.kind > lastKind || !bytes.Equal(head[1:8], make([]byte, 7)) {
		return frame{}, fmt.Errorf("%w: it begins with % x", errNoFrame, head[:8])
	}
	if n > most {
		return frame{}, fmt.Errorf("%w: %v has %d bytes, at most %d", errNoFrame, f.kind, n, most)
	}
	var payload bytes.Buffer
	if _, err := io.CopyN(&payload, r, int64(n)); err != nil {
		return frame{}, fmt.Errorf("%v ends after %d of %d bytes: %w", f.kind, payload.Len(), n, io.ErrUnexpectedEOF)
	}
	f.payload = payload.Bytes()
	return f, nil
}

// errNoFrame reports bytes that are no frame: the other side is no program of this version.
var errNoFrame = errors.New("no frame")

// ErrGone reports that the program has closed its connection, or has ended.
var ErrGone = errors.New("the program has ended")

// link is the connection with the program. One goroutine reads; the methods send and receive are
// called by the goroutine that trains.
type link struct {
	conn   io.ReadWriter
	frames chan frame
	// leave is called for LEAVE, fail with the reason when the program has failed or is gone, busy with the
	// text of BUSY, and waits around each wait for the program.
	leave func()
	fail  func(error)
	busy  func(what string)
	waits func() (done func())

	sending sync.Mutex
}

// failure is an error of the program.
type failure string

// Error returns the text of the program.
func (f failure) Error() string { return string(f) }

// read passes on the frames of the program until ctx ends or the program is gone.
func (l *link) read(ctx context.Context) {
	for {
		f, err := readFrame(l.conn)
		switch {
		case err != nil && ctx.Err() == nil:
			if !errors.Is(err, errNoFrame) { // a program may die in the middle of a frame
				err = fmt.Errorf("%w (%w)", ErrGone, err)
			}
			l.fail(fmt.Errorf("connection with the program: %w", err))
			return
		case err != nil:
			return
		case f.kind == kindLeave:
			l.leave()
			continue
		case f.kind == kindFail:
			l.fail(failure(f.payload))
			continue
		case f.kind == kindBusy:
			l.busy(string(f.payload))
			continue
		}
		select {
		case l.frames <- f:
		case <-ctx.Done():
			return
		}
	}
}

// send sends a frame.
func (l *link) send(f frame) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	_, err := l.conn.Write(f.head())
	if err == nil && len(f.payload) > 0 {
		_, err = l.conn.Write(f.payload)
	}
	if err != nil {
		return fmt.Errorf("send %v to the program: %w", f.kind, err)
	}
	return nil
}

// receive returns the next frame, which must have one of the kinds. doing says for an error what the
// sidecar waits for.
func (l *link) receive(ctx context.Context, doing string, kinds ...kind) (frame, error) {
	defer l.waits()()
	select {
	case f := <-l.frames:
		if !slices.Contains(kinds, f.kind) {
			return f, fmt.Errorf("the program sent %v during %s, want %v: its version of elrun differs, or it uses the connection from two threads", f.kind, doing, kinds)
		}
		return f, nil
	case <-ctx.Done():
		return frame{}, context.Cause(ctx)
	}
}

// ask sends a frame and returns the answer, which must have one of the kinds.
func (l *link) ask(ctx context.Context, f frame, kinds ...kind) (frame, error) {
	if err := l.send(f); err != nil {
		return frame{}, err
	}
	return l.receive(ctx, f.kind.String(), kinds...)
}
