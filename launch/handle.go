package launch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/elrun/elrun/launch/internal/rpc"
)

var (
	// ErrHandler: the function of a service returned an error. Its text is in the error; what it
	// wraps does not cross.
	ErrHandler = errors.New("the handler failed")
	// ErrUnreachable: a call did not reach its service, or its answer was lost: the service has
	// ended for good, did not come back before the end of the context, or died during the call,
	// which may then have been carried out or not.
	ErrUnreachable = errors.New("the service cannot be reached")
)

// Handle calls a service of a program, from any node. It is a small value; copies are the same.
//
// Requests and results are copied in all launch types, by CBOR (RFC 8949): exported fields of
// structs travel, pointers become copies, and what has a binary form (encoding.BinaryMarshaler)
// uses it. Both are at most 64 MiB long.
type Handle[Req, Resp any] struct {
	p      *Program
	node   string
	name   string // with the method
	method int
	codec  rpc.Codec
}

// Serve declares a service and returns the handle to call it. f may be called by many goroutines
// at once; its context ends with the caller's deadline, when the caller waits no more, and when the
// service is told to stop. A panic in f ends the process of the service, as in any program.
//
// A name NODE/METHOD declares one of several methods of a service. They run in one process, and so
// share variables, which no other node may use. Options of all methods count.
func Serve[Req, Resp any](p *Program, name string, f func(ctx context.Context, r Req) (Resp, error), options ...NodeOption) Handle[Req, Resp] {
	h := Handle[Req, Resp]{p: p, name: name}
	h.node, _, _ = strings.Cut(name, "/")
	types := []reflect.Type{reflect.TypeFor[Req](), reflect.TypeFor[Resp]()}
	var err error
	h.codec, err = rpc.NewCodec()
	for _, t := range types {
		if err == nil {
			err = rpc.CheckType(t)
		}
	}
	if err != nil {
		p.wrong = append(p.wrong, fmt.Errorf("service %s: %w", name, err))
	}
	h.method = p.serve(name, fmt.Sprintf("(%v) %v", types[0], types[1]), method(h.codec, f), f == nil, options)
	return h
}

// serve adds a method to a service, which it declares if it is the first, and returns its number.
func (p *Program) serve(name, types string, m rpc.Method, empty bool, options []NodeOption) int {
	service, _, several := strings.Cut(name, "/")
	n := p.node(service)
	if n == nil || !several || n.info.Kind != kindService {
		n = &node{info: nodeInfo{Name: service, Kind: kindService}}
		p.nodes = append(p.nodes, n) // check reports a second node of the name
	}
	if empty {
		p.wrong = append(p.wrong, fmt.Errorf("service %s has no function", name))
	}
	n.apply(options)
	n.info.Methods = append(n.info.Methods, name+types)
	n.methods = append(n.methods, m)
	return len(n.methods) - 1
}

// method makes a function of values one of payloads.
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

// Call has the service carry out a request and returns its result. While the service starts, or is
// about to be started again, Call waits until ctx ends; when it has ended for good Call fails at
// once. A request is sent at most once: one whose service dies meanwhile is ErrUnreachable, and the
// caller knows whether it may be repeated. Errors are ErrHandler, ErrUnreachable, or the cause of
// ctx's end, which the service is told as well.
func (h Handle[Req, Resp]) Call(ctx context.Context, r Req) (Resp, error) {
	request, err := h.encode(r)
	if err != nil {
		var zero Resp
		return zero, err
	}
	return h.call(ctx, request)
}

// Go is Call in the background. The request has been encoded when Go returns, so the caller may
// change it.
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

// Future is the result of a call in the background.
type Future[Resp any] struct {
	done   chan struct{}
	result Resp
	err    error
}

// Done is closed when the call is over.
func (f *Future[Resp]) Done() <-chan struct{} { return f.done }

// Result waits until the call is over and returns what Call would have returned.
func (f *Future[Resp]) Result() (Resp, error) {
	<-f.done
	return f.result, f.err
}

// encode returns a request as a payload.
func (h Handle[Req, Resp]) encode(r Req) ([]byte, error) {
	if h.p == nil {
		return nil, errors.New("launch: call: the handle is of no service: make it by Serve")
	}
	b, err := h.codec.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("launch: call %s: encode the request: %w", h.name, err)
	}
	return b, nil
}

// call sends a payload and returns the result.
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
