package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/event/trace"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch"
)

// traceCommand is the command elrun trace.
type traceCommand struct {
	Of     []string      `arg:"" optional:"" placeholder:"LOG|JOB" help:"Event logs of the elruns of a job (--events), plain or compressed by gzip, where - is standard input; or a running job, by its name or the beginning of it. Default: the only job that runs."`
	Output string        `short:"o" required:"" placeholder:"FILE" help:"File for the trace, as in run.pftrace; - is standard output. https://ui.perfetto.dev shows it. A file *.jsonl gets the events instead."`
	From   int64         `placeholder:"STEP" help:"First step of the trace of logs; default: that of the logs."`
	Steps  int64         `placeholder:"N" help:"Number of steps; default: all of logs, and the next 100 of a running job."`
	For    time.Duration `placeholder:"D" help:"Trace a running job for this time, as in 30s, instead of a number of steps."`
	JSON   bool          `name:"json" help:"What was found, as one JSON object."`
}

// Validate implements kong's validation: its errors are usage errors.
func (t *traceCommand) Validate() error {
	switch {
	case t.From < 0 || t.Steps < 0 || t.For < 0:
		return errors.New("--from, --steps and --for: want no negative values")
	case t.Steps > 0 && t.For > 0:
		return errors.New("--steps and --for: want one of them")
	case t.JSON && t.Output == "-":
		return errors.New("--json and -o -: want one of them on standard output")
	}
	return nil
}

// Run writes the trace of logs, or of a running job.
func (t *traceCommand) Run(ctx context.Context, term *terminal) error {
	job, err := t.job(ctx)
	if err != nil {
		return err
	}
	if job == nil {
		return t.logs(term)
	}
	ctx, release := term.interruptible(ctx)
	defer release()
	found, err := t.write(term, trace.Options{}, func(add func(event.Event)) (timeline.Lines, error) { return t.follow(ctx, job, add) })
	if err != nil {
		return err
	}
	return t.tell(term, found)
}

// job returns the running job that is to be traced; nil for logs.
func (t *traceCommand) job(ctx context.Context) (*launch.Job, error) {
	if len(t.Of) > 1 {
		return nil, nil
	}
	name := strings.Join(t.Of, "")
	if _, err := os.Stat(name); err == nil || name == "-" {
		return nil, nil
	}
	job, err := launch.Find(ctx, name)
	if errors.Is(err, launch.ErrNoJob) && name != "" {
		return nil, fmt.Errorf("%w; and %s is no file", err, name)
	}
	return job, err
}

// follow adds the events of a running job, of the steps that the user wants. If the job ends before, its events are all
// there are.
func (t *traceCommand) follow(ctx context.Context, job *launch.Job, add func(event.Event)) (found timeline.Lines, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := stepRange{steps: t.Steps}
	switch {
	case t.For > 0:
		defer time.AfterFunc(t.For, func() { cancel(errTraced) }).Stop()
	case r.steps == 0:
		r.steps = tracedSteps
	}
	for e, err := range job.Events(ctx) {
		cause := context.Cause(ctx)
		switch {
		case err != nil && r.first > 0 && (cause == nil || errors.Is(cause, errTraced)):
			return found, nil
		case err != nil && errors.Is(cause, errTraced):
			return found, fmt.Errorf("job %s has committed no step in %v", job.Name(), t.For)
		case err != nil:
			return found, cmp.Or(cause, err)
		}
		before := len(r.past)
		if r.has(e) {
			found.Events++
			add(e)
		}
		if r.complete() {
			return found, nil
		}
		if before == 0 && len(r.past) > 0 {
			defer time.AfterFunc(lateReports, func() { cancel(errTraced) }).Stop()
		}
	}
	return found, nil
}

// stepRange is the steps of a running job that are traced: the first ones that all peers report from their begin.
type stepRange struct {
	steps int64 // 0 for no bound
	first int64 // 0 before the first report
	peers map[string]bool
	past  map[string]bool // peers that have reported a later step
}

// has reports whether an event is one of these steps, or none of a step.
func (s *stepRange) has(e event.Event) bool {
	if _, is := e.Body.(event.Step); !is {
		return true
	}
	if s.first == 0 {
		s.first = e.Step + 1 // others have reported this one already
		s.peers, s.past = make(map[string]bool), make(map[string]bool)
	}
	s.peers[e.Peer] = true
	if s.steps > 0 && e.Step >= s.first+s.steps {
		s.past[e.Peer] = true
		return false
	}
	return e.Step >= s.first
}

// complete reports whether all peers have reported the steps.
func (s *stepRange) complete() bool { return len(s.past) > 0 && len(s.past) == len(s.peers) }

const (
	// tracedSteps is the number of steps of a running job that are traced if the user does not say.
	tracedSteps = 100
	// lateReports is how much later than others a peer may report a step. One that is lost reports none.
	lateReports = 10 * time.Second
)

// errTraced ends the trace of a running job.
var errTraced = errors.New("the trace is complete")

// logs writes the trace of logs.
func (t *traceCommand) logs(term *terminal) error {
	if t.For > 0 {
		return fmt.Errorf("%w: --for is for running jobs: want --steps", launch.ErrOptions)
	}
	o := trace.Options{First: t.From}
	if t.Steps > 0 {
		o.First = max(1, t.From)
		o.Last = o.First + t.Steps - 1
	}
	var err error
	if o.Hosts, err = t.hosts(); err != nil {
		return err
	}
	logs, done, err := openLogs(t.Of, term.stdin)
	if err != nil {
		return err
	}
	defer done()
	found, err := t.write(term, o, func(add func(event.Event)) (timeline.Lines, error) { return timeline.Events(add, nil, logs...) })
	switch {
	case err != nil:
		return fmt.Errorf("trace of event logs: %w", err)
	case found.Events == 0:
		return errNoEvents
	}
	return t.tell(term, found)
}

// hosts returns what the logs say of the hosts, for which they are read twice; nil if one of them cannot be.
func (t *traceCommand) hosts() (*trace.Hosts, error) {
	var logs []io.Reader
	for _, name := range t.Of {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue // standard input, or a pipe
		}
		f, err := os.Open(name)
		if err != nil {
			continue // openLogs reports it
		}
		defer f.Close()
		logs = append(logs, f)
	}
	if len(logs) < len(t.Of) {
		return nil, nil
	}
	hosts := &trace.Hosts{}
	if _, err := timeline.Events(hosts.Add, trace.HostKinds(), logs...); err != nil {
		return nil, fmt.Errorf("read the hosts in event logs: %w", err)
	}
	return hosts, nil
}

// tell prints what was found, if the user wants to know it.
func (t *traceCommand) tell(term *terminal, found timeline.Lines) error {
	if !t.JSON {
		return nil
	}
	return writeJSON(term.stdout, found)
}

// write writes the events that read adds.
func (t *traceCommand) write(term *terminal, o trace.Options, read func(add func(event.Event)) (timeline.Lines, error)) (timeline.Lines, error) {
	to := term.stdout
	if t.Output != "-" {
		f, err := private.Create(t.Output)
		if err != nil {
			return timeline.Lines{}, fmt.Errorf("%w: file of the trace: %w", launch.ErrOptions, err)
		}
		defer f.Close() // again, after an error
		to = f
	}
	var w interface {
		Add(e event.Event)
		Close() error
	} = trace.New(to, o)
	if strings.HasSuffix(t.Output, ".jsonl") {
		w = newLineWriter(to)
	}
	found, err := read(w.Add)
	err = errors.Join(err, w.Close())
	if to == term.stdout {
		return found, err
	}
	// A file of nothing would look like a trace. What is no file, as /dev/null, stays.
	if info, wrong := to.Stat(); found.Events == 0 && wrong == nil && info.Mode().IsRegular() {
		err = errors.Join(err, os.Remove(t.Output))
	}
	return found, errors.Join(err, to.Close())
}

// lineWriter writes events as an event log.
type lineWriter struct {
	to  *bufio.Writer
	err error
}

// newLineWriter returns a lineWriter to a file.
func newLineWriter(to io.Writer) *lineWriter { return &lineWriter{to: bufio.NewWriter(to)} }

// Add writes an event.
func (l *lineWriter) Add(e event.Event) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.to.Write(append(line, '\n'))
	}
	l.err = cmp.Or(l.err, err)
}

// Close writes what is in memory, and returns the first error.
func (l *lineWriter) Close() error { return cmp.Or(l.err, l.to.Flush()) }
