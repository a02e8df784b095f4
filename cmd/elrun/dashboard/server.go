package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// Job is what a page shows and acts on.
type Job interface {
	// Watch is that of a launch.Job.
	Watch(ctx context.Context) iter.Seq2[timeline.Snapshot, error]
	// Outcome returns a line about the end of the job, after its end.
	Outcome(ctx context.Context) string
	// Find returns the job while it runs.
	Find(ctx context.Context) (Actor, error)
}

// Actor is a launch.Job, on which the page acts.
type Actor interface {
	Scale(ctx context.Context, n, launcher int) (string, error)
	Kick(ctx context.Context, peer string) (string, error)
	Ticket(ctx context.Context, valid time.Duration) (launch.Ticket, error)
	Checkpoint(ctx context.Context, wait bool) (wish.Saved, error)
	Stop(ctx context.Context) (launch.Stopped, error)
}

const (
	// patience bounds the header of a request, and the answer to one that is no stream.
	patience = 10 * time.Second
	// maxHeader and maxBody bound a request in bytes.
	maxHeader, maxBody = 16 << 10, 4 << 10
	// maxRequests bounds the requests that are answered at the same time, besides streams.
	maxRequests = 16
	// closePatience is how long Serve waits for answers at its end, once the pages know it.
	closePatience = time.Second
)

//go:embed page compare
var files embed.FS

// Server serves the page of one job.
type Server struct {
	job      Job
	listener net.Listener
	token    string
	host     string // that was given; "" for all interfaces, and for a Unix socket
	open     bool   // it listens on all interfaces
	hub      *hub
	slots    chan struct{}
}

// New returns a server of a job, which listens already: on network "tcp" at HOST:PORT, or on network "unix" at the path of a socket that
// only this user can open. A HOST that is not of the loopback interface lets others of the network reach the page, which is not
// encrypted.
func New(job Job, network, address string) (*Server, error) {
	s := &Server{job: job, token: rand.Text(), hub: &hub{job: job}, slots: make(chan struct{}, maxRequests)}
	var err error
	if network == "unix" {
		s.listener, err = listenUnix(address)
	} else {
		s.listener, err = net.Listen(network, address)
	}
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	host, _, _ := net.SplitHostPort(address) // a path has none, and for "tcp" Listen has parsed it
	s.host = strings.ToLower(strings.Trim(host, "[]"))
	ip := net.ParseIP(s.host)
	s.open = network == "tcp" && (s.host == "" || ip != nil && ip.IsUnspecified())
	return s, nil
}

// listenUnix listens on a Unix socket that only this user can open. The folder of the socket must exist. A socket that nobody
// listens on, as one of a killed process, is replaced.
func listenUnix(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("listen on %s: another process does: choose another path", path)
	}
	if at, err := os.Lstat(path); err == nil && at.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("listen on %s: a file is there: choose another path", path)
	}
	// Between Listen and Chmod others could connect, so the socket begins in a folder of this user.
	private, err := os.MkdirTemp(filepath.Dir(path), ".elrun-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	hidden := filepath.Join(private, "s")
	l, err := net.Listen("unix", hidden)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(hidden, 0o600); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return &unixListener{l, path}, nil
}

// unixListener removes the path of its socket when it is closed.
type unixListener struct {
	net.Listener
	path string
}

// Close implements net.Listener.
func (u *unixListener) Close() error {
	_ = os.Remove(u.path)
	return u.Listener.Close()
}

// Link returns the link to the page, with the token. For a Unix socket it is that of a browser's host, where ssh -L 8080:PATH
// listens.
func (s *Server) Link() string {
	at := s.listener.Addr().String()
	switch host, port, _ := net.SplitHostPort(at); {
	case s.listener.Addr().Network() == "unix":
		at = "localhost:8080"
	case s.open:
		at = net.JoinHostPort("localhost", port)
	case net.ParseIP(s.host) == nil: // a name
		at = net.JoinHostPort(s.host, port)
	default:
		at = net.JoinHostPort(host, port)
	}
	return fmt.Sprintf("http://%s/login?t=%s", at, s.token)
}

// Serve serves the page until ctx ends. It tells open pages of its end.
func (s *Server) Serve(ctx context.Context) error {
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	life, end := context.WithCancel(context.Background())
	defer end()
	h := http.Server{Handler: s.handler(), ReadHeaderTimeout: patience, MaxHeaderBytes: maxHeader, BaseContext: func(net.Listener) context.Context { return life }}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-stopping.Done()
		s.hub.finish("elrun, which served this page, has ended")
		s.hub.told()
		closing, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		if h.Shutdown(closing) != nil {
			end()
			_ = h.Close()
		}
	}()
	err := h.Serve(s.listener)
	stop()
	<-closed
	s.hub.close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("dashboard: %w", err)
}

// handler returns what answers requests.
func (s *Server) handler() http.Handler {
	page, _ := fs.Sub(files, "page") // the folder is there
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", s.login)
	mux.Handle("GET /", s.known(s.bounded(http.FileServerFS(page))))
	mux.Handle("GET /events", s.known(http.HandlerFunc(s.hub.events)))
	mux.Handle("POST /do/{action}", s.known(s.bounded(http.HandlerFunc(s.act))))
	return s.guarded(http.NewCrossOriginProtection().Handler(mux))
}

// guarded refuses requests that name another host, and sets the headers of all answers.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		if !s.names(r.Host) {
			http.Error(w, "another host is named: open the link that elrun has printed", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// names reports whether a request may name a host: the one that was given, or the loopback interface, at any port, as ssh -L has
// ports of its own. Where all interfaces are served, it may be any address, since only names can be made to point here by others.
func (s *Server) names(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && (ip.IsLoopback() || s.open) || name != "" && name == s.host
}

// cookie returns the name of the cookie: browsers share cookies among the ports of a host.
func (s *Server) cookie() string {
	sum := sha256.Sum256([]byte("elrun cookie\n" + s.token))
	return "elrun_" + hex.EncodeToString(sum[:4])
}

// matches compares a token in constant time.
func (s *Server) matches(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// login turns the token of the link into a cookie.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if !s.matches(r.URL.Query().Get("t")) {
		http.Error(w, "wrong token: open the link that elrun has printed", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	// A redirection after a link of another site would go without the cookie, so a page of this site goes on.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Refresh", "0; url=/")
	_, _ = fmt.Fprint(w, "<!doctype html><link rel=\"icon\" href=\"data:,\"><title>elrun</title><p><a href=\"/\">elrun</a>") // the client may be gone
}

// known lets only requests with the cookie pass.
func (s *Server) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie(s.cookie()); err != nil || !s.matches(c.Value) {
			http.Error(w, "open the link that elrun has printed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bounded bounds the requests at the same time, and their bodies.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at the same time", http.StatusServiceUnavailable)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now().Add(patience + actPatience)) // a server of tests may have none
		next.ServeHTTP(w, r)
	})
}
