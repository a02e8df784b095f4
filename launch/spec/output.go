package spec

import (
	"fmt"
	"io"
	"net"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/private"
)

// Output has the options of Run for the output of peers and the reports about them. The zero value
// discards all output.
type Output struct {
	Stdout, Stderr io.Writer // nil discards
	Live           bool      // Stderr is a terminal that shows a progress line
	ASCII          bool      // the terminal has the characters of ASCII only
	Plain          bool      // no prefix on lines of output
	// Label names this launcher in the prefix of lines of output, as in [0@Label]; "" for none.
	Label string
	// Shared means that several launchers of the job share the output. The launcher whose peer has
	// rank 0 reports the progress and prints the job's last line.
	Shared bool
	Events io.Writer // gets the events of all peers, one JSON object a line; nil for none
	// EventsPath is the path of the file behind Events, for people; "" if it is no file.
	EventsPath string
	// HideArgs leaves the arguments of the program out of the events, as they may have passwords.
	HideArgs bool
	// Sink gets the events of all peers, and those of the elrun process, as in event.Slog; nil for none. Emit must not block.
	Sink    event.Sink
	Hooks   []Hook // run at events
	Metrics string // HOST:PORT at which the metrics of the job are served for Prometheus; "" for none
	Scalars string // folder that gets the figures of each step, for TensorBoard and as steps.csv; "" for none
	Trace   string // file that gets a trace of these events for Perfetto; "" for none
	Records string // folder that gets the last calls of the peers when a call stalls or a peer is lost, see launch.Job.Record; "" for none
	LogDir  string // gets a file INDEX.log for each peer in addition to the output; "" for none
}

// check returns an error for an option with an invalid value.
func (out *Output) check() error {
	if out.Metrics == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(out.Metrics); err != nil {
		return fmt.Errorf("address %q for metrics: want HOST:PORT, or :PORT for all networks", out.Metrics)
	}
	return nil
}

// Prepare makes the folders of the logs and of the records.
func (out *Output) Prepare() error {
	for name, dir := range map[string]string{"log directory": out.LogDir, "directory of records": out.Records} {
		if dir == "" {
			continue
		}
		if err := private.MkdirAll(dir); err != nil {
			return fmt.Errorf("launch: %s: %w", name, err)
		}
	}
	return nil
}

// defaults sets the options that have no value.
func (out *Output) defaults() {
	for _, w := range []*io.Writer{&out.Stdout, &out.Stderr} {
		if *w == nil {
			*w = io.Discard
		}
	}
}

// Prefix returns the prefix of the output lines of a process; host is "" for this host.
func (out *Output) Prefix(name, host string) string {
	if host == "" {
		host = out.Label
	}
	switch {
	case out.Plain:
		return ""
	case host != "":
		return fmt.Sprintf("[%s@%s] ", name, host)
	}
	return fmt.Sprintf("[%s] ", name)
}
