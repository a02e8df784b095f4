package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// namesIn returns the metrics of elrun in a text, without the endings of a histogram.
func namesIn(text string) []string {
	names := map[string]bool{}
	for _, name := range regexp.MustCompile(`\belrun_[a-z_]+`).FindAllString(text, -1) {
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, end)
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// The page of metrics has those that are served, and the rules and the dashboard ask for no other.
func TestDocuments(t *testing.T) {
	accuracy, loss := 0.9, 0.1
	all := snapshot(event.Step{Samples: 32, Of: 10, Loss: 0.4, LR: 0.1, GradNorm: 1, NoiseScale: 2, Metrics: map[string]float64{"perplexity": 3}},
		event.Eval{Set: "test", Accuracy: &accuracy, Loss: &loss}, event.Checkpoint{Path: "x", MS: 5}, event.Audit{Who: []string{"bbb"}, Out: true},
		event.Stall{Culprit: "ccc", Phase: "no answer", What: "barrier", SinceMS: 100}, event.Quorum{State: "waiting", Present: 1, Needed: 2})
	s, err := Serve("127.0.0.1:0", func() (timeline.Snapshot, bool) { return all, true })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text, _ := get(t, s, "")
	served := namesIn(regexp.MustCompile(`(?m)^# HELP .*$`).ReplaceAllString(text, ""))
	docs := filepath.Join("..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	if listed := namesIn(string(page)); !slices.Equal(listed, served) {
		t.Errorf("docs/metrics.md has %v\nserved are     %v", listed, served)
	}
	for name, decode := range map[string]func([]byte, any) error{"rules.yml": yaml.Unmarshal, "scrape.yml": yaml.Unmarshal, "grafana.json": json.Unmarshal} {
		b, err := os.ReadFile(filepath.Join(docs, "prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		var any map[string]any
		if err := decode(b, &any); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, asked := range namesIn(string(b)) {
			if !slices.Contains(served, asked) {
				t.Errorf("%s asks for %s, which is not served", name, asked)
			}
		}
	}
}

// A counter of a seat goes on when its peer is started again.
func TestSeatsGoOn(t *testing.T) {
	s := snapshot()
	for _, p := range seats(s) {
		if p.Samples != 16 || p.Uses[timeline.Useful] < 60*time.Millisecond {
			t.Errorf("peer %d: %d samples, %v useful", p.Index, p.Samples, p.Uses[timeline.Useful])
		}
	}
}
