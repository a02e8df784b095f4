package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/testing/process"
)

// installed returns the path of a command of Prometheus. Without it the test is skipped, and fails in CI.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("ELRUN_CI") != "":
		t.Fatalf("no %s: install Prometheus (Debian: apt-get install prometheus)", name)
	}
	t.Skipf("no %s: install Prometheus (Debian: apt-get install prometheus)", name)
	return ""
}

// check runs promtool.
func check(t *testing.T, promtool string, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command(promtool, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// served returns a page that is served, "" for none.
func served(address string) string {
	r, err := http.Get(address)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// queries returns the queries of the dashboard.
func queries(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/prometheus/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	return all
}

// Prometheus scrapes a job that trains, and in which a peer dies. Its tool finds no fault with the metrics, the rules and the
// example, and each query of the dashboard has an answer with values.
func TestPrometheus(t *testing.T) {
	promtool, prometheus := installed(t, "promtool"), installed(t, "prometheus")
	program, data := mnist(t)
	e := &elrun{job: process.NewJob(t)}
	e.launch(t, []string{"-n", "3", "--name", e.job.Name, "--listen", "local", "--transport", "direct", "--metrics", "127.0.0.1:0", "--",
		program, "--data", data, "--steps", "1000000", "--eval-every", "20"})
	line := regexp.MustCompile(`metrics at (http://\S+)/metrics`)
	e.Until(t, "the address of the metrics", func() bool { return line.MatchString(e.Err.String()) })
	address := line.FindStringSubmatch(e.Err.String())[1]
	process.Until(t, "steps", func() bool { return strings.Contains(served(address+"/metrics"), "elrun_evaluation_loss") })
	check(t, promtool, served(address+"/metrics"), "check", "metrics")
	check(t, promtool, "", "check", "rules", "../../docs/prometheus/rules.yml")
	check(t, promtool, "", "check", "config", "../../docs/prometheus/scrape.yml")

	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: elrun, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(address, "http://"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	process.Start(t, exec.Command(prometheus, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", at, "--log.level", "error"))
	killed := false
	for _, q := range queries(t) {
		process.Until(t, "an answer to "+q, func() bool {
			answer := served("http://" + at + "/api/v1/query?query=" + url.QueryEscape(q))
			if !killed && strings.Contains(served("http://"+at+"/api/v1/query?query=elrun_members"), `"3"`) {
				killed = true
				process.Signal(t, e.peers(t)[2], syscall.SIGKILL)
			}
			return strings.Contains(answer, `"status":"success"`) && strings.Contains(answer, `"value":`)
		})
	}
	e.Signal(t, syscall.SIGINT)
	e.Wait(t)
}
