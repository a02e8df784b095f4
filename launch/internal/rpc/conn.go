package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrLost reports that the stream ended before the answer. The call may have been carried out.
	ErrLost = errors.New("the connection ended during the call")
	// ErrRefused reports that the server serves another program.
	ErrRefused = errors.New("refused")
)

// Failure is the error of a method, as its caller receives it.
type Failure struct{ Text string }

// Error returns the text of the method's error.
func (f *Failure) Error() string { return f.Text }

const (
	// readBuffer is the size of a stream's read buffer, in bytes.
	readBuffer = 64 << 10
	// helloPeriod is the time limit for the hello of the other side.
	helloPeriod = 10 * time.Second
)

// Conn is the caller's end of a stream. It is safe for concurrent use. Two goroutines use the
// stream:
//
//	write  sends the frames of calls, one after the other
//	read   passes each answer to the call that waits for it
//
// Both end with the stream.
type Conn struct {
	stream net.Conn
	out    chan []byte
	ended  chan struct{} // closed when the stream has ended
	once   sync.Once
	work   sync.WaitGroup
	last   atomic.Uint64 // ID of the latest call

	// mu guards the fields below.
	mu      sync.Mutex
	waiting map[uint64]chan frame // calls without an answer, by ID; nil after the end
}

// Dial exchanges hellos with the server of a program on a stream, which the Conn then owns.
func Dial(ctx context.Context, stream net.Conn, program string) (*Conn, error) {
	in := bufio.NewReaderSize(stream, readBuffer)
	_ = stream.SetDeadline(time.Now().Add(helloPeriod))
	// A deadline in the past interrupts the reads and writes of greet.
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Now()) })
	err := greet(stream, in, program)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = stream.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	c := &Conn{stream: stream, out: make(chan []byte), ended: make(chan struct{}), waiting: make(map[uint64]chan frame)}
	c.work.Go(c.write)
	c.work.Go(func() { c.read(in) })
	return c, nil
}

// greet exchanges hellos with the server.
func greet(stream net.Conn, in *bufio.Reader, program string) error {
	hello, err := frame{kind: kindHello, payload: []byte(program)}.encode()
	if err != nil {
		return err
	}
	if _, err := stream.Write(hello); err != nil {
		return err
	}
	f, err := readFrame(in)
	switch {
	case err != nil:
		return unexpected(err)
	case f.kind == kindFailure:
		return fmt.Errorf("%w: %s", ErrRefused, f.payload)
	case f.kind != kindHello:
		return fmt.Errorf("%w: kind %d in place of hello", errFrame, f.kind)
	}
	return nil
}

// write sends frames until the stream ends.
func (c *Conn) write() {
	for {
		select {
		case b := <-c.out:
			if _, err := c.stream.Write(b); err != nil {
				c.end()
				return
			}
		case <-c.ended:
			return
		}
	}
}

// read receives answers until the stream ends. Any other frame ends the stream.
func (c *Conn) read(in *bufio.Reader) {
	defer c.end()
	for {
		f, err := readFrame(in)
		if err != nil || f.kind != kindAnswer && f.kind != kindFailure {
			return
		}
		c.mu.Lock()
		answer := c.waiting[f.id]
		delete(c.waiting, f.id)
		c.mu.Unlock()
		if answer != nil {
			answer <- f
		}
	}
}

// end closes the stream, which ends all calls with ErrLost.
func (c *Conn) end() {
	c.once.Do(func() {
		_ = c.stream.Close()
		close(c.ended)
		c.mu.Lock()
		c.waiting = nil
		c.mu.Unlock()
	})
}

// Call calls a method and returns its result. The error is a *Failure if the method returned an
// error, ErrLost, or the cause of ctx's end; the end of ctx also cancels the context of the
// method.
func (c *Conn) Call(ctx context.Context, method int, request []byte) ([]byte, error) {
	f := frame{kind: kindCall, method: uint16(method), id: c.last.Add(1), payload: request}
	if deadline, ok := ctx.Deadline(); ok {
		f.timeout = uint64(max(1, time.Until(deadline)))
	}
	b, err := f.encode()
	if err != nil {
		return nil, err
	}
	// Register the call before it is sent, so that the answer finds it.
	answer := make(chan frame, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return nil, ErrLost
	}
	c.waiting[f.id] = answer
	c.mu.Unlock()
	defer c.forget(f.id)
	// The writer may be blocked by a slow server.
	select {
	case c.out <- b:
	case <-c.ended:
		return nil, ErrLost
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case got := <-answer:
		return result(got)
	case <-c.ended:
		return nil, ErrLost
	case <-ctx.Done():
		// The server stops the method; a late answer is ignored.
		c.cancel(f.id)
		return nil, context.Cause(ctx)
	}
}

// result returns the result of an answer frame, or the error of a failure frame.
func result(f frame) ([]byte, error) {
	if f.kind == kindFailure {
		return nil, &Failure{string(f.payload)}
	}
	return f.payload, nil
}

// forget drops the entry of a call whose answer is not needed any more.
func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// cancel tells the server that the caller has stopped waiting, if the stream accepts the frame
// within cancelPeriod. Otherwise the method ends at its deadline, if it has one.
func (c *Conn) cancel(id uint64) {
	b, err := frame{kind: kindCancel, id: id}.encode()
	if err != nil {
		return
	}
	late := time.NewTimer(cancelPeriod)
	defer late.Stop()
	select {
	case c.out <- b:
	case <-c.ended:
	case <-late.C:
	}
}

// cancelPeriod is how long a cancelled call waits to send its cancel frame.
const cancelPeriod = 10 * time.Millisecond

// Ended returns a channel that is closed when the stream has ended.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Close closes the stream, ends all calls and waits for the goroutines.
func (c *Conn) Close() {
	c.end()
	c.work.Wait()
}
