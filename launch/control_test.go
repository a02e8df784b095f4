package launch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// testJob is a job name of this test process alone.
func testJob(t *testing.T) string {
	t.Helper()
	return jobName(strings.ReplaceAll(t.Name(), "/", "-"), strconv.Itoa(os.Getpid())+"t")
}

func serve(t *testing.T, job string, index int, status func() Status) *control {
	t.Helper()
	c, err := serveControl(socketName{job, index, os.Getpid()}, status, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestControlStatus(t *testing.T) {
	job := testJob(t)
	var peers []*control
	for i := range 2 {
		r := newReducer(job, memberAt(i))
		r.apply(viewOf(1, peerID(0).Short(), peerID(1).Short()))
		var mu sync.Mutex
		peers = append(peers, serve(t, job, i, func() Status {
			mu.Lock()
			defer mu.Unlock()
			return r.report()
		}))
	}
	s, err := QueryStatus(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if s.Job != job || len(s.Members) != 2 || s.Members[0].State != stateRunning || s.Members[1].State != stateRunning {
		t.Errorf("got %+v", s)
	}
	if err := peers[1].Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = QueryStatus(t.Context(), job); err != nil || s.Members[1].State != stateUnknown {
		t.Errorf("with one peer gone: %+v, %v", s, err)
	}
	if err := peers[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := QueryStatus(t.Context(), job); !errors.Is(err, ErrNoJob) {
		t.Errorf("with all gone: %v, want ErrNoJob", err)
	}
}

func TestJobsOfSeveral(t *testing.T) {
	for _, suffix := range []string{"b", "a"} {
		job := testJob(t) + suffix
		serve(t, job, 0, func() Status { return newReducer(job, memberAt(0)).report() })
	}
	all, err := Jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		if strings.HasPrefix(s.Job, testJob(t)) {
			names = append(names, s.Job[len(s.Job)-1:])
		}
	}
	if strings.Join(names, "") != "ab" {
		t.Errorf("jobs %v", names)
	}
	if _, err := QueryStatus(t.Context(), ""); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "name one of") {
		t.Errorf("without a name among several: %v", err)
	}
}

// Whoever connects and says nothing, or garbage, disturbs nobody, and Close does not
// wait for it.
func TestControlGarbage(t *testing.T) {
	job := testJob(t)
	c := serve(t, job, 0, func() Status { return Status{Job: job} })
	at := socketName{job, 0, os.Getpid()}
	silent, err := dialControl(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for text, want := range map[string]string{
		"garbage\n":                       "decode request",
		"{\"request\":\"dance\"}\n":       "unknown request",
		strings.Repeat("x", 2*maxRequest): "",
	} {
		conn, err := dialControl(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text)) // may fail: the peer hangs up in the middle
		b, _ := io.ReadAll(conn)
		if want != "" && !strings.Contains(string(b), want) {
			t.Errorf("%.20q: got %q, want %q in it", text, b, want)
		}
		_ = conn.Close()
	}
	if _, err := ask(t.Context(), at, "status"); err != nil {
		t.Errorf("after garbage: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestAskCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, socketName{testJob(t), 0, os.Getpid()}, "status"); err == nil {
		t.Error("no error from a cancelled context")
	}
}

func TestSocketName(t *testing.T) {
	want := socketName{"my.job-1", 12, 345}
	if got, err := parseSocketName(want.String()); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "job", "job/1", "job/1.", "job/x.1", "job/1.x", "/1.1", "job/-1.1", "job/1.0", "job/01.1", "a/b/1.1"} {
		if n, err := parseSocketName(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, n)
		}
	}
}

func FuzzControlDecoders(f *testing.F) {
	f.Add([]byte(`{"request":"status"}`))
	f.Add([]byte(`{"request":"stop"}`))
	f.Add([]byte(`{"stopping":true}`))
	f.Add([]byte(`{"status":{"job":"a","members":[{"id":"x","rank":0}]}}`))
	f.Add([]byte("job/1.2"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := answer(b, func() Status { return Status{} })
		if set := []bool{r.Status != nil, r.Stopping, r.Error != ""}; countTrue(set) != 1 {
			t.Errorf("answer %+v has not exactly one field", r)
		}
		// Only who asks in so many words ends a peer.
		if asked, err := decodeRequest(b); r.Stopping && (err != nil || asked.Request != "stop") {
			t.Errorf("%q stops the peer", b)
		}
		if r, err := decodeReply(b); err == nil && r.Status != nil {
			if _, err := json.Marshal(mergeStatus([]Status{*r.Status, *r.Status})); err != nil {
				t.Errorf("merged status does not encode: %v", err)
			}
		}
		if n, err := parseSocketName(string(b)); err == nil && n.String() != string(b) {
			t.Errorf("%q is read as %v", b, n)
		}
	})
}

func countTrue(set []bool) int {
	n := 0
	for _, b := range set {
		if b {
			n++
		}
	}
	return n
}
