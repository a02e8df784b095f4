package e2e

import (
	"encoding/csv"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// trainJobServer is the server of a TrainJob, which refuses the first report that is not the last.
type trainJobServer struct {
	*httptest.Server
	mu       sync.Mutex
	percents []int // of the reports
}

// newTrainJobServer starts a server, and makes this process look like one in a pod of its TrainJob.
func newTrainJobServer(t *testing.T) *trainJobServer {
	t.Helper()
	s := &trainJobServer{}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	for name, text := range map[string]string{"token": "secret\n", "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEFLOW_TRAINER_SERVER_URL", s.URL)
	t.Setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", filepath.Join(dir, "token"))
	t.Setenv("KUBEFLOW_TRAINER_SERVER_CA_CERT", filepath.Join(dir, "ca.crt"))
	return s
}

func (s *trainJobServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body struct {
		Status struct {
			Percent *int `json:"progressPercentage"`
		} `json:"trainerStatus"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || body.Status.Percent == nil || r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "bad report", http.StatusBadRequest)
		return
	}
	s.percents = append(s.percents, *body.Status.Percent)
	if len(s.percents) == 1 && s.percents[0] < 100 {
		http.Error(w, `{"message":"slow down"}`, http.StatusTooManyRequests)
	}
}

// rowsOf returns the number of rows of a table with a value in a column whose name ends so.
func rowsOf(t *testing.T, table [][]string, end string) (n int) {
	t.Helper()
	for _, row := range table[1:] {
		for i, name := range table[0] {
			if strings.HasSuffix(name, end) && row[i] != "" {
				n++
				break
			}
		}
	}
	return n
}

// The figures of a real job are in the files of --log, and in the status of a TrainJob of Kubeflow, though its server
// refuses at first.
func TestFiguresOfJob(t *testing.T) {
	program, data := mnist(t)
	server := newTrainJobServer(t)
	log := filepath.Join(t.TempDir(), "run")
	_, stderr, status := process.Command(t, "-n", "2", "--listen", "local", "--log", log, "--", program, "--data", data, "--steps", "40", "--eval-every", "10")
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if n := len(server.percents); n == 0 || server.percents[n-1] != 100 || strings.Count(stderr, "slow down") > 1 {
		t.Errorf("reports of %v %%; %s", server.percents, stderr)
	}
	text, err := os.ReadFile(filepath.Join(log, "steps.csv"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if steps, evaluations := rowsOf(t, table, "learning_rate"), rowsOf(t, table, "accuracy"); steps != 40 || evaluations < 3 {
		t.Errorf("%d steps and %d evaluations, want 40 and at least 3:\n%s", steps, evaluations, text)
	}
	if files, _ := filepath.Glob(filepath.Join(log, "events.out.tfevents.*")); len(files) != 1 {
		t.Errorf("files for TensorBoard: %q", files)
	}
}
