package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"

	"github.com/elrun/elrun/cmd/elrun/dashboard"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// dashboardCommand is the command elrun dashboard.
type dashboardCommand struct {
	Job     string `arg:"" optional:"" help:"Name of the job, or its beginning; may be left out if there is only one."`
	Address string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where the page is served (${default}: this host only, at a free port)."`
	Socket  string `placeholder:"PATH" help:"Serve the page at a Unix socket of this user instead, for ssh -L 8080:PATH HOST."`
}

// Run serves the page of a job until a signal comes, also after the end of the job.
func (d *dashboardCommand) Run(ctx context.Context, t *terminal) error {
	job, err := launch.Find(ctx, d.Job)
	if err != nil {
		return err
	}
	network, at := "tcp", d.Address
	if d.Socket != "" {
		network, at = "unix", d.Socket
	}
	s, err := openPage(newWatchedJob(job.Name(), true), network, at, t)
	if err != nil {
		return err
	}
	fmt.Fprintln(t.stdout, s.Link())
	ctx, release := t.interruptible(ctx)
	defer release()
	return s.Serve(ctx)
}

// openPage opens the page of a job. It warns if others on the network can read it.
func openPage(job dashboard.Job, network, at string, t *terminal) (*dashboard.Server, error) {
	s, err := dashboard.New(job, network, at)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", launch.ErrOptions, err)
	}
	if host, _, _ := net.SplitHostPort(at); network == "tcp" && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		fmt.Fprintln(t.stderr, "elrun: the page is not encrypted: others on the network can read it and its link; safer is elrun dashboard --socket PATH, and ssh -L 8080:PATH HOST")
	}
	return s, nil
}

// pageFlag is the flag --dashboard, with or without an address.
type pageFlag struct {
	given   bool
	address string
}

// Decode implements kong's decoding.
func (p *pageFlag) Decode(ctx *kong.DecodeContext) error {
	p.given, p.address = true, "127.0.0.1:0"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		p.address, _ = ctx.Scan.Pop().Value.(string)
	}
	return nil
}

// IsBool tells kong that the flag needs no value.
func (pageFlag) IsBool() bool { return true }

// serve serves the page of the job that o starts, if the flag is given, until end is called.
func (p *pageFlag) serve(o *launch.Options, t *terminal) (end func(), err error) {
	switch {
	case !p.given:
		return func() {}, nil
	case o.Job == "" && o.Join:
		return nil, fmt.Errorf("%w: --dashboard: give the name of the job by --name", launch.ErrOptions)
	}
	s, err := openPage(newWatchedJob(o.Job, false), "tcp", p.address, t)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(t.stderr, "elrun: the page of the job is %s\n", s.Link())
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		err := s.Serve(ctx)
		if err != nil {
			fmt.Fprintf(t.stderr, "elrun: %v\n", err)
		}
	})
	return func() {
		stop()
		work.Wait()
	}, nil
}

// watchedJob is a job whose page is served.
type watchedJob struct {
	name    string
	since   time.Time
	started atomic.Bool
}

// newWatchedJob returns the job with a full name, which has started or is about to.
func newWatchedJob(name string, started bool) *watchedJob {
	w := &watchedJob{name: name, since: time.Now()}
	w.started.Store(started)
	return w
}

const (
	// outcomePatience is how long the end of a job may take to be on record.
	outcomePatience = 5 * time.Second
	// lookPeriod is the time between two looks for a job that is about to start, or for its end.
	lookPeriod = 200 * time.Millisecond
)

// Watch implements dashboard.Job. It waits for a job that has not started.
func (w *watchedJob) Watch(ctx context.Context) iter.Seq2[timeline.Snapshot, error] {
	return func(yield func(timeline.Snapshot, error) bool) {
		job, err := launch.Find(ctx, w.name)
		for !w.started.Load() && errors.Is(err, launch.ErrNoJob) && pause.For(ctx, lookPeriod) == nil {
			job, err = launch.Find(ctx, w.name)
		}
		if err != nil {
			yield(timeline.Snapshot{}, err)
			return
		}
		w.started.Store(true)
		for s, err := range job.Watch(ctx) {
			if !yield(s, err) {
				return
			}
		}
	}
}

// Find implements dashboard.Job.
func (w *watchedJob) Find(ctx context.Context) (dashboard.Actor, error) {
	return launch.Find(ctx, w.name)
}

// Outcome implements dashboard.Job.
func (w *watchedJob) Outcome(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, outcomePatience)
	defer cancel()
	for {
		s, err := launch.LastStatus(ctx, w.name)
		switch {
		case err == nil && s.Ended != nil && s.Ended.At.After(w.since):
			return outcomeLine(*s.Ended)
		case err != nil && !errors.Is(err, launch.ErrNoJob):
			return err.Error()
		}
		if pause.For(ctx, lookPeriod) != nil {
			return "no elrun of the job runs on this host any more"
		}
	}
}

// outcomeLine returns a line about the end of a job.
func outcomeLine(e launch.Ended) string {
	line := fmt.Sprintf("%s with status %d", e.Outcome, e.Status)
	for _, more := range []string{e.Reason, e.Result} {
		if more != "" {
			line += ": " + more
		}
	}
	return printable.Line(line)
}
