package main

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/launch"
)

// doctorCommand is elrun doctor.
type doctorCommand struct{}

// Run shows what works here, a line for each check, and fails if one did.
func (c *doctorCommand) Run(ctx context.Context, t *terminal) error {
	ctx, release := t.interruptible(ctx)
	defer release()
	checks := launch.Doctor(ctx)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	failed := false
	for _, check := range checks {
		failed = failed || check.Level == launch.Fail
		if _, err := fmt.Fprintln(t.stdout, check); err != nil {
			return err
		}
	}
	if failed {
		return exitStatus(statusFailed)
	}
	return nil
}
