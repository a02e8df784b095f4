package dashboard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serve serves a job until the end of the test.
func serve(t *testing.T, job Job) *Server {
	t.Helper()
	s, err := New(job, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// client returns a browser that has opened the link of a server.
func client(t *testing.T, s *Server) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	if status, _, _ := do(t, c, query{url: s.Link()}); status != http.StatusOK {
		t.Fatalf("login: status %d", status)
	}
	return c
}

// query is a request of a test.
type query struct {
	method, url, host, body string
	header                  map[string]string
}

// do makes a request, and returns status, headers and body.
func do(t *testing.T, c *http.Client, q query) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), q.method, q.url, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.host != "" {
		r.Host = q.host
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

// Only a browser that has opened the link gets anything, and only the page itself can act.
func TestAccess(t *testing.T) {
	job := newFakeJob()
	s := serve(t, job)
	in, other := client(t, s), client(t, serve(t, newFakeJob()))
	base := "http://" + s.listener.Addr().String()
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	cookie := map[string]string{"Cookie": s.cookie() + "=" + s.token} // browsers send it to all ports of a host
	site := map[string]string{"Sec-Fetch-Site": "same-origin"}
	for _, c := range []struct {
		name string
		by   *http.Client
		q    query
		want int
	}{
		{"page", in, query{url: base + "/"}, http.StatusOK},
		{"script", in, query{url: base + "/app.js"}, http.StatusOK},
		{"through ssh", in, query{url: base + "/", host: "localhost:8080", header: cookie}, http.StatusOK},
		{"over IPv6", in, query{url: base + "/", host: "[::1]:" + port, header: cookie}, http.StatusOK},
		{"no cookie", http.DefaultClient, query{url: base + "/"}, http.StatusUnauthorized},
		{"no cookie, stream", http.DefaultClient, query{url: base + "/events"}, http.StatusUnauthorized},
		{"no cookie, action", http.DefaultClient, query{method: "POST", url: base + "/do/stop", body: "{}"}, http.StatusUnauthorized},
		{"cookie of another job", other, query{url: base + "/"}, http.StatusUnauthorized},
		{"no token", http.DefaultClient, query{url: base + "/login"}, http.StatusForbidden},
		{"wrong token", http.DefaultClient, query{url: base + "/login?t=" + strings.Repeat("A", 26)}, http.StatusForbidden},
		{"name of another site", in, query{url: base + "/", host: "evil.example:" + port, header: cookie}, http.StatusMisdirectedRequest},
		{"name of another site, action", in, query{method: "POST", url: base + "/do/stop", host: "evil.example:" + port, body: "{}"}, http.StatusMisdirectedRequest},
		{"address that is not served", in, query{url: base + "/", host: "10.0.0.1"}, http.StatusMisdirectedRequest},
		{"form of another site", in, query{method: "POST", url: base + "/do/stop", body: "{}", header: map[string]string{"Origin": "http://evil.example"}}, http.StatusForbidden},
		{"form of another port", in, query{method: "POST", url: base + "/do/stop", body: "{}", header: map[string]string{"Sec-Fetch-Site": "same-site"}}, http.StatusForbidden},
		{"action by a link", in, query{url: base + "/do/stop"}, http.StatusNotFound},
		{"unknown action", in, query{method: "POST", url: base + "/do/format", body: "{}", header: site}, http.StatusConflict},
		{"no JSON", in, query{method: "POST", url: base + "/do/stop", body: "a=b", header: site}, http.StatusBadRequest},
		{"unknown field", in, query{method: "POST", url: base + "/do/scale", body: `{"peers":2,"all":true}`, header: site}, http.StatusBadRequest},
		{"long body", in, query{method: "POST", url: base + "/do/kick", body: `{"peer":"` + strings.Repeat("a", maxBody) + `"}`, header: site}, http.StatusBadRequest},
		{"too many peers", in, query{method: "POST", url: base + "/do/scale", body: `{"peers":10}`, header: site}, http.StatusConflict},
		{"no hours", in, query{method: "POST", url: base + "/do/ticket", body: `{}`, header: site}, http.StatusConflict},
		{"no peer", in, query{method: "POST", url: base + "/do/kick", body: `{}`, header: site}, http.StatusConflict},
	} {
		status, header, _ := do(t, c.by, c.q)
		if status != c.want {
			t.Errorf("%s: status %d, want %d", c.name, status, c.want)
		}
		if p := header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
			t.Errorf("%s: Content-Security-Policy %q", c.name, p)
		}
	}
	if len(job.acts) > 0 {
		t.Errorf("refused requests did %v", job.acts)
	}
	carriesOut(t, job, func(action, body string) (int, string) {
		status, _, text := do(t, in, query{method: "POST", url: base + "/do/" + action, body: body, header: site})
		return status, text
	})
}

// carriesOut checks that requests act on a job, also for a checkpoint that takes longer than an answer may.
func carriesOut(t *testing.T, job *fakeJob, request func(action, body string) (status int, text string)) {
	t.Helper()
	for action, body := range map[string]string{"scale": `{"peers":3,"launcher":7}`, "kick": `{"peer":"peer0001"}`, "ticket": `{"hours":2}`, "checkpoint": `{}`, "stop": `{}`} {
		if status, text := request(action, body); status != http.StatusOK || strings.Contains(text, "error") {
			t.Errorf("%s: status %d, %s", action, status, text)
		}
	}
	slices.Sort(job.acts)
	if want := []string{"checkpoint true", "kick peer0001", "scale 3 7", "stop", "ticket 2h0m0s"}; !slices.Equal(job.acts, want) {
		t.Errorf("did %v, want %v", job.acts, want)
	}
	for slow, want := range map[bool]string{false: "checkpoint of step 4 on lab1: /ck/step-4", true: "peer peer0000 on lab1 writes a checkpoint"} {
		job.slow = slow
		if status, text := request("checkpoint", "{}"); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("slow %v: status %d, %s, want %q", slow, status, text, want)
		}
	}
}

// A page on all interfaces answers to addresses and not to names, which others can make to point here.
func TestNames(t *testing.T) {
	for address, want := range map[string][]string{
		"127.0.0.1:0": {"127.0.0.1:1", "localhost", "[::1]:2"},
		"localhost:0": {"localhost:1", "127.0.0.1:1"},
		"0.0.0.0:0":   {"10.1.2.3:4", "[fe80::1]:4", "localhost:4"},
		":0":          {"10.1.2.3:4", "localhost:4"},
	} {
		s, err := New(newFakeJob(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range want {
			if !s.names(host) {
				t.Errorf("%s refuses %s", address, host)
			}
		}
		for _, host := range []string{"", "evil.example", "evil.example:1", "localhost.evil.example:1", "127.0.0.1.evil.example"} {
			if s.names(host) {
				t.Errorf("%s answers to %q", address, host)
			}
		}
		_ = s.listener.Close()
	}
}

// Streams above the limit are told to come again, and get a place when another page is closed.
func TestManyStreams(t *testing.T) {
	job := newFakeJob()
	s := serve(t, job)
	c := client(t, s)
	url := "http://" + s.listener.Addr().String() + "/events"
	open := func() (*http.Response, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return res, func() {
			cancel()
			_ = res.Body.Close()
		}
	}
	var last func()
	for i := range maxStreams {
		res, end := open()
		defer end()
		if last = end; res.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: status %d", i, res.StatusCode)
		}
	}
	for range 1000 - maxStreams {
		if res, end := open(); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Fatalf("one too many: status %d, %v", res.StatusCode, res.Header)
		} else {
			end()
		}
	}
	last()
	for {
		res, end := open()
		defer end()
		if res.StatusCode == http.StatusOK {
			break
		}
	}
	job.seen <- result{s: newTraining(2, "a").add(3)}
}

// pipes is a listener of connections in memory.
type pipes struct {
	made  chan net.Conn
	ended chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.made:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { close(p.ended); return nil }

func (pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// dial connects to the listener.
func (p pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.made <- there
	return here
}

// readUntil reads lines until one has a text.
func readUntil(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("before %q: %v", text, err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// A reader that stops is dropped, and gets a whole snapshot when it returns. Other readers do not wait for it. A reader that is only
// slow hears of the end.
func TestReaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob()
		l := pipes{make(chan net.Conn), make(chan struct{})}
		s := &Server{job: job, listener: l, token: "secret", hub: &hub{job: job}, slots: make(chan struct{}, maxRequests)}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx) }()
		connect := func() (net.Conn, *bufio.Reader) {
			c := l.dial()
			if _, err := io.WriteString(c, "GET /events HTTP/1.1\r\nHost: localhost\r\nCookie: "+s.cookie()+"=secret\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			return c, bufio.NewReaderSize(c, 16)
		}
		until := func(r *bufio.Reader, text string) { t.Helper(); readUntil(t, r, text) }
		slow, slowLines := connect()
		defer slow.Close()
		until(slowLines, "text/event-stream")
		_, fast := connect()
		until(fast, "text/event-stream")
		synctest.Wait()
		work := newTraining(2, "a")
		begun := time.Now()
		for i, want := range []string{"event: snapshot", "event: delta", "event: delta"} {
			job.seen <- result{s: work.add(1)}
			until(fast, want)
			if i == 0 {
				synctest.Wait()
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("the other reader waited %v", took)
		}
		<-time.After(writePatience + time.Second)
		synctest.Wait()
		if n := len(s.hub.readers); n != 1 {
			t.Errorf("%d readers after the slow one was dropped", n)
		}
		again, lines := connect()
		defer again.Close()
		until(lines, "event: snapshot")
		stop()
		<-time.After(closePatience + time.Second)
		until(lines, "event: end")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The socket is the user's own, replaces one that a killed process has left, and is gone after the end.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	s, err := New(newFakeJob(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := os.Stat(path); err != nil || at.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", at, err)
	}
	if _, err := New(newFakeJob(), "unix", path); err == nil || !strings.Contains(err.Error(), "choose another path") {
		t.Errorf("a second server: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	if status, _, _ := do(t, c, query{url: s.Link()}); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	c.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if all, _ := os.ReadDir(filepath.Dir(path)); len(all) > 0 {
		t.Errorf("left behind: %v", all)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(newFakeJob(), "unix", path); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("over a file: %v", err)
	}
}
