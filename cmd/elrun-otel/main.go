// Elrun-otel exports the metrics of a job of elrun, and spans of its views and checkpoints, to a collector of OpenTelemetry,
// by OTLP over HTTP:
//
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 elrun-otel [JOB]
//
// It runs on a host with an elrun of the job, reads what elrun status shows, and ends with the job. The variables
// OTEL_EXPORTER_OTLP_*, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and OTEL_METRIC_EXPORT_INTERVAL mean what the specification of
// OpenTelemetry says. The metrics are those of docs/metrics.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch"
)

// Exit statuses, as those of elrun.
const (
	statusFailed = 1
	statusUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run exports the job that the arguments name, and returns the exit status.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	if len(args) > 1 || len(args) == 1 && len(args[0]) > 0 && args[0][0] == '-' {
		fmt.Fprintln(stderr, "usage: elrun-otel [JOB]\nIt exports to OTEL_EXPORTER_OTLP_ENDPOINT, http://localhost:4318 by default; docs/metrics.md explains it.")
		return statusUsage
	}
	name := ""
	if len(args) == 1 {
		name = args[0]
	}
	job, err := launch.Find(ctx, name)
	if err == nil {
		err = exportTo(ctx, job.Watch(ctx))
	}
	if err != nil {
		fmt.Fprintf(stderr, "elrun-otel: %v\n", err)
		return statusFailed
	}
	return 0
}

// exportTo exports snapshots to the collector that the environment names.
func exportTo(ctx context.Context, snapshots iter.Seq2[timeline.Snapshot, error]) error {
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "elrun")), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	metrics, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return fmt.Errorf("export metrics: %w", err)
	}
	spans, err := otlptracehttp.New(ctx)
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	e := (&exporter{}).start(about, metrics, spans)
	err = e.follow(snapshots)
	// What is known goes out also after a signal.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	if ended := e.close(ctx); ended != nil && (err == nil || errors.Is(err, launch.ErrNoJob)) {
		return ended
	}
	return err
}

// endPatience bounds the last export.
const endPatience = 10 * time.Second
