package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/event/trace"
	"github.com/elrun/elrun/internal/private"
	"github.com/elrun/elrun/launch"
)

// traceCommand is the command elrun trace.
type traceCommand struct {
	Logs   []string `arg:"" help:"Event logs of the elruns of a job (--events), plain or compressed by gzip; - is standard input."`
	Output string   `short:"o" required:"" placeholder:"FILE" help:"File for the trace, as in run.pftrace; - is standard output. https://ui.perfetto.dev shows it."`
	From   int64    `placeholder:"STEP" help:"First step of the trace; default: that of the logs."`
	Steps  int64    `placeholder:"N" help:"Number of steps of the trace; default: all."`
	JSON   bool     `name:"json" help:"What was found in the logs, as one JSON object."`
}

// Validate implements kong's validation: its errors are usage errors.
func (t *traceCommand) Validate() error {
	switch {
	case t.From < 0 || t.Steps < 0:
		return errors.New("--from and --steps: want numbers from 0 on")
	case t.JSON && t.Output == "-":
		return errors.New("--json and -o -: want one of them on standard output")
	}
	return nil
}

// Run writes the trace of logs.
func (t *traceCommand) Run(term *terminal) error {
	o := trace.Options{First: t.From}
	if t.Steps > 0 {
		o.First = max(1, t.From)
		o.Last = o.First + t.Steps - 1
	}
	var err error
	if o.Hosts, err = t.hosts(); err != nil {
		return err
	}
	logs, done, err := openLogs(term, t.Logs)
	if err != nil {
		return err
	}
	defer done()
	to, err := traceFile(term, t.Output)
	if err != nil {
		return err
	}
	w := trace.New(to, o)
	found, err := timeline.Events(w.Add, nil, logs...)
	err = errors.Join(err, w.Close())
	if to != term.stdout {
		err = errors.Join(err, to.Close())
	}
	switch {
	case err != nil:
		return fmt.Errorf("trace of event logs: %w", err)
	case found.Events == 0:
		return errors.New("no events in these logs: name files that --events has written")
	case t.JSON:
		return writeJSON(term.stdout, found)
	}
	return nil
}

// hosts returns what the logs say of the hosts, for which they are read twice; nil if one of them cannot be.
func (t *traceCommand) hosts() (*trace.Hosts, error) {
	var logs []io.Reader
	for _, name := range t.Logs {
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
	if len(logs) < len(t.Logs) {
		return nil, nil
	}
	hosts := &trace.Hosts{}
	if _, err := timeline.Events(hosts.Add, trace.HostKinds(), logs...); err != nil {
		return nil, fmt.Errorf("read the hosts in event logs: %w", err)
	}
	return hosts, nil
}

// openLogs opens event logs. done closes them.
func openLogs(term *terminal, names []string) (logs []io.Reader, done func(), err error) {
	var files []*os.File
	done = func() {
		for _, f := range files {
			_ = f.Close() // it was only read
		}
	}
	for _, name := range names {
		if name == "-" && term.stdin != nil {
			logs = append(logs, term.stdin)
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("%w: event log: %w", launch.ErrOptions, err)
		}
		files, logs = append(files, f), append(logs, f)
	}
	return logs, done, nil
}

// traceFile opens the file of a trace; - is standard output.
func traceFile(term *terminal, name string) (*os.File, error) {
	if name == "-" {
		return term.stdout, nil
	}
	f, err := private.Create(name)
	if err != nil {
		return nil, fmt.Errorf("%w: file of the trace: %w", launch.ErrOptions, err)
	}
	return f, nil
}
