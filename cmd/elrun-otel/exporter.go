package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/launch/metrics"
)

// exporter exports the snapshots of a job: metrics of the latest one at intervals, and spans as soon as they have ended.
type exporter struct {
	meters *sdkmetric.MeterProvider
	traces *sdktrace.TracerProvider
	spans  spans

	mu     sync.Mutex
	latest timeline.Snapshot
	known  bool
}

// start starts a new exporter of a job, which close ends.
func (e *exporter) start(about *resource.Resource, to sdkmetric.Exporter, spansTo sdktrace.SpanExporter) *exporter {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(e.snapshot))
	reader := sdkmetric.NewPeriodicReader(to, sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(registry))))
	e.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(about))
	e.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(spansTo), sdktrace.WithResource(about))
	e.spans.tracer = e.traces.Tracer("github.com/elrun/elrun")
	return e
}

// snapshot returns the latest snapshot.
func (e *exporter) snapshot() (timeline.Snapshot, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest, e.known
}

// follow takes snapshots until their end. The end of the job is no error.
func (e *exporter) follow(snapshots iter.Seq2[timeline.Snapshot, error]) error {
	for s, err := range snapshots {
		if errors.Is(err, launch.ErrNoJob) && e.known || err != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.latest, e.known = s, true
		e.mu.Unlock()
		e.spans.follow(s)
	}
	return nil
}

// close exports what is left.
func (e *exporter) close(ctx context.Context) error {
	e.spans.end(e.latest)
	return errors.Join(e.meters.Shutdown(ctx), e.traces.Shutdown(ctx))
}

// spans makes the spans of a job: one of the whole job, and below it one of each view and of each checkpoint.
type spans struct {
	tracer trace.Tracer
	ctx    context.Context // of the span of the job; nil before
	job    trace.Span
	viewed time.Time // begin of the last view that has a span
	saved  time.Time // of the last checkpoint that has a span
}

// follow makes the spans that have ended.
func (s *spans) follow(now timeline.Snapshot) {
	if s.ctx == nil {
		s.ctx, s.job = s.tracer.Start(context.Background(), "job "+now.Job.Job, trace.WithTimestamp(now.Begin),
			trace.WithAttributes(attribute.String("elrun.job", now.Job.Job), attribute.String("elrun.program", now.Job.Program)))
	}
	for i, v := range now.Recent[:max(0, len(now.Recent)-1)] {
		s.view(v, now.Recent[i+1].Time)
	}
	for _, c := range now.Checkpoints {
		if !c.Time.After(s.saved) {
			continue
		}
		s.saved = c.Time
		begun := c.Time.Add(-time.Duration(c.MS * float64(time.Millisecond)))
		_, span := s.tracer.Start(s.ctx, "checkpoint", trace.WithTimestamp(begun),
			trace.WithAttributes(attribute.Int64("elrun.step", c.Step), attribute.String("elrun.path", c.Path)))
		span.End(trace.WithTimestamp(c.Time))
	}
}

// view makes the span of a view that has ended, unless it has one.
func (s *spans) view(v timeline.View, ended time.Time) {
	if !v.Time.After(s.viewed) {
		return
	}
	s.viewed = v.Time
	_, span := s.tracer.Start(s.ctx, fmt.Sprintf("view %d", v.Epoch), trace.WithTimestamp(v.Time),
		trace.WithAttributes(attribute.String("elrun.reason", v.Reason), attribute.Int("elrun.members", len(v.Members)),
			attribute.Float64("elrun.cost_ms", v.CostMS), attribute.Int("elrun.recomputed", v.Recomputed)))
	for _, id := range v.Joined {
		span.AddEvent("joined", trace.WithTimestamp(v.Time), trace.WithAttributes(attribute.String("elrun.peer", id)))
	}
	for _, l := range v.Lost {
		span.AddEvent("lost", trace.WithTimestamp(v.Time), trace.WithAttributes(attribute.String("elrun.peer", l.Who),
			attribute.String("elrun.cause", l.Cause), attribute.Float64("elrun.detect_ms", l.DetectMS)))
	}
	for _, id := range v.Left {
		if !slices.ContainsFunc(v.Lost, func(l timeline.Loss) bool { return strings.Contains(l.Who, id) }) {
			span.AddEvent("left", trace.WithTimestamp(v.Time), trace.WithAttributes(attribute.String("elrun.peer", id)))
		}
	}
	span.End(trace.WithTimestamp(ended))
}

// end ends the spans of the last view and of the job.
func (s *spans) end(last timeline.Snapshot) {
	if s.ctx == nil {
		return
	}
	if n := len(last.Recent); n > 0 {
		s.view(last.Recent[n-1], last.Time)
	}
	s.job.SetAttributes(attribute.Int64("elrun.steps", last.Step), attribute.Bool("elrun.finished", last.Done != nil), attribute.Float64("elrun.goodput", last.Goodput.Ratio))
	s.job.End(trace.WithTimestamp(last.Time))
}
