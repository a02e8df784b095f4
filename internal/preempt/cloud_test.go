package preempt

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// served runs handle as the metadata service of a cloud, and polls the service; looks is the
// largest number of polls. It returns the notice and the errors.
func served(t *testing.T, name string, looks int, handle http.HandlerFunc) (text string, errs []error) {
	t.Helper()
	server := httptest.NewServer(handle)
	defer server.Close()
	look := cloud(name, &metadata{server.URL, server.Client()})
	for range looks {
		got, err := look(t.Context())
		if got != "" {
			return got, errs
		}
		errs = append(errs, err)
	}
	return "", errs
}

func TestAWS(t *testing.T) {
	tokens, looks := 0, 0
	text, errs := served(t, "aws", 4, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "PUT" && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "21600":
			tokens++
			fmt.Fprintf(w, "token-%d", tokens)
		case r.Method != "GET" || r.URL.Path != "/latest/meta-data/spot/instance-action":
			t.Errorf("%s %s", r.Method, r.URL)
		case r.Header.Get("X-aws-ec2-metadata-token") != fmt.Sprintf("token-%d", tokens):
			t.Errorf("token %q", r.Header.Get("X-aws-ec2-metadata-token"))
		default:
			looks++
			switch looks {
			case 1:
				http.NotFound(w, r)
			case 2: // the token has expired
				w.WriteHeader(http.StatusUnauthorized)
			case 3:
				_, _ = io.WriteString(w, "<html>a portal</html>")
			case 4:
				_, _ = io.WriteString(w, `{"action": "terminate", "time": "2026-01-02T03:04:05Z"}`)
			}
		}
	})
	if text != "aws: terminate at 2026-01-02T03:04:05Z" || tokens != 2 || len(errs) != 3 || errs[0] != nil || errs[1] == nil || errs[2] == nil {
		t.Errorf("%q after %d tokens and %v", text, tokens, errs)
	}
}

func TestGCP(t *testing.T) {
	var queries []string
	text, errs := served(t, "gcp", 4, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/computeMetadata/v1/instance/preempted" || r.Header.Get("Metadata-Flavor") != "Google" {
			t.Errorf("%s %s, %v", r.Method, r.URL, r.Header)
		}
		queries = append(queries, r.URL.RawQuery)
		switch len(queries) {
		case 1:
			w.Header().Set("ETag", "e1")
			_, _ = io.WriteString(w, "FALSE")
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, "TRUE\n")
		}
	})
	rest := "wait_for_change=true&timeout_sec=60&last_etag="
	if text != "gcp: the instance is being preempted" || !slices.Equal(queries, []string{rest + "NONE", rest + "e1", rest + "e1"}) || len(errs) != 2 || errs[0] != nil || errs[1] == nil {
		t.Errorf("%q after %q and %v", text, queries, errs)
	}
}

func TestAzure(t *testing.T) {
	events := []string{
		`{"DocumentIncarnation":1,"Events":[]}`,
		`{"Events":[{"EventId":"1","EventType":"Reboot","Resources":["set_3"]},{"EventType":"Preempt","Resources":["set_4"]}]}`,
		`nothing`,
		`{"Events":[{"EventType":"Preempt","Resources":["set_4","SET_3"],"EventStatus":"Scheduled","NotBefore":"Mon, 19 Sep 2026 18:29:47 GMT"}]}`,
	}
	text, errs := served(t, "azure", 4, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Metadata") != "true" || r.URL.Query().Get("api-version") == "":
			t.Errorf("%s, %v", r.URL, r.Header)
		case r.URL.Path == "/metadata/instance/compute/name":
			_, _ = io.WriteString(w, "set_3")
		case r.URL.Path == "/metadata/scheduledevents":
			_, _ = io.WriteString(w, events[0])
			events = events[1:]
		}
	})
	if text != "azure: preempted, not before Mon, 19 Sep 2026 18:29:47 GMT" || len(errs) != 3 || errs[0] != nil || errs[1] != nil || errs[2] == nil {
		t.Errorf("%q after %v", text, errs)
	}
}

// silent is an HTTP transport whose service never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestSilentService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, want := range map[string]time.Duration{"aws": answerPatience, "gcp": holdSeconds*time.Second + answerPatience, "azure": answerPatience} {
			begun := time.Now()
			_, err := cloud(name, &metadata{"http://metadata", &http.Client{Transport: silent{}}})(t.Context())
			if err == nil || !strings.Contains(err.Error(), "no answer within") || time.Since(begun) != want {
				t.Errorf("%s: %v after %v, want %v", name, err, time.Since(begun), want)
			}
		}
	})
}
