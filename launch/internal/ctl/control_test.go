package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// testJob returns the name of a job that belongs to this test process alone.
func testJob(t *testing.T) string {
	t.Helper()
	return spec.JobName(strings.ReplaceAll(t.Name(), "/", "-"), strconv.Itoa(os.Getpid())+"t")
}

func serveStatus(t *testing.T, job string, index int, status func() spec.Status) *Control {
	t.Helper()
	c, err := Serve(SocketName{job, index, os.Getpid()}, Services{Status: status, Stop: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A client that sends nothing or garbage disturbs no other client, and Close does not wait for such
// a client.
func TestControlGarbage(t *testing.T) {
	job := testJob(t)
	c := serveStatus(t, job, 0, func() spec.Status { return spec.Status{Job: job} })
	at := SocketName{job, 0, os.Getpid()}
	silent, err := dial(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for text, want := range map[string]string{
		"garbage\n":                            "decode request",
		"{\"request\":\"dance\"}\n":            "unknown request",
		"{\"request\":\"scale\"}\n":            "0 peers: want 1 to",
		"{\"request\":\"ticket\"}\n":           "valid for 0 ms",
		strings.Repeat("x", 2*wire.MaxRequest): "",
	} {
		conn, err := dial(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text)) // may fail: the peer may close the connection first
		b, _ := io.ReadAll(conn)
		if want != "" && !strings.Contains(string(b), want) {
			t.Errorf("%.20q: got %q, want %q in it", text, b, want)
		}
		_ = conn.Close()
	}
	if _, err := Ask(t.Context(), at, wire.Request{Request: "status"}); err != nil {
		t.Errorf("after garbage: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestAskCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ask(ctx, SocketName{testJob(t), 0, os.Getpid()}, wire.Request{Request: "status"}); err == nil {
		t.Error("no error from a cancelled context")
	}
}

func TestSocketName(t *testing.T) {
	for _, want := range []SocketName{{"my.job-1", 12, 345}, {"my.job-1", LauncherIndex, 0}, {"my.job-1", LauncherIndex, 345}} {
		if got, err := ParseSocketName(want.String()); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for _, bad := range []string{"", "job", "job/1", "job/1.", "job/launcher.", "job/launcher.0", "job/launcher.-1", "job/-1", "job/0.0", "job/x.1", "job/1.x", "/1.1", "job/-1.1", "job/1.0", "job/01.1", "a/b/1.1"} {
		if n, err := ParseSocketName(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, n)
		}
	}
}

// testServices answer every request.
func testServices() Services {
	return Services{
		Status: func() spec.Status { return spec.Status{} }, Stop: func() {},
		Scale: func(_ context.Context, h spec.Host) (string, error) {
			if h.Name != "" {
				return fmt.Sprintf("%d on %s", h.Slots, h.Name), nil
			}
			return fmt.Sprint(h.Slots), nil
		},
		Ticket: func(_ context.Context, r wire.Request) (spec.Ticket, error) {
			return spec.Ticket{Text: fmt.Sprint(time.Duration(r.ValidMS)*time.Millisecond, r.Local)}, nil
		},
		Refresh: func(text string) (spec.Ticket, error) { return spec.Ticket{Text: text}, nil },
		Revoke:  func(_ context.Context, name string) (string, error) { return "revoked " + name, nil },
		Kick:    func(_ context.Context, name string) (string, error) { return "kicked " + name, nil },
		Bury:    func(dead []elastic.ID) (string, error) { return fmt.Sprint("dead: ", dead), nil },
	}
}

func FuzzControlDecoders(f *testing.F) {
	for _, seed := range []string{`{"request":"status"}`, `{"request":"dead","dead":["a"]}`, `{"request":"stop"}`, `{"request":"scale","peers":3}`,
		`{"request":"scale","peers":-1}`, `{"request":"scale","host":"a"}`, `{"request":"ticket","valid_ms":3600000,"local":true}`, `{"request":"ticket"}`, `{"request":"kick","peer":"x"}`, `{"request":"revoke","ticket":"x"}`,
		`{"stopping":true}`, `{"scaling":"x"}`, `{"ticket":{"text":"elrun1.x","job":"a"}}`,
		`{"status":{"job":"a","members":[{"id":"x","rank":0}]}}`, "job/1.2"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := answer(t.Context(), testServices(), b)
		if set := []bool{r.Status != nil, r.Stopping, r.Scaling != "", r.Ticket != nil, r.Done != "", r.Error != ""}; countTrue(set) != 1 {
			t.Errorf("answer %+v has not exactly one field", r)
		}
		// Only an exact request ends a peer or changes the job.
		asked, err := wire.DecodeRequest(b)
		if r.Stopping && (err != nil || asked.Request != "stop") {
			t.Errorf("%q stops the peer", b)
		}
		if r.Scaling != "" && (err != nil || asked.Request != "scale" || asked.Peers < 0 || asked.Peers < 1 && asked.Host == "" || asked.Peers > spec.MaxPeers) {
			t.Errorf("%q scales the job to %s", b, r.Scaling)
		}
		if r.Done != "" && (err != nil || r.Done != "revoked "+asked.Ticket && r.Done != "kicked "+asked.Peer &&
			(r.Done != fmt.Sprint("dead: ", asked.Dead) || len(asked.Dead) > wire.MaxDead)) {
			t.Errorf("%q did %s", b, r.Done)
		}
		if r, err := wire.DecodeReply(b); err == nil && r.Status != nil {
			if _, err := json.Marshal(MergeStatus([]spec.Status{*r.Status, *r.Status})); err != nil {
				t.Errorf("merged status does not encode: %v", err)
			}
		}
		if n, err := ParseSocketName(string(b)); err == nil && n.String() != string(b) {
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
