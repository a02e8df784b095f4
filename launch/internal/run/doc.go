// Package run is the launcher: it starts the peers of a job, connects them, passes on their output, and
// ends when all have ended. It runs in the process "elrun".
//
// Run is the whole launcher. One goroutine, the loop of a runner, owns all state. events.go makes inputs
// of a job.Job from what peers, agents and users do, and supervisor.go carries out its outputs. roster.go
// keeps what is known of the peers, outcome.go makes the last line.
package run
