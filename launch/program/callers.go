package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/launch/internal/rpc"
)

// callers makes the calls of a node to services, over one connection for each service. A
// connection is made at the first call and again after it has ended. It is safe for concurrent
// use.
type callers struct {
	program string // digest of the program's graph
	// dial connects to a service of the program. It waits for a service that is down.
	dial func(ctx context.Context, service string) (net.Conn, error)

	// mu guards the fields below.
	mu     sync.Mutex
	links  map[string]*serviceConn // by name of the service; entries are never removed
	closed bool
}

// serviceConn is the connection to a service.
type serviceConn struct {
	dialing chan struct{} // a semaphore of capacity 1, held by the call that connects

	// mu guards the fields below.
	mu   sync.Mutex
	conn *rpc.Conn // nil without a connection
}

// newCallers returns callers that connect to services with the function dial, which waits for a
// service that is down.
func newCallers(program string, dial func(ctx context.Context, service string) (net.Conn, error)) *callers {
	return &callers{program: program, dial: dial, links: make(map[string]*serviceConn)}
}

// greeting returns the text that both ends of a connection to a service must agree on.
func greeting(program, service string) string { return program + "/" + service }

// call calls a method of a service and returns the answer.
func (c *callers) call(ctx context.Context, service string, method int, request []byte) ([]byte, error) {
	conn, err := c.conn(ctx, service)
	if err != nil {
		return nil, err
	}
	answer, err := conn.Call(ctx, method, request)
	var failure *rpc.Failure
	switch {
	// The handler has returned an error: the connection is sound and stays.
	case errors.As(err, &failure):
		return nil, fmt.Errorf("%w: %s", ErrHandler, failure.Text)
	// The call may or may not have run in the service, so it is not repeated here.
	case errors.Is(err, rpc.ErrLost):
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return answer, err
}

// conn returns the connection to a service, which concurrent calls share; it connects if there is
// none.
func (c *callers) conn(ctx context.Context, service string) (*rpc.Conn, error) {
	l, err := c.link(service)
	if err != nil {
		return nil, err
	}
	if conn := l.open(); conn != nil {
		return conn, nil
	}
	// Only one call connects; the others wait for it and then share the connection.
	select {
	case l.dialing <- struct{}{}:
		defer func() { <-l.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
	}
	if conn := l.open(); conn != nil {
		return conn, nil
	}
	// The service may be starting or restarting: retry until it answers, has ended for good, or
	// ctx ends.
	for again := (pause.Backoff{First: firstRedial, Last: longRedial}); ; {
		// ErrRefused, errGone and errNoService are final: another attempt would have the same
		// result.
		conn, err := c.connect(ctx, service)
		switch {
		case err == nil:
			return conn, c.store(l, conn)
		case ctx.Err() != nil, errors.Is(err, rpc.ErrRefused), errors.Is(err, errGone), errors.Is(err, errNoService):
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if ended := again.Wait(ctx); ended != nil {
			return nil, fmt.Errorf("%w: %w (%w)", ErrUnreachable, ended, err)
		}
	}
}

const (
	// The pause before another attempt to connect to a service that did not answer. It doubles from
	// firstRedial to longRedial (exponential backoff).
	firstRedial = 5 * time.Millisecond
	longRedial  = 250 * time.Millisecond
)

var (
	// errGone reports that a service has ended for good.
	errGone = errors.New("it has ended")
	// errNoService reports that a program never had a service.
	errNoService = errors.New("the program has no such service")
)

// connect opens a new connection to a service.
func (c *callers) connect(ctx context.Context, service string) (*rpc.Conn, error) {
	stream, err := c.dial(ctx, service)
	if err != nil {
		return nil, err
	}
	return rpc.Dial(ctx, stream, greeting(c.program, service))
}

// link returns the entry of a service, or an error after close.
func (c *callers) link(service string) (*serviceConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%w: this node has ended, so it makes no more calls", ErrUnreachable)
	}
	if c.links[service] == nil {
		c.links[service] = &serviceConn{dialing: make(chan struct{}, 1)}
	}
	return c.links[service], nil
}

// open returns the connection of the entry, or nil if there is none or it has ended. It closes an
// ended connection, so that the goroutines of the connection end.
func (s *serviceConn) open() *rpc.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		select {
		case <-s.conn.Ended():
			s.conn.Close()
			s.conn = nil
		default:
		}
	}
	return s.conn
}

// store stores a new connection in the entry. After close it closes conn and returns an error.
func (c *callers) store(l *serviceConn, conn *rpc.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return fmt.Errorf("%w: this node has ended, so it makes no more calls", ErrUnreachable)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return nil
}

// close closes all connections, which ends the calls on them.
func (c *callers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, l := range c.links {
		l.mu.Lock()
		if l.conn != nil {
			l.conn.Close()
		}
		l.mu.Unlock()
	}
}
