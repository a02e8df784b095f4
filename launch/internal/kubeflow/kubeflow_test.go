package kubeflow

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event/timeline"
)

// server is a stub of the server of a TrainJob.
type server struct {
	*httptest.Server
	dir     string
	token   string // the one that it accepts
	refuses string // the body of a refusal; "" if it accepts
	got     []report
}

const path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/lab/trainjobs/mnist/status"

func newServer(t *testing.T) *server {
	s := &server{dir: t.TempDir()}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	s.write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	s.rotate(t, "first")
	return s
}

// write writes a file of the pod.
func (s *server) write(t *testing.T, name, text string) {
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rotate changes the token.
func (s *server) rotate(t *testing.T, token string) {
	s.token = token
	s.write(t, "token", token+"\n")
}

// ServeHTTP checks a report as the controller does.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var got report
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	switch {
	case s.refuses != "":
		http.Error(w, s.refuses, http.StatusTooManyRequests)
	case r.Method != http.MethodPost || r.URL.Path != path || r.Header.Get("Content-Type") != "application/json":
		http.Error(w, "bad request", http.StatusBadRequest)
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		http.Error(w, `{"kind":"Status","message":"bad token"}`, http.StatusUnauthorized)
	case d.Decode(&got) != nil:
		http.Error(w, "bad body", http.StatusUnprocessableEntity)
	default:
		s.got = append(s.got, got)
	}
}

// env returns the environment of a pod.
func (s *server) env(name string) string {
	return map[string]string{envServer: s.URL + path, envCA: filepath.Join(s.dir, "ca.crt"), envToken: filepath.Join(s.dir, "token")}[name]
}

// The server gets the progress, the time left and the figures. The token may change, and what is unknown is left out.
func TestPost(t *testing.T) {
	s := newServer(t)
	r := FromEnv(s.env)
	now := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	p := timeline.Progress{Step: 45, Of: 99, Loss: 0.25, LeftMS: 1600, SamplesPerS: 1234.5678, Metrics: map[string]float64{"right": 0.5, strings.Repeat("x", 1000): 1}}
	if err := r.Post(t.Context(), p, now); err != nil {
		t.Fatal(err)
	}
	s.rotate(t, "second")
	if err := r.Post(t.Context(), timeline.Progress{Step: 7}, now); err != nil {
		t.Fatal(err)
	}
	percent, left := int64(45), int64(2)
	updated := now.Truncate(time.Second)
	if want := []report{
		{status{&percent, &left, []figure{{"step", "45"}, {"loss", "0.25"}, {"samples_per_second", "1234.57"}, {"right", "0.5"}}, updated}},
		{status{nil, nil, []figure{{"step", "7"}}, updated}},
	}; !reflect.DeepEqual(s.got, want) {
		t.Errorf("got  %+v\nwant %+v", s.got, want)
	}
	if FromEnv(func(string) string { return "" }) != nil {
		t.Error("there is a reporter outside a TrainJob")
	}
}

// A refusal says why, and nothing is sent to a server that the authority of the pod does not know.
func TestPostFails(t *testing.T) {
	s := newServer(t)
	r := FromEnv(s.env)
	fails := func(want string) {
		t.Helper()
		if err := r.Post(t.Context(), timeline.Progress{Step: 1}, time.Now()); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	s.token = "another"
	fails("401 Unauthorized: bad token")
	s.refuses = `{"message":"` + strings.Repeat("slow down ", 1000) + `"}`
	fails("429 Too Many Requests: slow down")
	s.refuses = "slow down"
	fails("429 Too Many Requests")
	s.write(t, "ca.crt", "no certificate")
	fails("no certificate in")
	if err := os.Remove(filepath.Join(s.dir, "token")); err != nil {
		t.Fatal(err)
	}
	fails(envToken)
	s.write(t, "token", "t")
	r.ca = "" // those of the system
	fails("certificate")
	redirects := httptest.NewServer(http.RedirectHandler(s.URL+path, http.StatusTemporaryRedirect))
	defer redirects.Close()
	r.server = redirects.URL
	fails("it redirects a report")
	if len(s.got) > 0 {
		t.Errorf("got %+v", s.got)
	}
}
