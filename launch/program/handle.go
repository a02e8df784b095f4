package program

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/elrun/elrun/launch/internal/rpc"
	"github.com/elrun/elrun/launch/internal/wire"
)

var (
	// ErrHandler reports that the function of a service returned an error. The text of that error
	// is kept, but not the errors that it wraps.
	ErrHandler = errors.New("the handler failed")
	// ErrUnreachable reports that a call did not reach its service or that its answer was lost. The
	// service has ended for good, was not restarted before the end of the context, or died during
	// the call. In the last case it is unknown whether the call was carried out.
	ErrUnreachable = errors.New("the service cannot be reached")
)

// Handle calls a service of a program, see launch.Handle.
type Handle[Req, Resp any] struct {
	p      *Program
	node   string
	name   string // with the method, as in NODE/METHOD
	method int
	codec  rpc.Codec
}

// Serve is launch.Serve.
func Serve[Req, Resp any](p *Program, name string, f func(ctx context.Context, r Req) (Resp, error), options ...NodeOption) Handle[Req, Resp] {
	h := Handle[Req, Resp]{p: p, name: name}
	h.node, _, _ = strings.Cut(name, "/")
	// The types are checked at the declaration, so that a type that cannot be sent is found before
	// the program runs.
	types := []reflect.Type{reflect.TypeFor[Req](), reflect.TypeFor[Resp]()}
	var err error
	h.codec, err = rpc.NewCodec()
	for _, t := range types {
		if err == nil {
			err = rpc.CheckType(t)
		}
	}
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("service %s: %w", name, err))
	}
	h.method = p.serve(name, fmt.Sprintf("(%v) %v", types[0], types[1]), method(h.codec, f), f == nil, options)
	return h
}

// serve adds a method to a service and returns the number of the method. The first method declares
// the service.
func (p *Program) serve(name, types string, m rpc.Method, empty bool, options []NodeOption) int {
	service, _, several := strings.Cut(name, "/")
	// Only a name NODE/METHOD adds to an existing service. A second service of the same name
	// becomes a second node, which check reports.
	n := p.node(service)
	if n == nil || !several || n.info.Kind != wire.KindService {
		n = &node{info: wire.NodeInfo{Name: service, Kind: wire.KindService}}
		p.nodes = append(p.nodes, n) // check reports a second node with this name
	}
	if empty {
		p.errs = append(p.errs, fmt.Errorf("service %s has no function", name))
	}
	n.apply(options)
	n.info.Methods = append(n.info.Methods, name+types)
	n.methods = append(n.methods, m)
	return len(n.methods) - 1
}

// method turns a function of values into a function of payloads.
func method[Req, Resp any](codec rpc.Codec, f func(ctx context.Context, r Req) (Resp, error)) rpc.Method {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		var r Req
		if err := codec.Unmarshal(request, &r); err != nil {
			return nil, fmt.Errorf("decode the request: %w", err)
		}
		result, err := f(ctx, r)
		if err != nil {
			return nil, err
		}
		b, err := codec.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("encode the result: %w", err)
		}
		return b, nil
	}
}

// Call sends a request to the service and returns the result. While the service starts, or is
// about to be restarted, Call waits until ctx ends; if the service has ended for good, Call fails
// at once. A request is sent at most once. If the service dies during the call, the error is
// ErrUnreachable, and the caller decides whether the call can be repeated. Errors are ErrHandler,
// ErrUnreachable, or the cause of ctx's end; the end of ctx cancels the call in the service as
// well.
func (h Handle[Req, Resp]) Call(ctx context.Context, r Req) (Resp, error) {
	request, err := h.encode(r)
	if err != nil {
		var zero Resp
		return zero, err
	}
	return h.call(ctx, request)
}

// Go is Call in the background. It encodes the request before it returns, so that the caller may
// change the request afterwards.
func (h Handle[Req, Resp]) Go(ctx context.Context, r Req) *Future[Resp] {
	f := &Future[Resp]{done: make(chan struct{})}
	request, err := h.encode(r)
	if err != nil {
		f.err = err
		close(f.done)
		return f
	}
	go func() {
		defer close(f.done)
		f.result, f.err = h.call(ctx, request)
	}()
	return f
}

// Future is the result of a call in the background. It is safe for concurrent use.
type Future[Resp any] struct {
	done   chan struct{}
	result Resp
	err    error
}

// Done returns a channel that is closed when the call is over.
func (f *Future[Resp]) Done() <-chan struct{} { return f.done }

// Result waits until the call is over and returns the results of Call.
func (f *Future[Resp]) Result() (Resp, error) {
	<-f.done
	return f.result, f.err
}

// encode encodes a request as a payload.
func (h Handle[Req, Resp]) encode(r Req) ([]byte, error) {
	if h.p == nil {
		return nil, errors.New("launch: call: the handle belongs to no service: use a handle that Serve returned")
	}
	b, err := h.codec.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("launch: call %s: encode the request: %w", h.name, err)
	}
	return b, nil
}

// call sends a payload and decodes the answer.
func (h Handle[Req, Resp]) call(ctx context.Context, request []byte) (result Resp, err error) {
	calls, err := h.p.caller()
	var answer []byte
	if err == nil {
		answer, err = calls.call(ctx, h.node, h.method, request)
	}
	if err == nil {
		err = h.codec.Unmarshal(answer, &result)
	}
	if err != nil {
		return result, fmt.Errorf("launch: call %s: %w", h.name, err)
	}
	return result, nil
}
