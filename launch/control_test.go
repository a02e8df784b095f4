package launch

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
)

// testJob returns the name of a job that belongs to this test process alone.
func testJob(t *testing.T) string {
	t.Helper()
	return jobName(strings.ReplaceAll(t.Name(), "/", "-"), strconv.Itoa(os.Getpid())+"t")
}

func serve(t *testing.T, job string, index int, status func() Status) *control {
	t.Helper()
	c, err := serveControl(socketName{job, index, os.Getpid()}, services{status: status, stop: func() {}})
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
		"{\"request\":\"scale\"}\n":       "0 peers: want 1 to",
		"{\"request\":\"ticket\"}\n":      "valid for 0 ms",
		strings.Repeat("x", 2*maxRequest): "",
	} {
		conn, err := dialControl(t.Context(), at)
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
	if _, err := ask(t.Context(), at, request{Request: "status"}); err != nil {
		t.Errorf("after garbage: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestAskCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, socketName{testJob(t), 0, os.Getpid()}, request{Request: "status"}); err == nil {
		t.Error("no error from a cancelled context")
	}
}

func TestSocketName(t *testing.T) {
	for _, want := range []socketName{{"my.job-1", 12, 345}, {"my.job-1", launcherIndex, 0}, {"my.job-1", launcherIndex, 345}} {
		if got, err := parseSocketName(want.String()); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for _, bad := range []string{"", "job", "job/1", "job/1.", "job/launcher.", "job/launcher.0", "job/launcher.-1", "job/-1", "job/0.0", "job/x.1", "job/1.x", "/1.1", "job/-1.1", "job/1.0", "job/01.1", "a/b/1.1"} {
		if n, err := parseSocketName(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, n)
		}
	}
}

// testServices answer every request.
func testServices() services {
	return services{
		status: func() Status { return Status{} }, stop: func() {},
		scale: func(_ context.Context, h Host) (string, error) {
			if h.Name != "" {
				return fmt.Sprintf("%d on %s", h.Slots, h.Name), nil
			}
			return fmt.Sprint(h.Slots), nil
		},
		ticket: func(_ context.Context, r request) (Ticket, error) {
			return Ticket{Text: fmt.Sprint(time.Duration(r.ValidMS)*time.Millisecond, r.Local)}, nil
		},
		refresh: func(text string) (Ticket, error) { return Ticket{Text: text}, nil },
		revoke:  func(_ context.Context, name string) (string, error) { return "revoked " + name, nil },
		kick:    func(_ context.Context, name string) (string, error) { return "kicked " + name, nil },
		bury:    func(dead []elastic.ID) (string, error) { return fmt.Sprint("dead: ", dead), nil },
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
		r := testServices().answer(t.Context(), b)
		if set := []bool{r.Status != nil, r.Stopping, r.Scaling != "", r.Ticket != nil, r.Done != "", r.Error != ""}; countTrue(set) != 1 {
			t.Errorf("answer %+v has not exactly one field", r)
		}
		// Only an exact request ends a peer or changes the job.
		asked, err := decodeRequest(b)
		if r.Stopping && (err != nil || asked.Request != "stop") {
			t.Errorf("%q stops the peer", b)
		}
		if r.Scaling != "" && (err != nil || asked.Request != "scale" || asked.Peers < 0 || asked.Peers < 1 && asked.Host == "" || asked.Peers > maxPeers) {
			t.Errorf("%q scales the job to %s", b, r.Scaling)
		}
		if r.Done != "" && (err != nil || r.Done != "revoked "+asked.Ticket && r.Done != "kicked "+asked.Peer &&
			(r.Done != fmt.Sprint("dead: ", asked.Dead) || len(asked.Dead) > maxDead)) {
			t.Errorf("%q did %s", b, r.Done)
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
