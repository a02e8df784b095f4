package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// Reader reads lines of bounded length. It is not safe for concurrent use.
type Reader struct{ scan *bufio.Scanner }

// NewReader returns a Reader of lines of less than most bytes.
func NewReader(r io.Reader, most int) *Reader {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, most)
	scan.Split(wholeLine)
	return &Reader{scan}
}

// NewMessages returns a Reader of messages.
func NewMessages(r io.Reader) *Reader { return NewReader(r, maxMessage) }

// wholeLine is bufio.ScanLines, except that it drops an unfinished last line: its writer died in
// the middle of it.
func wholeLine(data []byte, _ bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// Line returns the next line, valid until the next call. The error is io.EOF after the other
// side's end.
func (r *Reader) Line() ([]byte, error) {
	if r.scan.Scan() {
		return r.scan.Bytes(), nil
	}
	err := r.scan.Err()
	if err == nil || isReset(err) {
		return nil, io.EOF
	}
	return nil, fmt.Errorf("launch: receive message: %w", err)
}

// isReset reports whether err means that the other end has gone or that this end was closed. The
// kernel reports a reset if the other end closed with unread data.
func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() || errors.Is(err, syscall.ECONNRESET)
}

// Next returns the next message. The error is io.EOF after the other side's end.
func (r *Reader) Next() (Message, error) {
	line, err := r.Line()
	if err != nil {
		return Message{}, err
	}
	return DecodeMessage(line)
}

// Encode encodes a message, a request or a reply as one line. A line of maxMessage bytes or more is an
// error.
func Encode(m any) ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("launch: encode message: %w", err)
	}
	if len(b) >= maxMessage {
		return nil, fmt.Errorf("launch: encode message: %d bytes, at most %d", len(b), maxMessage)
	}
	return append(b, '\n'), nil
}

// Writer writes messages. It is safe for concurrent use. After an error it writes nothing more.
type Writer struct {
	mu  sync.Mutex
	W   io.Writer
	err error
}

// Write writes a message. It blocks while the reader is slow.
func (w *Writer) Write(m Message) error {
	line, err := Encode(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_, w.err = w.W.Write(line)
	}
	return w.err
}

// Pipe exchanges messages between launcher and peer over a stream. One goroutine may send while another
// receives. It does not own the stream.
type Pipe struct {
	Conn net.Conn
	in   *Reader
}

// NewPipe returns a pipe on conn.
func NewPipe(conn net.Conn) *Pipe { return &Pipe{conn, NewMessages(&DrainReader{Stream: conn})} }

// Write writes a line. It blocks while the reader is slow or stopped, and fails when the reader
// has gone.
func (p *Pipe) Write(line []byte) error {
	if _, err := p.Conn.Write(line); err != nil {
		return fmt.Errorf("launch: send message: %w", err)
	}
	return nil
}

// Receive returns the next message. The error is io.EOF after the other side's end. A peer may not send
// what only agents send: the launcher would take it for its agent.
func (p *Pipe) Receive() (Message, error) {
	m, err := p.in.Next()
	if err == nil && (!m.OfPeer() || m.To != 0 || m.PID != 0) {
		return Message{}, errors.New("launch: receive message: it is for an agent, not for a peer")
	}
	return m, err
}
