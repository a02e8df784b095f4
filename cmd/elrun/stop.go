package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/launch"
)

// stopCommand is the command elrun stop. A signal ends only the wait; the job still ends.
type stopCommand struct {
	Job string `arg:"" optional:"" help:"Name of the job, or its beginning; may be left out if there is only one."`
}

// Run ends a job, waits for its end and prints the outcome.
func (c *stopCommand) Run(ctx context.Context, t *terminal) error {
	ctx, release := t.interruptible(ctx)
	defer release()
	job, err := launch.Find(ctx, c.Job)
	if err != nil {
		return err
	}
	s, err := job.Stop(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.stdout, formatStopped(s))
	return err
}

// formatStopped returns the outcome: the job, the number of its peers, and the time until they had
// exited.
func formatStopped(s launch.Stopped) string {
	peers, were := "1 peer", "was"
	if s.Peers != 1 {
		peers, were = fmt.Sprintf("%d peers", s.Peers), "were"
	}
	return fmt.Sprintf("stopped job %s: %s %s asked to end, and %[3]s gone %[4]v later",
		s.Job, peers, were, s.Took.Round(time.Millisecond))
}
