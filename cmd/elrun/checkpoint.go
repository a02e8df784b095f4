package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch"
)

// checkpointCommand is the command elrun checkpoint. A signal ends only the wait; the job still writes.
type checkpointCommand struct {
	NoWait  bool          `help:"Do not wait until the checkpoint is written. If the peer that writes it dies before, there is none."`
	Timeout time.Duration `default:"10m" placeholder:"D" help:"How long to wait for the checkpoint (${default})."`
	Job     string        `arg:"" optional:"" help:"Name of the job, or its beginning; may be left out if there is only one."`
}

// Run asks a job for a checkpoint, waits until it is written and prints its file.
func (c *checkpointCommand) Run(ctx context.Context, t *terminal) error {
	if c.Timeout <= 0 {
		return fmt.Errorf("%w: --timeout %v: want more than 0", launch.ErrOptions, c.Timeout)
	}
	ctx, release := t.interruptible(ctx)
	defer release()
	job, err := launch.Find(ctx, c.Job)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("the limit of %v is over", c.Timeout))
	defer cancel()
	saved, err := job.Checkpoint(ctx, !c.NoWait)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.stdout, "job %s: %s\n", job.Name(), printable.Line(saved.String()))
	return err
}
