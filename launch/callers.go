package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/elrun/elrun/launch/internal/rpc"
)

// callers makes the calls of a node: it keeps one connection to each service that is called.
type callers struct {
	program string // digest
	dial    func(ctx context.Context, service string) (net.Conn, error)

	mu     sync.Mutex
	links  map[string]*serviceConn
	closed bool
}

// serviceConn is the connection to a service.
type serviceConn struct {
	dialing chan struct{} // holds a token while somebody connects

	mu   sync.Mutex
	conn *rpc.Conn // nil if there is none
}

// newCallers returns callers that reach services by dial, which waits for one that is down.
func newCallers(program string, dial func(ctx context.Context, service string) (net.Conn, error)) *callers {
	return &callers{program: program, dial: dial, links: make(map[string]*serviceConn)}
}

// greeting is what both ends of a connection to a service have to agree in.
func greeting(program, service string) string { return program + "/" + service }

// call calls a method of a service.
func (c *callers) call(ctx context.Context, service string, method int, request []byte) ([]byte, error) {
	conn, err := c.conn(ctx, service)
	if err != nil {
		return nil, err
	}
	answer, err := conn.Call(ctx, method, request)
	var failure *rpc.Failure
	switch {
	case errors.As(err, &failure):
		return nil, fmt.Errorf("%w: %s", ErrHandler, failure.Text)
	case errors.Is(err, rpc.ErrLost):
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return answer, err
}

// conn returns a connection to a service, which several calls share.
func (c *callers) conn(ctx context.Context, service string) (*rpc.Conn, error) {
	l, err := c.link(service)
	if err != nil {
		return nil, err
	}
	if conn := l.open(); conn != nil {
		return conn, nil
	}
	select {
	case l.dialing <- struct{}{}:
		defer func() { <-l.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
	}
	if conn := l.open(); conn != nil {
		return conn, nil
	}
	for pause := firstRedial; ; pause = min(2*pause, longRedial) {
		conn, err := c.connect(ctx, service)
		switch {
		case err == nil:
			return conn, c.use(l, conn)
		case ctx.Err() != nil, errors.Is(err, rpc.ErrRefused), errors.Is(err, errGone):
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w (%w)", ErrUnreachable, context.Cause(ctx), err)
		}
	}
}

const (
	// The pause before a service is dialled again that has not answered, doubled each time.
	firstRedial = 5 * time.Millisecond
	longRedial  = 250 * time.Millisecond
)

// errGone: a service will not come back.
var errGone = errors.New("it has ended")

// connect makes a connection to a service.
func (c *callers) connect(ctx context.Context, service string) (*rpc.Conn, error) {
	stream, err := c.dial(ctx, service)
	if err != nil {
		return nil, err
	}
	return rpc.Dial(ctx, stream, greeting(c.program, service))
}

// link returns the link to a service.
func (c *callers) link(service string) (*serviceConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%w: the node has ended", ErrUnreachable)
	}
	if c.links[service] == nil {
		c.links[service] = &serviceConn{dialing: make(chan struct{}, 1)}
	}
	return c.links[service], nil
}

// open returns the connection if it has not ended.
func (l *serviceConn) open() *rpc.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		select {
		case <-l.conn.Ended():
			l.conn.Close()
			l.conn = nil
		default:
		}
	}
	return l.conn
}

// use makes a new connection that of the link.
func (c *callers) use(l *serviceConn, conn *rpc.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return fmt.Errorf("%w: the node has ended", ErrUnreachable)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return nil
}

// close ends all connections and the calls on them.
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
