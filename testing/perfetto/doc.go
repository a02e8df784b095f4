// Package perfetto reads and checks traces in Perfetto's TrackEvent format, for tests. It is written from the documentation of
// the format (protos/perfetto/trace and the guide to synthetic track events of https://github.com/google/perfetto), and
// shares no code with package event/trace, which writes such traces.
//
//	t, err := perfetto.Read(trace) // the error is the first violation of a rule
//	text := t.Text()
package perfetto
