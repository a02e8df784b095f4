// Package metrics serves the figures of a job to Prometheus, from the model of package timeline:
//
//	s, err := metrics.Serve(address, func() (timeline.Snapshot, bool) { return snapshot, true })
//	...
//	err = s.Close()
//
// Each launcher serves the figures of its own peers, by their index, and those of the job, which are equal at
// all launchers. docs/metrics.md lists the metrics. Counters follow the model, so a figure means the same
// as in elrun status.
package metrics
