// Package trace writes what the events of a job say as a trace in the format of Perfetto
// (https://perfetto.dev), which https://ui.perfetto.dev shows: what each peer did and when, on one clock.
//
//	w := trace.New(file, trace.Options{})
//	lines, err := timeline.Events(w.Add, nil, logs...) // or w.Add(e) for each event
//	err = w.Close()
//
// It is a pure function of the events: it reads no clock. A Writer needs memory for the peers of a job, but none for
// its steps.
//
// # Tracks
//
// The process "job" has a thread "epochs" with a slice for each view, instants for what happens to the job, and counters. Each
// peer is a process: its thread "step" has a slice for each step, and in it one for each part of event.Times; its tracks "state" have
// what happens beside the steps, such as copies of the state and checkpoints. Flows lead from the computing of the last peer of a step to
// the waits of the others. Slices of a track do not overlap: what
// would overlap is on another track of the same name, and the user interface draws these as one. docs/trace.md describes
// the tracks for users.
//
// # Format
//
// A trace is a message Trace of protos/perfetto/trace/trace.proto: a sequence of packets with a descriptor of a track or
// an event on a track. All packets are on one sequence, and need its incremental state: names that
// occur often are defined once. A descriptor comes before the first event of its track, and the times of a track do not
// decrease. Times are nanoseconds since 1970 on the clock of one host, to which Hosts converts the times of the others. Processes
// have their process ID if no other peer of the trace has it, and a made-up one otherwise, because hosts and containers
// have the same IDs.
package trace
