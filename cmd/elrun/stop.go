package main

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/launch"
)

// stopCommand is elrun stop.
type stopCommand struct {
	Job string `arg:"" optional:"" help:"Name of the job; may be left out if there is only one."`
}

// Run ends a job and waits for its end.
func (c *stopCommand) Run(ctx context.Context, t *terminal) error {
	ctx, release := t.interruptible(ctx)
	defer release()
	s, err := launch.Stop(ctx, c.Job)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "stopped %s: %s asked to end\n", s.Job, wereAsked(s.Peers))
	return err
}

// wereAsked counts peers in words.
func wereAsked(n int) string {
	if n == 1 {
		return "1 peer was"
	}
	return fmt.Sprintf("%d peers were", n)
}
