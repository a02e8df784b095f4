package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/net/netutil"

	"github.com/elrun/elrun/event/timeline"
)

// Server serves the metrics of a job over HTTP until Close.
type Server struct {
	http  http.Server
	addr  net.Addr
	ended chan struct{}
}

const (
	// patience bounds the request of a client, and the answer to it.
	patience = 10 * time.Second
	// closePatience is how long Close waits for answers that are under way.
	closePatience = time.Second
	// maxHeader bounds the header of a request in bytes.
	maxHeader = 16 << 10
	// maxConns bounds the connections, and maxAtOnce the requests that are answered at the same time.
	maxConns  = 64
	maxAtOnce = 4
)

// Serve serves the metrics at the path /metrics of an address, HOST:PORT. snapshot returns the present state of
// the model, or false if there is none any more; it is called for each request, from any goroutine.
func Serve(address string, snapshot func() (timeline.Snapshot, bool)) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("launch: serve metrics: %w: choose another port, as each elrun of a host needs its own", err)
	case err != nil:
		return nil, fmt.Errorf("launch: serve metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), NewCollector(snapshot))
	s := &Server{addr: listener.Addr(), ended: make(chan struct{})}
	mux := http.NewServeMux()
	slots := make(chan struct{}, maxAtOnce)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			answer(w, r, registry)
		default:
			http.Error(w, "too many requests at the same time", http.StatusServiceUnavailable)
		}
	})
	s.http = http.Server{Handler: mux, ReadTimeout: patience, WriteTimeout: patience, MaxHeaderBytes: maxHeader}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(netutil.LimitListener(listener, maxConns)) // it ends with Close
	}()
	return s, nil
}

// answer writes all metrics in the format that the client asks for.
func answer(w http.ResponseWriter, r *http.Request, from prometheus.Gatherer) {
	families, err := from.Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	format := expfmt.NegotiateIncludingOpenMetrics(r.Header)
	w.Header().Set("Content-Type", string(format))
	e := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if e.Encode(f) != nil {
			return // the client has gone
		}
	}
	if c, ok := e.(expfmt.Closer); ok {
		_ = c.Close() // likewise
	}
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() string { return s.addr.String() }

// Close ends the server. A nil Server has ended.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.ended
	return err
}
