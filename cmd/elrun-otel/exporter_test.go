package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// collector is a collector of OpenTelemetry.
type collector struct {
	mu      sync.Mutex
	metrics map[string]float64 // by name, the value of the last sum or gauge
	spans   map[string]time.Duration
	events  []string
	service string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var err error
	switch r.URL.Path {
	case "/v1/metrics":
		var m collectormetrics.ExportMetricsServiceRequest
		err = proto.Unmarshal(body, &m)
		c.takeMetrics(&m)
	case "/v1/traces":
		var m collectortrace.ExportTraceServiceRequest
		err = proto.Unmarshal(body, &m)
		c.takeSpans(&m)
	default:
		err = errors.New("unknown path")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *collector) takeMetrics(m *collectormetrics.ExportMetricsServiceRequest) {
	for _, r := range m.ResourceMetrics {
		for _, a := range r.Resource.Attributes {
			if a.Key == "service.name" {
				c.service = a.Value.GetStringValue()
			}
		}
		for _, s := range r.ScopeMetrics {
			for _, x := range s.Metrics {
				for _, p := range slices.Concat(x.GetSum().GetDataPoints(), x.GetGauge().GetDataPoints()) {
					c.metrics[x.Name] = p.GetAsDouble()
				}
			}
		}
	}
}

func (c *collector) takeSpans(m *collectortrace.ExportTraceServiceRequest) {
	for _, r := range m.ResourceSpans {
		for _, s := range r.ScopeSpans {
			for _, x := range s.Spans {
				c.spans[x.Name] = time.Duration(x.EndTimeUnixNano - x.StartTimeUnixNano)
				for _, e := range x.Events {
					c.events = append(c.events, e.Name)
				}
			}
		}
	}
}

// The collector gets the metrics, and spans of the job, its views and its checkpoints.
func TestExport(t *testing.T) {
	c := &collector{metrics: make(map[string]float64), spans: make(map[string]time.Duration)}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_SERVICE_NAME", "training")
	begun := time.Unix(1_900_000_000, 0)
	j := timeline.New()
	add := func(s float64, peer string, epoch uint64, step int64, b event.Body) {
		j.Add(event.Event{Time: begun.Add(time.Duration(s * float64(time.Second))), Peer: peer, Epoch: epoch, Step: step, Body: b})
	}
	snapshots := func(yield func(timeline.Snapshot, error) bool) {
		add(0, "", 0, 0, event.Job{Job: "mnist"})
		add(1, "a", 1, 0, event.View{Members: []string{"a", "b"}, Reason: "start"})
		add(3, "a", 1, 1, event.Step{Samples: 8, StepMS: 100, ComputeMS: 100, Loss: 0.5})
		add(4, "a", 1, 1, event.Checkpoint{Path: "x", MS: 500})
		if !yield(j.Snapshot(), nil) {
			return
		}
		add(5, "a", 2, 0, event.View{Members: []string{"a"}, Reason: "lost"})
		add(5, "a", 2, 0, event.Lost{Who: "b", Cause: "exit"})
		add(7, "a", 2, 2, event.Step{Samples: 8, StepMS: 100, ComputeMS: 100, Loss: 0.25})
		for range 2 {
			if !yield(j.Snapshot(), nil) {
				return
			}
		}
		yield(timeline.Snapshot{}, launch.ErrNoJob)
	}
	if err := exportTo(t.Context(), snapshots); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, want := range map[string]float64{"elrun_steps_total": 2, "elrun_loss": 0.25, "elrun_members": 1, "elrun_checkpoints_total": 1} {
		if got, ok := c.metrics[name]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
		}
	}
	for name, want := range map[string]time.Duration{"job mnist": 7 * time.Second, "view 1": 4 * time.Second, "view 2": 2 * time.Second, "checkpoint": time.Second / 2} {
		if c.spans[name] != want {
			t.Errorf("%s takes %v, want %v", name, c.spans[name], want)
		}
	}
	if len(c.spans) != 4 || !slices.Equal(c.events, []string{"lost"}) || c.service != "training" {
		t.Errorf("%d spans, events %q, service %q", len(c.spans), c.events, c.service)
	}
}

// A job that is not there, and a wrong command line, are errors. A collector that is gone is one, too.
func TestExportFails(t *testing.T) {
	if status := run(t.Context(), []string{"no-such-job-of-this-test"}, io.Discard); status != statusFailed {
		t.Errorf("no job: status %d", status)
	}
	if status := run(t.Context(), []string{"--help"}, io.Discard); status != statusUsage {
		t.Errorf("a flag: status %d", status)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	once := func(yield func(timeline.Snapshot, error) bool) { yield(timeline.New().Snapshot(), nil) }
	if err := exportTo(ctx, once); err == nil {
		t.Error("the collector is gone, and nothing says so")
	}
}
